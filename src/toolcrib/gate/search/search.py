"""Searching the tools that a principal sees, with indexes that are built on first use and kept.

Indexes are built in a thread, so a large catalog delays no other request. The index of a server is shared by all
principals that see the same tools of it, and carries over to the next snapshot if they are unchanged. With a model in
the settings, the ranking by words is fused with one by meaning (`embeddings`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread

from toolcrib.gate.search.embeddings import MOST_RANKED, StaticEmbeddings, ToolVectors, fused
from toolcrib.gate.search.index import FoundTool, ServerIndex, ToolIndex, build_index
from toolcrib.gate.search.words import LONGEST_QUERY, query_steps
from toolcrib.gate.view import Listing
from toolcrib.model.tools import Tool

_LISTINGS: Final = 32
_SERVERS: Final = 4_096
"""Indexes that are kept. The least recently used one is dropped and rebuilt on demand."""


class _Indexed(NamedTuple):
    """A listing with its index, and the vectors of its tools if there is a model."""

    listing: Listing
    words: ToolIndex
    vectors: ToolVectors | None


class ToolSearch:
    """Searches listings. With `model`, also by meaning."""

    def __init__(self, model: StaticEmbeddings | None = None) -> None:
        self._model = model
        self._building = anyio.Lock()
        self._listings: OrderedDict[int, _Indexed] = OrderedDict()
        self._servers: OrderedDict[tuple[int, ...], tuple[ServerIndex, Any]] = OrderedDict()

    async def find(self, listing: Listing, query: str, limit: int) -> list[FoundTool]:
        """Return the best tools of a listing, best first. Empty if nothing matches."""
        indexed = await self._index(listing)
        if indexed.vectors is None:
            return indexed.words.search(query, limit)
        words = indexed.words.search(query, max(limit, MOST_RANKED))
        nearest = [listing.tools[number] for number in indexed.vectors.nearest(query)]
        return fused(words, nearest, len(query_steps(query[:LONGEST_QUERY])), limit)

    async def _index(self, listing: Listing) -> _Indexed:
        kept = self._listings.get(id(listing))
        if kept is None:
            async with self._building:
                kept = self._listings.get(id(listing)) or await self._build(listing)
                self._listings[id(listing)] = kept  # holds the listing, so that its id stays unique
        self._listings.move_to_end(id(listing))
        if len(self._listings) > _LISTINGS:
            self._listings.popitem(last=False)
        return kept

    async def _build(self, listing: Listing) -> _Indexed:
        by_server = groupby(listing.tools, key=lambda tool: tool.ref.server)
        servers = [await self._server(tuple(tools)) for _, tools in by_server]
        rows = [vectors for _, vectors in servers if vectors is not None]
        vectors = self._model.joined(rows) if self._model is not None and 0 < len(rows) == len(servers) else None
        return _Indexed(listing, ToolIndex([index for index, _ in servers]), vectors)

    async def _server(self, tools: Sequence[Tool]) -> tuple[ServerIndex, Any]:
        key = tuple(map(id, tools))  # the index holds the tools, so that their ids stay unique
        kept = self._servers.get(key)
        if kept is None:
            index = await anyio.to_thread.run_sync(build_index, tools)
            vectors = await self._model.vectors_of(tools) if self._model is not None else None
            kept = self._servers[key] = index, vectors
        self._servers.move_to_end(key)
        if len(self._servers) > _SERVERS:
            self._servers.popitem(last=False)
        return kept


def open_search(model: Path | None) -> ToolSearch:
    """Return a search, with the model in this directory if there is one."""
    return ToolSearch(StaticEmbeddings(model) if model is not None else None)
