"""The client's methods for the MCP registry."""

from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.wire import Wire

_REGISTRY = "/api/registry"


class RegistryClient:
    """Searches the configured registry, and installs servers from it."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def search(self, words: str, limit: int) -> list[JsonObject]:
        """Return the published servers that match best."""
        return await self._ask("GET", _REGISTRY, {"q": words, "limit": limit}, patient=True)

    async def plan(self, body: JsonObject) -> JsonObject:
        """Return what installing would add. Waits without a timeout, because a bundle is downloaded."""
        return await self._ask("POST", f"{_REGISTRY}/plan", body=body, patient=True)

    async def install(self, body: JsonObject) -> JsonObject:
        """Add a published server to our file."""
        return await self._ask("POST", f"{_REGISTRY}/install", body=body, patient=True)
