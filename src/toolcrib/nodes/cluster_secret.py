"""The secret that the nodes of a cluster share, and the keys derived from it.

The secret is a file that the operator copies to every machine (`--node-secret-file`). Each purpose has its own key, so
that a value made for one purpose is useless for another. The database holds a sealed marker: a node with another secret
is refused when it starts, instead of failing later at values that it cannot open.

Must never write the secret, or a key, anywhere.
"""

import hashlib
import hmac
import importlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Any, Final, Self

from toolcrib.base.files.private import PLAIN
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.store.engine import Store
from toolcrib.store.sealed_values import add_sealed, load_sealed

SIGNATURE_HEADER: Final = "toolcrib-node"
"""The header with the signature of a request from another node, which does not come through the proxy."""
SHORTEST: Final = 32
"""Minimum bytes of the secret."""
_LARGEST: Final = 64 * 1024
_NONCE: Final = 12
_MARKER: Final = "node secret"
_OWNER: Final = "owner token"
_HINT: Final = "Create one with `openssl rand -hex 32`, save it with mode 0600, and copy it to every node."


class ClusterSecret:
    """The secret of a cluster. `repr` does not show it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SHORTEST:
            raise ConfigError("node.secret", f"The node secret has {len(secret)} bytes; it needs {SHORTEST}.", _HINT)
        self._secret = secret

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file. Raises `node.secret` if it is missing, too short, or accessible to other users."""
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as file:
                status, content = os.fstat(file.fileno()), file.read(_LARGEST)
        except OSError as error:
            message = f"The node secret file {path} cannot be read: {error.strerror}."
            raise ConfigError("node.secret", message, _HINT) from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError("node.secret", f"The node secret file {path} is not a file.", _HINT)
        if sys.platform != "win32" and status.st_mode & 0o077:
            message = f"The node secret file {path} is accessible to other users."
            raise ConfigError("node.secret", message, f"Run `chmod 600 {path}`.")
        return cls(content.strip())

    def key(self, purpose: str) -> bytes:
        """Return the key for one purpose: 32 bytes, the same on every node."""
        return hmac.new(self._secret, b"toolcrib node key\0" + purpose.encode(), hashlib.sha256).digest()

    def seal(self, purpose: str, plain: bytes, bound_to: str = "") -> bytes:
        """Encrypt and authenticate a value. It opens only for the same purpose and the same `bound_to`."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher(purpose).encrypt(nonce, plain, bound_to.encode())

    def open(self, purpose: str, sealed: bytes, bound_to: str = "") -> bytes:
        """Decrypt a value. Raises `node.secret` if it was changed, or sealed with another secret."""
        exceptions: Any = importlib.import_module("cryptography.exceptions")
        try:
            return self._cipher(purpose).decrypt(sealed[:_NONCE], sealed[_NONCE:], bound_to.encode())
        except (exceptions.InvalidTag, ValueError) as error:
            message = "A value in the database was sealed with another node secret, or was changed."
            raise ConfigError("node.secret", message, "Use the same node secret file on every node.") from error

    def _cipher(self, purpose: str) -> Any:
        try:
            aead: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        except ModuleNotFoundError as error:
            message = "Encryption with the node secret needs the package `cryptography`."
            raise Unavailable("database.unavailable", message, "pip install 'toolcrib[postgres]'") from error
        return aead.ChaCha20Poly1305(self.key(purpose))


async def check_secret(store: Store, secret: ClusterSecret | None, *, is_node: bool) -> None:
    """Raise `node.secret` if the cluster uses another secret, or if a node has none and the cluster uses one.

    The first node with a secret decides it for the cluster.
    """
    marker = await load_sealed(store, _MARKER)
    if secret is None:
        if marker is not None and is_node:
            message = "The nodes of this database share a secret, and this one has none."
            raise ConfigError("node.secret", message, "Start it with `--node-secret-file`.")
        return
    if marker is None and not await add_sealed(store, _MARKER, secret.seal(_MARKER, b"toolcrib")):
        marker = await load_sealed(store, _MARKER)  # another node was first
    if marker is not None:
        secret.open(_MARKER, marker)


async def shared_owner_token(store: Store, secret: ClusterSecret, own: str) -> str:
    """Return the owner's token of the cluster: that of its first node. `own` is that of this node."""
    sealed = await load_sealed(store, _OWNER)
    if sealed is None and await add_sealed(store, _OWNER, secret.seal(_OWNER, own.encode())):
        return own
    sealed = sealed or await load_sealed(store, _OWNER)
    return own if sealed is None else secret.open(_OWNER, sealed).decode()
