"""The client's methods for plugins and their grants."""

from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.wire import Wire, path_to

_PLUGINS = "/api/plugins"


class PluginsClient:
    """Reads, grants and switches plugins."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self) -> list[JsonObject]:
        """Return all installed plugins by name."""
        return await self._ask("GET", _PLUGINS)

    async def get(self, name: str) -> JsonObject:
        """Return one plugin."""
        return await self._ask("GET", path_to(_PLUGINS, name))

    async def grant(self, name: str, digest: str) -> JsonObject:
        """Grant a plugin as it was shown. Loading it may take a while."""
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/grant", body={"digest": digest}, patient=True)

    async def revoke(self, name: str) -> JsonObject:
        """Revoke a plugin's grant."""
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/revoke")

    async def switch(self, name: str, enabled: bool) -> JsonObject:
        """Enable or disable a granted plugin."""
        way = "enable" if enabled else "disable"
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/{way}", patient=True)
