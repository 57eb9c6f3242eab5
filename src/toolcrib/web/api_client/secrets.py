"""The client's methods for secrets of definitions."""

from collections.abc import Sequence

from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.wire import Wire, path_to

_SECRETS = "/api/secrets"


class SecretsClient:
    """Lists and moves plaintext secrets, and stores values by name."""

    def __init__(self, wire: Wire) -> None:
        self._ask = wire.ask

    async def plaintext(self) -> list[JsonObject]:
        """Return the plaintext secrets in the files of all apps, masked."""
        return await self._ask("GET", _SECRETS)

    async def stored(self) -> list[JsonObject]:
        """Return the stored secrets, without their values."""
        return await self._ask("GET", f"{_SECRETS}/stored")

    async def move(self, names: Sequence[str] = (), *, dry_run: bool = False) -> JsonObject:
        """Move plaintext secrets into the keyring."""
        return await self._ask("POST", f"{_SECRETS}/move", body={"names": list(names), "dryRun": dry_run})

    async def undo(self, *, dry_run: bool = False) -> JsonObject:
        """Undo the last move."""
        return await self._ask("POST", f"{_SECRETS}/undo", body={"dryRun": dry_run})

    async def set(self, name: str, value: str, *, project: bool = False) -> JsonObject:
        """Store or replace a secret."""
        return await self._ask("PUT", path_to(_SECRETS, name), body={"value": value, "project": project})

    async def remove(self, name: str) -> JsonObject:
        """Remove a stored secret."""
        return await self._ask("DELETE", path_to(_SECRETS, name))
