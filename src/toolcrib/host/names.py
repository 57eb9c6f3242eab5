"""The tool names of a crib: persistence across restarts, and the short forms of `server/tool`.

Must never let a name that could not be saved stop a crib.
"""

import logging
from collections.abc import Sequence

from toolcrib.gate.catalog.catalog import Catalog, Snapshot
from toolcrib.gate.catalog.naming import NameRow, NameTable, server_name
from toolcrib.gate.policy.coding_tools import SERVER, TOOLS
from toolcrib.gate.policy.patterns import Names, bare_names
from toolcrib.model.errors import Unavailable
from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import Store
from toolcrib.store.names import load_names, save_names

logger = logging.getLogger(__name__)

_TRIES = 10
"""Attempts to store names while other nodes store some too."""


async def keep_names(store: Store, table: NameTable, rows: Sequence[NameRow]) -> None:
    """Reserve names, so that all nodes use them and they survive a restart. A failure is only logged.

    Names that another node stored first are taken over, also if it used them for another tool.
    """
    for _ in range(_TRIES):
        try:
            if await save_names(store, rows):
                return
            rows = table.settle(await load_names(store), rows)
        except Unavailable as error:
            logger.warning("Could not store tool names; they may differ after a restart: %s", error)
            return
    logger.warning("Could not store tool names: other nodes store names all the time.")


class ToolNames:
    """The names users may write, rebuilt when the catalog changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: tuple[Snapshot | None, Names] = (None, Names())

    def __call__(self) -> Names:
        """Return the current names."""
        snapshot = self._catalog.snapshot
        if self._made[0] is not snapshot:
            claude = self._catalog.names.refs["claude"]
            built_in = (ref for ref, tool in snapshot.tools.items() if tool.kind == "builtin")
            coding = (ToolRef(SERVER, name) for name in TOOLS)
            servers = {server_name("claude", server): server for server in (*snapshot.also, *snapshot.sources)}
            self._made = (snapshot, Names({**bare_names((*built_in, *coding)), **claude}, servers))
        return self._made[1]
