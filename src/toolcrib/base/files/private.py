"""Private files: owned by this user with mode 0600, regardless of the umask and of links."""

import os
import stat
import sys
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
