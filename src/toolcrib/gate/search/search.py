"""Searching the tools that a principal sees, with indexes that are built on first use and kept.

Building yields to the event loop, so a large catalog delays no other request. The index of a server is shared by all
principals that see the same tools of it, and carries over to the next snapshot if they are unchanged.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import anyio

from toolcrib.base.cooperative import Pacer
from toolcrib.gate.search.index import FoundTool, IndexBuilder, ServerIndex, ToolIndex
from toolcrib.gate.view import Listing
from toolcrib.model.tools import Tool

_LISTINGS: Final = 32
_SERVERS: Final = 4_096
"""Indexes that are kept. The least recently used one is dropped and rebuilt on demand."""


class ToolSearch:
    """Searches listings."""

    def __init__(self) -> None:
        self._building = anyio.Lock()
        self._listings: OrderedDict[int, tuple[Listing, ToolIndex]] = OrderedDict()
        self._servers: OrderedDict[tuple[int, ...], ServerIndex] = OrderedDict()

    async def find(self, listing: Listing, query: str, limit: int) -> list[FoundTool]:
        """Return the best tools of a listing, best first. Empty if no word of the query is known."""
        return (await self._index(listing)).search(query, limit)

    async def _index(self, listing: Listing) -> ToolIndex:
        kept = self._listings.get(id(listing))
        if kept is None:
            async with self._building:
                kept = self._listings.get(id(listing)) or (listing, await self._build(listing))
                self._listings[id(listing)] = kept  # holds the listing, so that its id stays unique
        self._listings.move_to_end(id(listing))
        if len(self._listings) > _LISTINGS:
            self._listings.popitem(last=False)
        return kept[1]

    async def _build(self, listing: Listing) -> ToolIndex:
        pacer = Pacer()
        by_server = groupby(listing.tools, key=lambda tool: tool.ref.server)
        return ToolIndex([await self._server(tuple(tools), pacer) for _, tools in by_server])

    async def _server(self, tools: Sequence[Tool], pacer: Pacer) -> ServerIndex:
        key = tuple(map(id, tools))  # the index holds the tools, so that their ids stay unique
        index = self._servers.get(key)
        if index is None:
            builder = IndexBuilder()
            for tool in tools:
                builder.add(tool)
                await pacer.pause()
            index = self._servers[key] = builder.finish()
        self._servers.move_to_end(key)
        if len(self._servers) > _SERVERS:
            self._servers.popitem(last=False)
        return index
