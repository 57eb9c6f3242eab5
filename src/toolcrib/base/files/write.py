"""Writes changed files atomically, never over a concurrent change, and always with an undo record.

Order: lock the directory, read, compare with the version the caller saw, save the old bytes, write a new file beside
the old one, sync it, check that the old one is unchanged, rename, sync the directory. A crash at any point leaves the
old file or the new one, and at worst a temporary file that the next writer removes.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolcrib.base.files import undo
from toolcrib.base.files.lock import LOCK_SECONDS, locked
from toolcrib.base.files.private import write_beside
from toolcrib.base.files.reading import Unreadable, content_digest, read_bytes
from toolcrib.model.errors import ConfigError, Conflict, Denied, NotFound

_SUFFIX = ".toolcrib.tmp"

ChangeBytes = Callable[[bytes | None], bytes | None]
"""Maps the bytes of a file (None: it does not exist) to its new bytes (None: remove it)."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Paths and options for writing: the user's home, the undo directory, and the crib's private directory.

    `purpose` is stored with each change and limits what an undo reverts. `secret`: the content includes a secret, so
    the file becomes private. `removes_secrets`: this and all earlier versions are saved encrypted, with `sealer`.
    """

    home: Path
    backups: Path
    crib: Path | None = None
    lock_seconds: float = LOCK_SECONDS
    purpose: str | None = None
    secret: bool = False
    removes_secrets: bool = False
    sealer: undo.GetSealer | None = None


@dataclass(frozen=True, slots=True)
class FileChange:
    """The result of a write. Versions are digests; None means that there was or is no file."""

    file: Path
    changed: bool
    before: str | None
    after: str | None


def change_file(path: Path, change: ChangeBytes, writing: WriteContext, expected: str | None = None) -> FileChange:
    """Change a file atomically. `expected` is the version the caller saw; any other version is a conflict.

    Raises `config.changed`, `config.locked`, `config.not_writable` or `config.link`, always before any change.
    """
    target = _target(path, writing)
    make_directory(target.parent, writing)
    with locked(target.parent, writing.lock_seconds):
        _sweep(target)
        _check_writable(target)
        before = _read(target)
        if expected is not None and _version(before) != expected:
            raise _changed_error(target)
        after = change(before)
        if after == before:
            return FileChange(target, False, _version(before), _version(before))
        mode = _mode(target, writing)
        sealer = writing.sealer if writing.removes_secrets else None
        undo.remember(writing.backups, target, before, after, mode, writing.purpose, sealer=sealer)
        replace_file(target, after, mode & 0o600 if writing.secret else mode, before)
        if sealer is not None:
            undo.seal_all(writing.backups, target, sealer)
        return FileChange(target, True, _version(before), _version(after))


def undo_change(path: Path, writing: WriteContext) -> FileChange:
    """Undo the last change, or all consecutive changes for the given purpose.

    Raises `config.nothing_to_undo`, and `config.changed` if the file was changed by others since.
    """
    target = _target(path, writing)
    if not target.parent.is_dir():
        raise _nothing_to_undo(target)
    with locked(target.parent, writing.lock_seconds):
        _sweep(target)
        _check_writable(target)
        now = _read(target)
        taken_back = _last_changes(target, now, writing)
        oldest = taken_back[-1]
        replace_file(target, oldest.content, oldest.mode, now)
        for saved in taken_back:
            undo.forget(saved)
        return FileChange(target, True, _version(now), _version(oldest.content))


def content_before(path: Path, writing: WriteContext) -> bytes | None:
    """Return the content that `undo_change` would restore; None if it would remove the file. Raises the same errors."""
    target = _target(path, writing)
    return _last_changes(target, _read(target), writing)[-1].content


def _last_changes(target: Path, now: bytes | None, writing: WriteContext) -> tuple[undo.SavedVersion, ...]:
    if writing.purpose is not None:
        chain = undo.made_for(writing.backups, target, _version(now), writing.purpose, writing.sealer)
    else:
        last = undo.last(writing.backups, target, _version(now), writing.sealer)
        chain = (last,) if last is not None else ()
    if not chain:
        raise _nothing_to_undo(target)
    if chain[0].after != _version(now):
        raise _changed_error(target)
    return chain


def replace_file(target: Path, content: bytes | None, mode: int, seen: bytes | None) -> None:
    """Replace the bytes `seen` atomically; None removes the file. The caller holds the lock."""
    if content is None:
        if _read(target) != seen:
            raise _changed_error(target)
        target.unlink(missing_ok=True)
        _flush_directory(target.parent)
        return
    try:
        beside = write_beside(target, content, mode, _SUFFIX)
        try:
            if _read(target) != seen:
                raise _changed_error(target)
            beside.replace(target)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except OSError as error:
        raise _not_writable(target, error.strerror or str(error)) from error
    _flush_directory(target.parent)


def make_directory(directory: Path, writing: WriteContext) -> None:
    """Create the directories for a new file; private ones inside the crib's directory."""
    private = writing.crib is not None and directory.is_relative_to(writing.crib)
    try:
        for missing in reversed([each for each in (directory, *directory.parents) if not each.exists()]):
            missing.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    except OSError as error:
        raise _not_writable(directory, error.strerror or str(error)) from error


def _target(path: Path, writing: WriteContext) -> Path:
    """Return the file to change. A link is only followed to a file of the same user in their home."""
    parent = path.absolute().parent
    named = (parent.resolve() if parent.exists() else parent) / path.name
    if not named.is_symlink():
        return named
    try:
        real = named.resolve(strict=True)
        owner = real.stat().st_uid
    except (OSError, RuntimeError):
        raise Denied("config.link", f"{path} is a link that leads nowhere, so it is not changed.") from None
    if not real.is_relative_to(writing.home.resolve()):
        raise Denied("config.link", f"{path} is a link to {real}, outside your home, so it is not changed.")
    if sys.platform != "win32" and owner != os.geteuid():
        raise Denied("config.link", f"{path} is a link to {real}, which is not yours, so it is not changed.")
    return real


def _check_writable(target: Path) -> None:
    """Raise `config.not_writable` before anything is changed."""
    directory = target.parent
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _not_writable(target, f"the directory {directory} is read-only")
    try:
        status = target.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise _not_writable(target, "it is not a file")
    if sys.platform != "win32" and status.st_uid != os.geteuid():
        raise _not_writable(target, "it belongs to another user")
    if not status.st_mode & stat.S_IWUSR or not os.access(target, os.W_OK):
        raise _not_writable(target, "it is read-only")


def _read(target: Path) -> bytes | None:
    content = read_bytes(target)
    if isinstance(content, Unreadable):
        raise ConfigError(content.problem.code, content.problem.message)
    return content


def _version(content: bytes | None) -> str | None:
    return content_digest(content) if content is not None else None


def _mode(target: Path, writing: WriteContext) -> int:
    """Return the mode of the file; 0600 if it is new or belongs to the crib."""
    own = writing.crib is not None and target.is_relative_to(writing.crib)
    try:
        return 0o600 if own else stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o600


def _flush_directory(directory: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove temporary files of interrupted writes; the lock excludes other writers."""
    for left in target.parent.glob(f".{_glob_quoted(target.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            left.unlink()


def _glob_quoted(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _nothing_to_undo(target: Path) -> NotFound:
    return NotFound("config.nothing_to_undo", f"There is no change of {target} to undo.")


def _changed_error(target: Path) -> Conflict:
    return Conflict("config.changed", f"{target} was changed by another program in the meantime.")


def _not_writable(target: Path, reason: str) -> ConfigError:
    return ConfigError("config.not_writable", f"{target} cannot be changed: {reason}.")
