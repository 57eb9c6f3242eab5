"""Searching the tools that a principal sees, with indexes that are built on first use and kept.

Indexes are built in a thread, so a large catalog delays no other request. The index of a server is shared by all
principals that see the same tools of it, and carries over to the next snapshot if they are unchanged. With a model in
the settings, the ranking by words is fused with one by meaning (`embeddings`).
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
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


class _IndexedServer(NamedTuple):
    """The index of one server's tools, and their vectors if there is a model."""

    words: ServerIndex
    vectors: Any


_ServerKey = tuple[int, ...]
"""The ids of a server's tools."""


class ToolSearch:
    """Searches listings. With `model`, also by meaning."""

    def __init__(self, model: StaticEmbeddings | None = None) -> None:
        self._model = model
        self._building = anyio.Lock()
        self._listings: OrderedDict[int, _Indexed] = OrderedDict()
        self._servers: OrderedDict[_ServerKey, _IndexedServer] = OrderedDict()

    async def find(self, listing: Listing, query: str, limit: int) -> list[FoundTool]:
        """Return the best tools of a listing, best first. Empty if nothing matches."""
        indexed = await self._index(listing)
        if indexed.vectors is None:
            return indexed.words.search(query, limit)
        steps = query_steps(query[:LONGEST_QUERY])
        words = indexed.words.search(query, max(limit, MOST_RANKED), steps)
        nearest = [listing.tools[number] for number in indexed.vectors.nearest(query)]
        return fused(words, nearest, len(steps), limit)

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
        parts = [tuple(tools) for _, tools in groupby(listing.tools, key=lambda tool: tool.ref.server)]
        keys = [tuple(map(id, tools)) for tools in parts]  # an index holds its tools, so that their ids stay unique
        missing = {key: tools for key, tools in zip(keys, parts, strict=True) if key not in self._servers}
        self._servers |= await anyio.to_thread.run_sync(self._index_servers, missing)
        servers = [self._servers[key] for key in keys]
        for key in keys:
            self._servers.move_to_end(key)
        while len(self._servers) > _SERVERS:
            self._servers.popitem(last=False)
        rows = [server.vectors for server in servers if server.vectors is not None]
        vectors = self._model.joined(rows) if self._model is not None and 0 < len(rows) == len(servers) else None
        return _Indexed(listing, ToolIndex([server.words for server in servers]), vectors)

    def _index_servers(self, servers: Mapping[_ServerKey, Sequence[Tool]]) -> dict[_ServerKey, _IndexedServer]:
        """Return the indexes of servers. Runs in a thread."""
        vectors = self._model.vectors_of(list(servers.values())) if self._model is not None else None
        rows = vectors if vectors is not None else [None] * len(servers)
        indexes = [_IndexedServer(build_index(tools), own) for tools, own in zip(servers.values(), rows, strict=True)]
        return dict(zip(servers, indexes, strict=True))


def open_search(model: Path | None) -> ToolSearch:
    """Return a search, with the model in this directory if there is one."""
    return ToolSearch(StaticEmbeddings(model) if model is not None else None)
