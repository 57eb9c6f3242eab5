"""Old versions of changed files, kept in the crib's home so that a change can be taken back byte for byte.

One file per change: a line of JSON that says what it is, then the old bytes. It is on disk before the change is.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import orjson

from toolcrib.config.files import content_digest, create_private, read_bytes
from toolcrib.config.values import as_object, as_text
from toolcrib.errors import NotFound
from toolcrib.model.json import JsonObject

KEPT = 20
"""Changes remembered per file."""


@dataclass(frozen=True, slots=True)
class Saved:
    """One remembered change: the old bytes (None: there was no file) and the version that replaced them."""

    record: Path
    content: bytes | None
    before: str | None
    after: str | None
    mode: int
    purpose: str | None = None


def remember(
    backups: Path, target: Path, before: bytes | None, after: bytes | None, mode: int, purpose: str | None = None
) -> None:
    """Save the bytes that are about to be replaced; `purpose` is what changes belong together by."""
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
    record = folder / f"{number:08d}.undo"
    create_private(record, orjson.dumps(head) + b"\n" + (before or b""))
    for old in known[: max(0, len(known) + 1 - KEPT)]:
        old.unlink(missing_ok=True)


def last(backups: Path, target: Path, now: str | None) -> Saved | None:
    """The last change that happened. A record of one that did not (the process died before) is dropped."""
    for record in reversed(_records(_folder(backups, target))):
        saved = _load(record)
        if saved is not None and (saved.after == now or saved.before != now):
            return saved
        forget_record(record)
    return None


def made_for(backups: Path, target: Path, now: str | None, purpose: str) -> tuple[Saved, ...]:
    """The last changes, newest first, as far back as all were made for this purpose and nobody else came between."""
    chain: list[Saved] = []
    for record in reversed(_records(_folder(backups, target))):
        saved = _load(record)
        if saved is not None and saved.after != now == saved.before:
            continue  # it never happened
        if saved is None or saved.after != now or saved.purpose != purpose:
            break
        chain.append(saved)
        now = saved.before
    return tuple(chain)


def last_changed(backups: Path) -> Path:
    """The file that was changed last. Raises `config.nothing_to_undo`."""
    records = [record for folder in backups.glob("*/") for record in _records(folder)]
    for record in sorted(records, key=_written_at, reverse=True):
        head, _ = _head(record)
        file = as_text(head.get("file")) if head is not None else None
        if file is not None:
            return Path(file)
    raise NotFound("config.nothing_to_undo", "There is no change to undo.")


def forget(saved: Saved) -> None:
    """Drop a change that was taken back."""
    forget_record(saved.record)


def forget_record(record: Path) -> None:
    """Remove one record; its folder too when it was the last."""
    record.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        record.parent.rmdir()


def _folder(backups: Path, target: Path) -> Path:
    return backups / hashlib.sha256(str(target).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _records(folder: Path) -> list[Path]:
    return sorted(record for record in folder.glob("*.undo") if record.stem.isdecimal())


def _make_private(folder: Path) -> None:
    """Make a directory that its owner, and nobody else, can use, whatever the umask."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)


def _written_at(record: Path) -> int:
    try:
        return record.stat().st_mtime_ns
    except FileNotFoundError:  # another process took the change back just now
        return 0


def _head(record: Path) -> tuple[JsonObject | None, bytes]:
    """What a record says of itself, and the bytes after it."""
    content = read_bytes(record)
    line, _, old = content.partition(b"\n") if isinstance(content, bytes) else (b"", b"", b"")
    try:
        return as_object(orjson.loads(line)), old
    except orjson.JSONDecodeError:
        return None, old


def _load(record: Path) -> Saved | None:
    head, old = _head(record)
    if head is None:
        return None
    before = head.get("before")
    if before is not None and content_digest(old) != before:
        return None
    content, mode = (old if before is not None else None), int(head.get("mode", 0o600))
    return Saved(record, content, before, head.get("after"), mode, as_text(head.get("purpose")))
