"""The audit's key in the system keyring: found or created, without blocking a starting crib on a keyring prompt."""

import contextlib
import importlib
import secrets
from pathlib import Path
from typing import Final, cast

import anyio
import anyio.to_thread

from toolcrib.base.secret_store import KEYRING_SECONDS, Keyring, KeyringSecretStore
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.head import ChainHead
from toolcrib.gate.audit.signing import HEAD, KEY, HeadKey
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject

REMEMBER_EVERY: Final = 600.0
"""Seconds between two updates of the newest record in the keyring."""


async def follow_key(audit: Audit, home: Path) -> None:
    """Sign the audit with this home's key, and regularly store its newest record in the keyring."""
    key: HeadKey | None = None
    with anyio.CancelScope(shield=True):  # so that the records of a crib that ends at once are signed, too
        try:
            key = await open_key(home)
        finally:
            await audit.sign_with(key)
    while key is not None:
        await audit.remember_head()
        await anyio.sleep(REMEMBER_EVERY)


async def open_key(directory: Path, keyring_package: str = "keyring") -> HeadKey | None:
    """Return the key of a home, or None if the system has no working keyring.

    A locked keyring may prompt the user. A starting crib waits only a few seconds for that.
    """
    found: list[HeadKey] = []

    def look() -> None:
        with contextlib.suppress(ImportError):
            keyring = cast("Keyring", importlib.import_module(keyring_package))
            key = _key_in(KeyringSecretStore(keyring, f"toolcrib {directory}"))
            if key is not None:
                found.append(key)

    with anyio.move_on_after(KEYRING_SECONDS):
        await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
    return found[0] if found else None


def _key_in(store: KeyringSecretStore) -> HeadKey | None:
    try:
        stored = store.get(KEY)
        if stored is None:
            if not store.works():
                return None
            stored = {"key": secrets.token_hex(32)}
            store.put(KEY, stored)
        known = store.get(HEAD)
    except ConfigError:
        return None
    try:
        key = bytes.fromhex(str(stored.get("key")))
    except ValueError:
        return None
    return HeadKey(key, store.put, _of_json(known), used=stored.get("used") is True)


def _of_json(shape: JsonObject | None) -> ChainHead | None:
    match shape:
        case {"number": int(number), "hash": str(digest)}:
            return ChainHead(number, digest)
        case _:
            return None
