"""Sign-ins that all nodes of a cluster share: in the database, encrypted with the node secret.

A sign-in that only this home has is copied to the database when it is first used. One node at a time refreshes the
tokens of a server; the others wait and use its result.

Must never store a token that is not encrypted.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from toolcrib.base.masking.values import KnownSecrets
from toolcrib.model.json import JsonObject, as_object, dumps, loads
from toolcrib.nodes.cluster_secret import ClusterSecret
from toolcrib.store.engine import Store
from toolcrib.store.leases import end_lease, take_lease
from toolcrib.store.sealed_values import add_sealed, load_sealed, save_sealed
from toolcrib.upstream.credentials import CredentialStore

_PURPOSE: Final = "credentials"
_PAUSE: Final = 0.1


class SharedCredentialStore(CredentialStore):
    """The sign-ins of a cluster. `node` identifies this node as the one that refreshes."""

    def __init__(
        self,
        database: Store,
        secret: ClusterSecret,
        node: str,
        directory: Path,
        secrets: KnownSecrets | None = None,
    ) -> None:
        super().__init__(directory, secrets)
        self._database = database
        self._secret = secret
        self._node = node

    def renewing(self, server: str, seconds: float) -> AbstractAsyncContextManager[bool]:
        """Lock the refresh of a server's tokens across nodes. Yields False if the lock was not free in time."""
        return self._lease(f"oauth {hashlib.sha256(server.encode()).hexdigest()[:32]}", seconds)

    @asynccontextmanager
    async def _lease(self, name: str, seconds: float) -> AsyncGenerator[bool]:
        is_mine = False
        with anyio.move_on_after(seconds):
            while not is_mine:
                is_mine = await take_lease(self._database, name, self._node, seconds)
                if not is_mine:
                    await anyio.sleep(_PAUSE)
        try:
            yield is_mine
        finally:
            if is_mine:
                with anyio.CancelScope(shield=True):
                    await end_lease(self._database, name, self._node)

    async def _get(self, name: str) -> JsonObject | None:
        sealed = await load_sealed(self._database, _row_name(name))
        if sealed is not None:
            return as_object(loads(self._secret.open(_PURPOSE, sealed, name)))
        local = await super()._get(name)
        if local is not None:
            await add_sealed(self._database, _row_name(name), self._secret.seal(_PURPOSE, dumps(local), name))
        return local

    async def _put(self, name: str, value: JsonObject | None) -> None:
        sealed = None if value is None else self._secret.seal(_PURPOSE, dumps(value), name)
        await save_sealed(self._database, _row_name(name), sealed)
        if value is None:
            await super()._put(name, None)


def _row_name(name: str) -> str:
    """Return the name of a row. It is a digest, because names may contain addresses."""
    return f"credential {hashlib.sha256(name.encode()).hexdigest()}"
