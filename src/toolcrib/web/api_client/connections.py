"""The client's methods for apps that use this crib."""

from collections.abc import Sequence

from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.wire import Wire, path_to

_CONNECT = "/api/connect"


class ConnectionsClient:
    """Connects apps to this crib by editing their config files."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self, programs: Sequence[str] | None = None) -> list[JsonObject]:
        """Return every app that can use this crib; `programs` are those on the caller's path."""
        return await self._ask("GET", _CONNECT, {"programs": None if programs is None else list(programs) or [""]})

    async def connect(self, client: str, body: JsonObject) -> JsonObject:
        """Write this crib into an app's config file."""
        return await self._ask("POST", path_to(_CONNECT, client), body=body)

    async def undo(
        self, client: str, *, agent: str | None = None, scope: str = "user", dry_run: bool = False
    ) -> JsonObject:
        """Restore an app's config file."""
        return await self._ask("DELETE", path_to(_CONNECT, client), {"as": agent, "scope": scope, "dryRun": dry_run})
