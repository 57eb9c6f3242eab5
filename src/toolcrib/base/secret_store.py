"""Stores secrets by name in the system's keyring or a private file, with a lock between processes.

Must never put a stored value into a message.
"""

import contextlib
import importlib
import os
import secrets
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol, cast

import anyio
import anyio.to_thread
import orjson

from toolcrib.base.files.lock import locked, try_lock
from toolcrib.base.files.reading import read_bytes
from toolcrib.base.files.write import replace_file
from toolcrib.base.sealing import Sealer
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject, as_object, at

KEYRING_SECONDS = 5.0
_PAUSE = 0.02


class SecretStore(Protocol):
    """Stores objects by name. Data is durable when `put` returns; None removes an object."""

    def get(self, name: str) -> JsonObject | None:
        """Return the object stored under the name, or None."""
        ...

    def put(self, name: str, value: JsonObject | None) -> None:
        """Store or remove an object atomically."""
        ...


class Keyring(Protocol):
    """The part of the package `keyring` that is used."""

    def get_password(self, service_name: str, username: str) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str) -> None: ...

    def delete_password(self, service_name: str, username: str) -> None: ...


class FileSecretStore:
    """Stores all objects in one private file, encrypted if there is a `sealer`."""

    def __init__(self, file: Path, sealer: Sealer | None = None) -> None:
        self._file = file
        self._sealer = sealer

    def get(self, name: str) -> JsonObject | None:
        """Return the object stored under the name, or None."""
        return as_object(self._read()[0].get(name))

    def put(self, name: str, value: JsonObject | None) -> None:
        """Write a new file beside the old one, sync it, then replace the old one."""
        with locked(self._file.parent):
            for left in self._file.parent.glob(f".{self._file.name}.*.tmp"):  # leftovers of an interrupted write
                left.unlink(missing_ok=True)
            entries, seen = self._read()
            if value is None and name not in entries:
                return
            changed = {kept: entry for kept, entry in entries.items() if kept != name}
            if value is not None:
                changed[name] = value
            content = orjson.dumps({"version": 1, "entries": changed}, option=orjson.OPT_INDENT_2)
            replace_file(self._file, self._sealer.seal(content) if self._sealer else content, 0o600, seen)

    def _read(self) -> tuple[JsonObject, bytes | None]:
        content = read_bytes(self._file)
        if content is None:
            return {}, None
        if isinstance(content, bytes):
            plain = self._sealer.unseal(content) if self._sealer else content
            if (entries := as_object(at(_json(plain), "entries"))) is not None:
                return entries, content
        # Treating a damaged file as empty would lose every secret with the next write.
        code, what = ("secret.storage", "secrets") if self._sealer else ("oauth.storage", "sign-ins")
        raise ConfigError(code, f"The stored {what} in {self._file} cannot be read.")


class KeyringSecretStore:
    """Stores each object as one secret in the system's keyring. `service` separates the homes of one user."""

    def __init__(self, keyring: Keyring, service: str) -> None:
        self._keyring = keyring
        self._service = service

    def get(self, name: str) -> JsonObject | None:
        """Return the object stored under the name, or None if the entry is missing or not ours."""
        try:
            text = self._keyring.get_password(self._service, name)
        except Exception as error:  # boundary: each keyring backend raises its own exceptions
            raise self._failure("read") from error
        return as_object(_json(text.encode())) if text is not None else None

    def put(self, name: str, value: JsonObject | None) -> None:
        """Set or delete the secret."""
        try:
            if value is not None:
                self._keyring.set_password(self._service, name, orjson.dumps(value).decode())
            elif self._keyring.get_password(self._service, name) is not None:
                self._keyring.delete_password(self._service, name)
        except Exception as error:  # boundary: each keyring backend raises its own exceptions
            raise self._failure("written") from error

    def works(self) -> bool:
        """Return whether a secret can be stored, read and deleted."""
        name, proof = f"probe {secrets.token_hex(8)}", {"proof": secrets.token_hex(8)}
        try:
            self.put(name, proof)
            kept = self.get(name)
            self.put(name, None)
        except ConfigError:
            return False
        return kept == proof

    def _failure(self, what: str) -> ConfigError:
        return ConfigError("oauth.storage", f"The system's keyring cannot be {what}.", "Unlock it, then try again.")


async def open_secret_store(directory: Path, keyring_package: str = "keyring") -> SecretStore:
    """Return the system's keyring if the package is installed and works, else a file in the directory."""
    found: list[KeyringSecretStore] = []

    def look() -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(ImportError):
            keyring = cast("Keyring", importlib.import_module(keyring_package))
            store = KeyringSecretStore(keyring, f"toolcrib {directory}")
            if is_recommended(keyring) and store.works():
                found.append(store)

    # A locked keyring prompts the user; a server must not wait for that.
    with anyio.move_on_after(KEYRING_SECONDS):
        await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
    if found:
        return found[0]
    return FileSecretStore(directory / "credentials.json")


def is_recommended(keyring: object) -> bool:
    """Return whether the backend that stores secrets is one that `keyring` recommends, by its priority.

    The others, such as those of `keyrings.alt`, write plain text or files with a weak key.
    """
    backend: object = getattr(keyring, "get_keyring", lambda: None)()
    chain = getattr(backend, "backends", (backend,))
    return bool(chain) and all(getattr(each, "priority", 1) >= 1 for each in tuple(chain)[:1])


@contextlib.asynccontextmanager
async def process_lock(file: Path, seconds: float) -> AsyncGenerator[bool]:
    """Hold a lock between processes. Yields False if another process did not release it in time."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | flags, 0o600)
    end = time.monotonic() + seconds
    try:
        # Polling: a blocking system lock would need a thread that cannot be cancelled.
        while not (held := try_lock(descriptor)) and time.monotonic() < end:  # noqa: ASYNC110
            await anyio.sleep(_PAUSE)
        yield held
    finally:
        os.close(descriptor)


def _json(content: bytes) -> Json:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
