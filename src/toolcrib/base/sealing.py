"""Encrypts files that hold secrets, with AES-256-GCM and a key from the secret store.

The encryption protects a copy of one file, such as a backup or a synchronised folder. It does not protect against a
program that runs as the same user and can read the key.
"""

import importlib
import secrets
from typing import Final, Protocol, cast

from toolcrib.model.errors import ConfigError

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PREFIX: Final = b"toolcrib-sealed-1\n"


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class _Aead(Protocol):
    def AESGCM(self, key: bytes) -> _Cipher: ...


class Sealer:
    """Encrypts and decrypts with one key."""

    def __init__(self, key: bytes) -> None:
        # Loading the library takes 20 ms, which most commands need not spend.
        aead = cast("_Aead", importlib.import_module("cryptography.hazmat.primitives.ciphers.aead"))
        self._cipher = aead.AESGCM(key)

    def seal(self, content: bytes) -> bytes:
        """Return the encrypted content."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _PREFIX + nonce + self._cipher.encrypt(nonce, content, _PREFIX)

    def unseal(self, sealed: bytes) -> bytes:
        """Return the content. Raises `secret.storage` if it was encrypted with another key or changed since."""
        body = sealed.removeprefix(_PREFIX)
        try:
            return self._cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _PREFIX)
        except Exception as error:  # boundary: the library raises its own exceptions
            raise ConfigError("secret.storage", "An encrypted file of the crib cannot be decrypted.") from error


def new_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(KEY_BYTES)
