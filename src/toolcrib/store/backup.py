"""Backups of a SQLite database: one file with a consistent copy and related files, verified when written.

A backup is a ZIP archive with `manifest.json`, `toolcrib.db` and the files the caller adds, such as sealed audit
records. It uses SQLite's online backup, so the crib keeps running. The database contains no token secrets, and neither
the owner's token nor sign-ins are in a backup.

Must never replace a backup by an incomplete one.
"""

import contextlib
import hashlib
import os
import secrets
import sqlite3
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

import orjson

from toolcrib.base.files.private import PLAIN
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.store.schema import REVISIONS

DATABASE: Final = "toolcrib.db"
_MANIFEST: Final = "manifest.json"
_VERSION: Final = 1
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup: when it was made, its schema revision, and its newest audit record."""

    file: str
    at: str
    revision: str
    number: int
    hash: str
    bytes: int

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "file": self.file,
            "at": self.at,
            "revision": self.revision,
            "record": self.number,
            "bytes": self.bytes,
        }


def write_backup(database: Path, to: Path, extra: Mapping[str, Path]) -> Backup:
    """Write a backup of a database and of files, by their names in the archive. Blocking.

    Raises `Conflict` (`backup.exists`), `Unavailable` (`database.damaged`, `backup.failed`).
    """
    if os.path.lexists(to):
        raise Conflict("backup.exists", f"{to} already exists.")
    mark = secrets.token_hex(8)
    copy, archive = (to.with_name(f".{to.name}.{mark}.{kind}.tmp") for kind in ("db", "zip"))
    try:
        revision, number, digest = _copy(database, copy)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        files = {DATABASE: copy, **{name: path for name, path in extra.items() if path.is_file()}}
        manifest: JsonObject = {
            "toolcribBackup": _VERSION,
            "at": at,
            "revision": revision,
            "record": {"number": number, "hash": digest},
            "files": {name: _digest(path) for name, path in files.items()},
        }
        _pack(archive, manifest, files)
        to.hardlink_to(archive)  # unlike a rename, a link never replaces a file created concurrently
    except OSError as error:
        message = f"The backup {to} cannot be written: {error.strerror or error}."
        raise Unavailable("backup.failed", message) from error
    finally:
        for left in (copy, archive):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
    return Backup(str(to), at, revision, number, digest, to.stat().st_size)


def _copy(database: Path, to: Path) -> tuple[str, int, str]:
    """Copy a consistent snapshot of a database; return its revision and its newest audit record."""
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=10)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
            return looked_into(target, str(database))
    except sqlite3.Error as error:
        raise damaged(str(database), str(error)) from error


def looked_into(connection: sqlite3.Connection, place: str) -> tuple[str, int, str]:
    """Check the integrity of a database; return its revision and newest audit record. Raises `database.damaged`."""
    try:
        wrong = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
        if wrong:
            raise damaged(place, wrong[0])
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        row = connection.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise damaged(place, str(error)) from error
    number, digest = row if row is not None else (0, "0" * 64)
    return str(revision), int(number), str(digest)


def damaged(place: str, reason: str) -> Unavailable:
    """Return the error for a database that is damaged."""
    return Unavailable("database.damaged", f"The database {place} is damaged: {' '.join(reason.split())[:300]}.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pack(archive: Path, manifest: JsonObject, files: Mapping[str, Path]) -> None:
    descriptor = os.open(archive, os.O_RDWR | os.O_CREAT | os.O_EXCL | PLAIN, 0o600)
    with os.fdopen(descriptor, "w+b") as raw:
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            packed.writestr(_MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            for name, path in files.items():
                packed.write(path, name)
        raw.flush()
        os.fsync(raw.fileno())


def read_backup(file: Path) -> Backup:
    """Read the manifest of a backup. Blocking. Raises `InvalidRequest` (`backup.invalid`)."""
    try:
        with zipfile.ZipFile(file) as packed:
            manifest: Json = orjson.loads(packed.read(_MANIFEST))
        size = file.stat().st_size
    except (OSError, KeyError, zipfile.BadZipFile, orjson.JSONDecodeError, NotImplementedError) as error:
        raise InvalidRequest("backup.invalid", f"{file} is not a backup of Toolcrib: {error}.") from error
    match manifest:
        case {
            "toolcribBackup": 1,
            "at": str(at),
            "revision": str(revision),
            "record": {"number": int(number), "hash": str(digest)},
        }:
            return Backup(str(file), at, revision, number, digest, size)
        case _:
            raise InvalidRequest("backup.invalid", f"{file} was not made by a supported version of Toolcrib.")


def unpack_backup(file: Path, folder: Path) -> Backup:
    """Unpack a backup into an empty private folder, and verify every file in it. Blocking.

    Raises `InvalidRequest` (`backup.invalid`), `ConfigError` (`database.newer`), `Unavailable` (`database.damaged`).
    """
    backup = read_backup(file)
    if backup.revision not in REVISIONS:
        raise ConfigError("database.newer", f"The backup has revision {backup.revision!r}; upgrade Toolcrib first.")
    try:
        with zipfile.ZipFile(file) as packed:
            for name, digest in _read_manifest(packed).items():
                _unpack(packed, name, digest, folder / name)
    except (OSError, KeyError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise InvalidRequest("backup.invalid", f"{file} cannot be unpacked: {error}.") from error
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        looked_into(connection, f"in {file}")
    return backup


def _read_manifest(packed: zipfile.ZipFile) -> dict[str, str]:
    """Return the files in the manifest with their digests. Raises `backup.invalid` for a path outside the folder."""
    manifest: Json = orjson.loads(packed.read(_MANIFEST))
    files = manifest.get("files") if is_object(manifest) else None
    if not is_object(files) or DATABASE not in files:
        raise InvalidRequest("backup.invalid", "The manifest of the backup does not name a database.")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
            raise InvalidRequest("backup.invalid", f"The backup names a file outside of it: {name!r}.")
    return {name: str(digest) for name, digest in files.items()}


def _unpack(packed: zipfile.ZipFile, name: str, digest: str, to: Path) -> None:
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = hashlib.sha256()
    with (
        packed.open(name) as source,
        os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600), "wb") as target,
    ):
        while piece := source.read(_PIECE):
            found.update(piece)
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    if found.hexdigest() != digest:
        raise InvalidRequest("backup.invalid", f"{name} in the backup does not match its checksum.")
