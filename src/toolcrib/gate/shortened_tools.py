"""The tools whose descriptions are listed in a shorter form, as stored state.

Only lists for MCP clients and sessions are shortened. Pins, the audit, the search and calls use the definition of the
server. Each entry names the definition it was made for, so a changed definition is listed whole until it is shortened
again. What is left out is computed for each list, so that a text is kept once among the tools that a principal sees.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import anyio.to_thread

from toolcrib.gate.shortening import shorten
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.store.engine import Store
from toolcrib.store.shortened_tools import delete_shortened, load_shortened, save_shortened

_KEPT: Final = 64
"""Number of cached lists."""


class ShortenedTools:
    """The tools to list in a shorter form, by the hash of their definition. `renew` invalidates listings."""

    def __init__(self, store: Store, renew: Callable[[], None]) -> None:
        self._store = store
        self._renew = renew
        self._lists: OrderedDict[int, tuple[Sequence[Tool], tuple[Tool, ...]]] = OrderedDict()
        self._plans: dict[str, tuple[tuple[Tool, ...], dict[ToolRef, Tool]]] = {}
        self.by_hash: dict[str, ToolRef] = {}

    async def load(self) -> None:
        """Load the entries, at the start and after a change on another node."""
        found = await load_shortened(self._store)
        if found != self.by_hash:
            self.by_hash = found
            self._lists.clear()
            self._renew()

    async def add(self, tools: Iterable[Tool]) -> None:
        """List these tools in a shorter form from now on."""
        await save_shortened(self._store, {tool.definition_hash: tool.ref for tool in tools})
        await self.load()

    async def remove(self, refs: Iterable[ToolRef]) -> None:
        """List these tools whole again."""
        await delete_shortened(self._store, refs)
        await self.load()

    def listed(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools as clients list them. They are sorted by server."""
        if not self.by_hash:
            return tools
        kept = self._lists.get(id(tools))
        if kept is None or kept[0] is not tools:
            kept = self._lists[id(tools)] = (tools, tuple(self._shorter(tools)))
            if len(self._lists) > _KEPT:
                self._lists.popitem(last=False)
        return kept[1]

    def has(self, tool: Tool) -> bool:
        """Return whether the tool, as defined now, is listed in a shorter form."""
        return bool(self.by_hash) and tool.definition_hash in self.by_hash

    async def shorter(self, tools: Sequence[Tool]) -> dict[ToolRef, Tool]:
        """Return the tools that become shorter if all of them are shortened. Computed off the loop, once per server."""
        found: dict[ToolRef, Tool] = {}
        for server, of_server in groupby(tools, key=lambda tool: tool.ref.server):
            whole = tuple(of_server)
            kept = self._plans.get(server)
            if kept is None or kept[0] != whole:
                forms = await anyio.to_thread.run_sync(shorten, whole, {tool.ref for tool in whole})
                kept = self._plans[server] = (whole, forms)
            found |= kept[1]
        return found

    def _shorter(self, tools: Sequence[Tool]) -> Iterable[Tool]:
        servers = {ref.server for ref in self.by_hash.values()}
        for server, of_server in groupby(tools, key=lambda tool: tool.ref.server):
            if server not in servers:
                yield from of_server
                continue
            whole = tuple(of_server)
            forms = shorten(whole, {tool.ref for tool in whole if self.has(tool)})
            yield from (forms.get(tool.ref, tool) for tool in whole)
