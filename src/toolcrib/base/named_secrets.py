"""Stores secrets by name for `${keyring:NAME}`, in the system's keyring or in an encrypted file.

Names, projects and times are in a plain index, so that a listing never touches the keyring. The index also records
where each value is stored: a keyring that is locked for a while does not make the crib look elsewhere. Every value that
is read or written is added to the known secrets. All methods block; `Servers` and others call them in threads.

Must never put a value into a message or into the index.
"""

import base64
import importlib
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, cast

import orjson

from toolcrib.base.files.lock import locked
from toolcrib.base.files.private import replace_private
from toolcrib.base.files.reading import read_bytes
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.sealing import Sealer, new_key
from toolcrib.base.secret_store import FileSecretStore, Keyring, KeyringSecretStore, SecretStore, is_recommended
from toolcrib.model.errors import ConfigError, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject, as_object, as_text, at

SecretPlace = Literal["keyring", "file"]
SECRET_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
LONGEST_VALUE: Final = 64 * 1024
_KEYRING_SECONDS: Final = 5.0
_KEY: Final = "key"
_NO_RECORDS: Final[Mapping[str, "SecretRecord"]] = {}


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """What is known of a stored secret besides its value.

    `project` is the only project whose definitions may use it; None for a secret of the user, which projects cannot
    use. `changed` is None until the value is replaced.
    """

    name: str
    place: SecretPlace
    project: str | None
    created: str
    changed: str | None = None

    def to_json(self) -> JsonObject:
        """Return the stored shape, without the name."""
        return {"place": self.place, "project": self.project, "created": self.created, "changed": self.changed}

    def serves(self, project: str | None) -> bool:
        """Return whether definitions of this project may use it; None for definitions of the user."""
        return project is None or project == self.project


