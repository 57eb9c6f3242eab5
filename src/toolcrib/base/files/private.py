"""Private files: owned by this user with mode 0600, regardless of the umask and of links.

`write_beside` is the first half of every atomic write; renaming its file is the second.
"""

import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from toolcrib.model.errors import ConfigError, Unavailable

PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for opening such a file: does not follow links or block on pipes."""


def claim(path: Path) -> None:
    """Ensure that `path` is a regular file of this user with mode 0600; creates an empty file if it is missing.

    An existing file is never opened: closing a second descriptor would drop the locks that SQLite holds on it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        check(path)
    except OSError as error:
        raise Unavailable("database.unavailable", f"{path} cannot be created: {error.strerror}.") from error
    else:
        if sys.platform != "win32":
            os.fchmod(descriptor, 0o600)
        os.close(descriptor)


def check(path: Path) -> None:
    """Raise `file.unsafe` unless this is a regular file of this user; set its mode to 0600."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError("file.unsafe", f"{path} is not a plain file.")
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            raise ConfigError("file.unsafe", f"{path} belongs to another user (uid {status.st_uid}).")
        if stat.S_IMODE(status.st_mode) != 0o600:
            path.chmod(0o600)


def create_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create a file and sync it to disk. It has mode 0600 until it is complete, then `mode`."""
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if sys.platform != "win32":
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def write_beside(path: Path, content: bytes, mode: int = 0o600, suffix: str = ".tmp") -> Path:
    """Create a temporary file next to `path`, to be renamed or linked to it. Raises `OSError` and leaves no file."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}{suffix}")
    try:
        create_private(beside, content, mode)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return beside


def replace_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a private file atomically; creates its folder if needed. Raises `OSError` and keeps the old file."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = write_beside(path, content, mode)
    try:
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
