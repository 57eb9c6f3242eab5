"""Checks whether a module may be run: it gets all rights of the crib, so no other user may have write access to it.

Must never read the file itself, only its metadata.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from toolcrib.model.errors import ConfigError

_LARGEST = 4 * 1024 * 1024


def check_module(path: Path) -> Path:
    """Return the file to run for a module or package.

    Raises `ConfigError` (`tool.module`) if it is not a regular file, too large, or writable by others, `OSError` if it
    cannot be accessed.
    """
    for place in _tree(path):
        _check_writers(place)
    main = path if path.name.endswith(".py") else path / "__init__.py"
    info = main.stat()
    if not stat.S_ISREG(info.st_mode):
        hint = "Put a Python file in its place, or begin its name with `_`."
        raise ConfigError("tool.module", f"`{main.name}` is not a file.", hint)
    if info.st_size > _LARGEST:
        hint = "Keep data in files of its own."
        raise ConfigError("tool.module", f"`{main.name}` is larger than {_LARGEST // 1024 // 1024} MiB.", hint)
    return main


def _tree(path: Path) -> Iterator[Path]:
    """Yield the real folder of a module, the module, and all files of a package, since any of them may be imported."""
    real = Path(os.path.realpath(path, strict=True))
    yield real.parent
    yield real
    for folder, folders, files in os.walk(real):
        yield from (Path(os.path.realpath(Path(folder, name), strict=True)) for name in (*folders, *files))


if sys.platform == "win32":

    def _check_writers(place: Path) -> None:
        """Do nothing: Windows has no such mode bits; the home is protected as a whole."""

else:
    import grp
    import pwd

    def _check_writers(place: Path) -> None:
        """Raise `ConfigError` if anyone but the user and root may write to a file or folder."""
        info = place.stat()
        if info.st_uid not in (os.geteuid(), 0):
            raise ConfigError("tool.module", f"`{place}` belongs to another user.", "Copy it, so that it is yours.")
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX  # others may add files, not replace them
        others = info.st_mode & stat.S_IWOTH or (info.st_mode & stat.S_IWGRP and not _is_own_group(info.st_gid))
        if others and not sticky:
            raise ConfigError("tool.module", f"Other users may write to `{place}`.", f"Run `chmod go-w '{place}'`.")

    def _is_own_group(group_id: int) -> bool:
        """Return whether a group is the user's private group, which many systems make new files writable for."""
        try:
            group, user = grp.getgrgid(group_id), pwd.getpwuid(os.geteuid())
        except KeyError:
            return False
        return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
