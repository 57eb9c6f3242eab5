"""Private files: ours alone, whatever the umask and whoever put a link in their place."""

import os
import stat
import sys
from pathlib import Path

from toolcrib.errors import ConfigError, Unavailable

PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for opening such a file: no link is followed, no pipe waited for."""


def claim(path: Path) -> None:
    """Make sure that `path` is a plain file of this user with mode 0600; creates it empty if it is missing.

    An existing file is never opened: closing a second descriptor of it would drop the locks SQLite holds on it.
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
    """Refuse what is not a plain file of this user; take everybody else's rights away."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError("file.unsafe", f"{path} is not a plain file.")
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            raise ConfigError("file.unsafe", f"{path} belongs to another user (uid {status.st_uid}).")
        if stat.S_IMODE(status.st_mode) != 0o600:
            path.chmod(0o600)
