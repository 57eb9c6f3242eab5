"""What a client asks about tools that use this crib. Above: `Client.connections`. Below: `wire`."""

from toolcrib.client.wire import Wire, path_to
from toolcrib.model.json import JsonObject

_CONNECT = "/api/connect"


class ConnectionsClient:
    """The part of one asker's client that writes this crib into files of tools."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self) -> list[JsonObject]:
        """Every tool that can use this crib."""
        return await self._ask("GET", _CONNECT)

    async def connect(self, client: str, body: JsonObject) -> JsonObject:
        """Write this crib into a tool's file."""
        return await self._ask("POST", path_to(_CONNECT, client), body=body)

    async def undo(
        self, client: str, *, agent: str | None = None, scope: str = "user", dry_run: bool = False
    ) -> JsonObject:
        """Take that back."""
        return await self._ask("DELETE", path_to(_CONNECT, client), {"as": agent, "scope": scope, "dryRun": dry_run})
