"""Names of tools in a crib: kept over restarts, and those that people may write instead of `server/tool`.

Above: `crib`. Below: `catalog`, `store`. It must never let a name that could not be kept stop a crib.
"""

import logging
from collections.abc import Callable, Sequence

from toolcrib.catalog.catalog import Catalog
from toolcrib.catalog.naming import NameRow, server_name
from toolcrib.catalog.snapshot import Snapshot
from toolcrib.errors import Unavailable
from toolcrib.model.tools import ToolRef
from toolcrib.policy.coding import SERVER, TOOLS
from toolcrib.policy.patterns import Names, bare_names
from toolcrib.store import ConstraintError, Store, save_names

logger = logging.getLogger(__name__)


async def keep_names(store: Store, rows: Sequence[NameRow]) -> None:
    """Have these names be the same after a restart; where that fails the log says so."""
    try:
        await save_names(store, rows)
    except (ConstraintError, Unavailable) as error:
        logger.warning("Names of tools could not be kept and may be others after a restart: %s", error)


class KnownNames:
    """What people may write, made anew when there are new names."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._made: tuple[Snapshot | None, Names] = (None, Names())

    def __call__(self) -> Names:
        """The names that count now."""
        catalog = self._catalog()
        snapshot = catalog.snapshot
        if self._made[0] is not snapshot:
            claude = catalog.names.refs["claude"]
            built_in = (ref for ref, tool in snapshot.tools.items() if tool.kind == "builtin")
            coding = (ToolRef(SERVER, name) for name in TOOLS)
            servers = {server_name("claude", server): server for server in snapshot.sources}
            self._made = (snapshot, Names({**bare_names((*built_in, *coding)), **claude}, servers))
        return self._made[1]
