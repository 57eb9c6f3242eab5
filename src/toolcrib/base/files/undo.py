"""Stores old versions of changed files in the crib's home, so that changes can be undone exactly.

Each change is one file: a line of JSON with metadata, then the old bytes. They are encrypted if the change removes
secrets. It is written to disk before the change.
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from toolcrib.base.files.private import create_private, replace_private
from toolcrib.base.files.reading import content_digest, read_bytes
from toolcrib.base.sealing import Sealer
from toolcrib.model.errors import ConfigError, NotFound
from toolcrib.model.json import JsonObject, as_object, as_text

GetSealer = Callable[[], Sealer]
KEPT = 20
"""Number of changes kept per file."""


@dataclass(frozen=True, slots=True)
class SavedVersion:
    """One saved change: the old bytes (None: there was no file) and the version that replaced them."""

    record: Path
    content: bytes | None
    before: str | None
    after: str | None
    mode: int
    purpose: str | None = None


def remember(
    backups: Path,
    target: Path,
    before: bytes | None,
    after: bytes | None,
    mode: int,
    purpose: str | None = None,
    *,
    sealer: GetSealer | None = None,
) -> None:
    """Save the bytes that are about to be replaced; changes with the same `purpose` belong together.

    With `sealer`, the bytes are encrypted.
    """
    folder = _folder(backups, target)
    _make_private(backups)
    _make_private(folder)
    known = _records(folder)
    number = int(known[-1].stem) + 1 if known else 1
    head: JsonObject = {
        "file": str(target),
        "before": content_digest(before) if before is not None else None,
        "after": content_digest(after) if after is not None else None,
        "mode": mode,
        "purpose": purpose,
    }
    saved = before or b""
    if sealer is not None:
        head["sealed"] = True
        saved = sealer().seal(saved)
    record = folder / f"{number:08d}.undo"
    create_private(record, orjson.dumps(head) + b"\n" + saved)
    for old in known[: max(0, len(known) + 1 - KEPT)]:
        old.unlink(missing_ok=True)


def seal_all(backups: Path, target: Path, sealer: GetSealer) -> None:
    """Encrypt the saved versions of a file that are not encrypted yet."""
    for record in _records(_folder(backups, target)):
        head, old = _head(record)
        if head is not None and head.get("sealed") is not True:
            replace_private(record, orjson.dumps({**head, "sealed": True}) + b"\n" + sealer().seal(old))


def last(backups: Path, target: Path, now: str | None, sealer: GetSealer | None = None) -> SavedVersion | None:
    """Return the last change. Records of changes that were never applied (the process died) are removed."""
    for record in reversed(_records(_folder(backups, target))):
        saved = _load(record, sealer)
        if saved is not None and (saved.after == now or saved.before != now):
            return saved
        forget_record(record)
    return None


def made_for(
    backups: Path, target: Path, now: str | None, purpose: str, sealer: GetSealer | None = None
) -> tuple[SavedVersion, ...]:
    """Return the last consecutive changes made for this purpose, newest first, up to the first change by others."""
    chain: list[SavedVersion] = []
    for record in reversed(_records(_folder(backups, target))):
        saved = _load(record, sealer)
        if saved is not None and saved.after != now == saved.before:
            continue  # it was never applied
        if saved is None or saved.after != now or saved.purpose != purpose:
            break
        chain.append(saved)
        now = saved.before
    return tuple(chain)


def last_changed(backups: Path) -> Path:
    """Return the file that was changed last. Raises `config.nothing_to_undo`."""
    records = [record for folder in backups.glob("*/") for record in _records(folder)]
    for record in sorted(records, key=_written_at, reverse=True):
        head, _ = _head(record)
        file = as_text(head.get("file")) if head is not None else None
        if file is not None:
            return Path(file)
    raise NotFound("config.nothing_to_undo", "There is no change to undo.")


def forget(saved: SavedVersion) -> None:
    """Remove the record of an undone change."""
    forget_record(saved.record)


def forget_record(record: Path) -> None:
    """Remove a record, and its folder if it was the last one."""
    record.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        record.parent.rmdir()


def _folder(backups: Path, target: Path) -> Path:
    return backups / hashlib.sha256(str(target).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _records(folder: Path) -> list[Path]:
    return sorted(record for record in folder.glob("*.undo") if record.stem.isdecimal())


def _make_private(folder: Path) -> None:
    """Create a directory with mode 0700, regardless of the umask."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)


def _written_at(record: Path) -> int:
    try:
        return record.stat().st_mtime_ns
    except FileNotFoundError:  # another process has just undone the change
        return 0


def _head(record: Path) -> tuple[JsonObject | None, bytes]:
    """Return the metadata of a record, and the bytes after it."""
    content = read_bytes(record)
    line, _, old = content.partition(b"\n") if isinstance(content, bytes) else (b"", b"", b"")
    try:
        return as_object(orjson.loads(line)), old
    except orjson.JSONDecodeError:
        return None, old


def _load(record: Path, sealer: GetSealer | None) -> SavedVersion | None:
    head, old = _head(record)
    if head is None:
        return None
    before = head.get("before")
    if head.get("sealed") is True:
        if sealer is None:
            raise ConfigError("secret.storage", f"The old content of {head.get('file')} is encrypted.")
        old = sealer().unseal(old)
    if before is not None and content_digest(old) != before:
        return None
    content, mode = (old if before is not None else None), int(head.get("mode", 0o600))
    return SavedVersion(record, content, before, head.get("after"), mode, as_text(head.get("purpose")))
