"""Puts a changed file on disk: whole or not at all, never over somebody else's change, always with a way back.

The order is: lock the directory, read, compare with the version the caller saw, save the old bytes, write a new file
beside the old one, flush it, look again whether the old one is still the one read, rename, flush the directory. A crash
at any point leaves the old file or the new one, and at worst a file beside it that the next writer sweeps away.
"""

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolcrib.config.edit import undo
from toolcrib.config.edit.lock import LOCK_SECONDS, locked
from toolcrib.config.files import Unreadable, content_digest, create_private, read_bytes
from toolcrib.errors import ConfigError, Conflict, Denied, NotFound

_SUFFIX = ".toolcrib.tmp"

ChangeBytes = Callable[[bytes | None], bytes | None]
"""From the bytes of a file (None: there is none) to its new bytes (None: it goes)."""


@dataclass(frozen=True, slots=True)
class Writing:
    """What a writer needs to know: the person's home, where old versions are kept, and which folder is private.

    `purpose` is noted with each change, and what an undo is bound to. `secret` says that what is written holds a
    secret, so that the file is nobody else's to read from then on.
    """

    home: Path
    backups: Path
    crib: Path | None = None
    lock_seconds: float = LOCK_SECONDS
    purpose: str | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a file. Versions are digests; None means that there was or is no file."""

    file: Path
    changed: bool
    before: str | None
    after: str | None


def change_file(path: Path, change: ChangeBytes, writing: Writing, expected: str | None = None) -> Change:
    """Change a file in one step. `expected` is the version the caller decided on; another one is a conflict.

    Raises `config.changed`, `config.locked`, `config.not_writable` or `config.link`, always before any change.
    """
    target = _target(path, writing)
    make_directory(target.parent, writing)
    with locked(target.parent, writing.lock_seconds):
        _sweep(target)
        _check_writable(target)
        before = _read(target)
        if expected is not None and _version(before) != expected:
            raise _changed(target)
        after = change(before)
        if after == before:
            return Change(target, False, _version(before), _version(before))
        mode = _mode(target, writing)
        undo.remember(writing.backups, target, before, after, mode, writing.purpose)
        replace_file(target, after, mode & 0o600 if writing.secret else mode, before)
        return Change(target, True, _version(before), _version(after))


def undo_change(path: Path, writing: Writing) -> Change:
    """Bring the bytes back that the last change replaced, or all that the last changes for one purpose did.

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
        return Change(target, True, _version(now), _version(oldest.content))


def content_before(path: Path, writing: Writing) -> bytes | None:
    """What `undo_change` would bring back; None if it would remove the file. Raises as that does."""
    target = _target(path, writing)
    return _last_changes(target, _read(target), writing)[-1].content


def _last_changes(target: Path, now: bytes | None, writing: Writing) -> tuple[undo.Saved, ...]:
    if writing.purpose is not None:
        chain = undo.made_for(writing.backups, target, _version(now), writing.purpose)
    else:
        last = undo.last(writing.backups, target, _version(now))
        chain = (last,) if last is not None else ()
    if not chain:
        raise _nothing_to_undo(target)
    if chain[0].after != _version(now):
        raise _changed(target)
    return chain


def replace_file(target: Path, content: bytes | None, mode: int, seen: bytes | None) -> None:
    """Put new bytes in place of those `seen`, in one step; None removes the file. The caller holds the lock."""
    if content is None:
        if _read(target) != seen:
            raise _changed(target)
        target.unlink(missing_ok=True)
        _flush_directory(target.parent)
        return
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        create_private(beside, content, mode)
        if _read(target) != seen:
            raise _changed(target)
        beside.replace(target)
    except OSError as error:
        raise _not_writable(target, error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    _flush_directory(target.parent)


def make_directory(directory: Path, writing: Writing) -> None:
    """Make the directories of a new file; private ones under the crib's own."""
    private = writing.crib is not None and directory.is_relative_to(writing.crib)
    try:
        for missing in reversed([each for each in (directory, *directory.parents) if not each.exists()]):
            missing.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    except OSError as error:
        raise _not_writable(directory, error.strerror or str(error)) from error


def _target(path: Path, writing: Writing) -> Path:
    """The file that is really changed: a link is followed only to a file of the same person in their home."""
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
    """Refuse before anything happens what would fail, or should, later."""
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


def _mode(target: Path, writing: Writing) -> int:
    """The file's own mode; private if it is new or the crib's own."""
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
    """Remove what an interrupted write of this file left; under the lock no other one is under way."""
    for left in target.parent.glob(f".{_glob_quoted(target.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            left.unlink()


def _glob_quoted(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _nothing_to_undo(target: Path) -> NotFound:
    return NotFound("config.nothing_to_undo", f"There is no change of {target} to undo.")


def _changed(target: Path) -> Conflict:
    return Conflict("config.changed", f"{target} was changed by another program in the meantime.")


def _not_writable(target: Path, reason: str) -> ConfigError:
    return ConfigError("config.not_writable", f"{target} cannot be changed: {reason}.")
