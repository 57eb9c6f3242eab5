"""Builds the push messages of a crib: which key seals what is stored for them, and which token they end with."""

import hmac
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from toolcrib.agents.notify.push_notices import PushNotices, Seals
from toolcrib.base.home import sealing_key
from toolcrib.base.network.web import Web
from toolcrib.base.sealing import Sealer
from toolcrib.host.context import CribContext
from toolcrib.nodes.cluster_secret import ClusterSecret

_PURPOSE: Final = "push messages"
_NO_CONTACT: Final = "mailto:toolcrib@example.com"


def push_notices(context: CribContext, web: Web) -> PushNotices:
    """Return the push messages. On a shared database they need the node secret."""
    secret, address = context.cluster_secret, context.settings.approval_address

    async def open_seals() -> Seals:
        if secret is not None:
            return _ClusterSeals(secret)
        return _HomeSeals(await anyio.to_thread.run_sync(context.named_secrets.sealer))

    owner_key = context.cluster_key(_PURPOSE) or sealing_key(context.home)
    owner = hmac.digest(owner_key, _PURPOSE.encode(), "sha256").hex()[:32]
    subject = address if address is not None and address.startswith("https:") else _NO_CONTACT
    has_key = not context.store.shared or secret is not None
    return PushNotices(context.store, web, open_seals if has_key else None, owner, subject)


@dataclass(frozen=True, slots=True)
class _ClusterSeals:
    secret: ClusterSecret

    def seal(self, name: str, plain: bytes) -> bytes:
        return self.secret.seal(_PURPOSE, plain, name)

    def open(self, name: str, sealed: bytes) -> bytes:
        return self.secret.open(_PURPOSE, sealed, name)


@dataclass(frozen=True, slots=True)
class _HomeSeals:
    """Seals with a key in the secret store of the home."""

    sealer: Sealer

    def seal(self, name: str, plain: bytes) -> bytes:
        return self.sealer.seal(plain)

    def open(self, name: str, sealed: bytes) -> bytes:
        return self.sealer.unseal(sealed)