class NamedSecrets:
    """The secrets of one home."""

    def __init__(self, directory: Path, known: KnownSecrets | None = None, keyring_package: str = "keyring") -> None:
        self._directory = directory
        self._known = known or KnownSecrets()
        self._package = keyring_package
        self._lock = threading.RLock()
        self._keyring: KeyringSecretStore | None = None
        self._is_recommended = False
        self._file: FileSecretStore | None = None

    @property
    def index_file(self) -> Path:
        """The file with the names; it changes whenever a secret does."""
        return index_of(self._directory)

    def records(self) -> Mapping[str, SecretRecord]:
        """Return every stored secret by name."""
        return load_index(self._directory)

    def place(self) -> SecretPlace:
        """Return where a new secret would be stored."""
        with self._lock:
            return "keyring" if self._find_keyring() is not None and self._is_recommended else "file"

    def get(self, name: str) -> str | None:
        """Return the value of a secret, or None if there is none of this name."""
        record = self.records().get(name)
        if record is None:
            return None
        with self._lock:
            value = as_text((self._store(record.place).get(_entry(name)) or {}).get("value"))
        if value is not None:
            self._known.add(value)
        return value

    def put(self, name: str, value: str, project: str | None = None) -> SecretRecord:
        """Store or replace a secret. A secret that exists keeps its project."""
        check_name(name)
        if not value or len(value) > LONGEST_VALUE:
            reason = "is empty" if not value else f"is longer than {LONGEST_VALUE} characters"
            raise InvalidRequest("secret.invalid", f'The value of the secret "{name}" {reason}.')
        self._known.add(value)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            before = self.records().get(name)
            place = before.place if before is not None else self.place()
            self._store(place).put(_entry(name), {"value": value})
            record = (
                SecretRecord(name, place, before.project, before.created, now)
                if before is not None
                else SecretRecord(name, place, project, now)
            )
            self._change_index(name, record)
        return record

    def remove(self, name: str) -> None:
        """Remove a secret. Raises `secret.unknown`."""
        with self._lock:
            record = self.records().get(name)
            if record is None:
                raise unknown_secret(name)
            self._store(record.place).put(_entry(name), None)
            self._change_index(name, None)

    def sealer(self) -> Sealer:
        """Return what encrypts the old versions of files that secrets were moved out of."""
        with self._lock:
            stored = load_index_file(self._directory).get("sealedIn")
            place: SecretPlace = "keyring" if stored == "keyring" else "file" if stored == "file" else self.place()
            store = self._store(place)
            key = as_text((store.get(_KEY) or {}).get("key"))
            if key is None:
                key = base64.b64encode(new_key()).decode()
                store.put(_KEY, {"key": key})
                self._write_index({**load_index_file(self._directory), "sealedIn": place})
            return Sealer(base64.b64decode(key))

    def _store(self, place: SecretPlace) -> SecretStore:
        if place == "file":
            return self._encrypted_file()
        found = self._find_keyring()
        if found is None:
            raise ConfigError("secret.storage", "The system's keyring is not available.", "Unlock it, then try again.")
        return found

    def _find_keyring(self) -> KeyringSecretStore | None:
        """Return the system's keyring if it works. A locked one may prompt the user, which is not waited for."""
        if self._keyring is not None:
            return self._keyring
        found: list[KeyringSecretStore] = []

        def look() -> None:
            with suppress(ImportError):
                keyring = cast("Keyring", importlib.import_module(self._package))
                store = KeyringSecretStore(keyring, f"toolcrib secrets {self._directory}")
                if store.works():
                    self._is_recommended = is_recommended(keyring)
                    found.append(store)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(_KEYRING_SECONDS)
        self._keyring = found[0] if found else None
        return self._keyring

    def _encrypted_file(self) -> FileSecretStore:
        if self._file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = FileSecretStore(self._directory / "secrets.sealed", Sealer(self._file_key()))
        return self._file

    def _file_key(self) -> bytes:
        file = self._directory / "key"
        with locked(self._directory):
            content = read_bytes(file)
            if content is None:
                content = new_key()
                replace_private(file, content)
        if not isinstance(content, bytes):
            raise ConfigError("secret.storage", f"The key of the stored secrets in {file} cannot be read.")
        return content

    def _change_index(self, name: str, record: SecretRecord | None) -> None:
        index = load_index_file(self._directory)
        names = {kept: row for kept, row in (as_object(index.get("secrets")) or {}).items() if kept != name}
        if record is not None:
            names[name] = record.to_json()
        self._write_index({**index, "secrets": names})

    def _write_index(self, index: JsonObject) -> None:
        content = orjson.dumps({"version": 1, **index}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        replace_private(self.index_file, content)


def index_of(directory: Path) -> Path:
    """Return the file with the names of the secrets in this directory."""
    return directory / "names.json"


def load_index(directory: Path) -> Mapping[str, SecretRecord]:
    """Return the secrets in this directory by name."""
    rows = as_object(load_index_file(directory).get("secrets"))
    return {name: _record(name, as_object(row) or {}) for name, row in rows.items()} if rows else _NO_RECORDS


def load_index_file(directory: Path) -> JsonObject:
    """Return the whole index. Raises `secret.storage` for a damaged file: an empty one would lose every name."""
    content = read_bytes(index_of(directory))
    if content is None:
        return {}
    try:
        index = as_object(orjson.loads(content)) if isinstance(content, bytes) else None
    except orjson.JSONDecodeError:
        index = None
    if index is None or at(index, "version") != 1:
        raise ConfigError("secret.storage", f"The names of the stored secrets in {index_of(directory)} cannot be read.")
    return index


def check_name(name: str) -> None:
    """Raise `secret.invalid` if a secret cannot have this name."""
    if re.fullmatch(SECRET_NAME, name) is None:
        message = f"{name!r} is not a name of a secret: letters, digits, _, . and -, at most 100."
        raise InvalidRequest("secret.invalid", message)


def unknown_secret(name: str) -> NotFound:
    """Return the error for a name that no secret has."""
    return NotFound("secret.unknown", f'There is no secret "{name}".')


def _record(name: str, row: JsonObject) -> SecretRecord:
    place: SecretPlace = "keyring" if row.get("place") == "keyring" else "file"
    project, changed = as_text(row.get("project")), as_text(row.get("changed"))
    return SecretRecord(name, place, project, as_text(row.get("created")) or "", changed)


def _entry(name: str) -> str:
    return f"secret {name}"
