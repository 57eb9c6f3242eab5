"""The tool names of a crib: persistence across restarts, and the short forms of `server/tool`.

Must never let a name that could not be saved stop a crib.
"""

import logging
from collections.abc import Sequence

from toolcrib.gate.catalog.catalog import Catalog, Snapshot
from toolcrib.gate.catalog.naming import NameRow, server_name
from toolcrib.gate.policy.coding_tools import SERVER, TOOLS
from toolcrib.gate.policy.patterns import Names, bare_names
from toolcrib.model.errors import Unavailable
from toolcrib.model.tools import ToolRef
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.names import save_names

logger = logging.getLogger(__name__)


async def keep_names(store: Store, rows: Sequence[NameRow]) -> None:
    """Save names so that they survive a restart. A failure is only logged."""
    try:
        await save_names(store, rows)
    except (ConstraintError, Unavailable) as error:
        logger.warning("Could not store tool names; they may differ after a restart: %s", error)


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
