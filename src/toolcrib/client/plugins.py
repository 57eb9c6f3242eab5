"""What a client asks about plugins: which there are, what they ask for, and what is granted.

Above: `Client.plugins`. Below: `wire`.
"""

from toolcrib.client.wire import Wire, path_to
from toolcrib.model.json import JsonObject

_PLUGINS = "/api/plugins"


class PluginsClient:
    """The part of one asker's client that is about plugins."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def list(self) -> list[JsonObject]:
        """Every installed plugin, by name."""
        return await self._ask("GET", _PLUGINS)

    async def get(self, name: str) -> JsonObject:
        """One plugin."""
        return await self._ask("GET", path_to(_PLUGINS, name))

    async def grant(self, name: str, digest: str) -> JsonObject:
        """Agree to a plugin as it was shown; loading it may take a while."""
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/grant", body={"digest": digest}, patient=True)

    async def revoke(self, name: str) -> JsonObject:
        """Take the agreement back."""
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/revoke")

    async def switch(self, name: str, enabled: bool) -> JsonObject:
        """Turn a granted plugin on or off."""
        way = "enable" if enabled else "disable"
        return await self._ask("POST", f"{path_to(_PLUGINS, name)}/{way}", patient=True)
