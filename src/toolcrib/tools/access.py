"""Whether a module may be run: it will have all rights of the crib, so nobody else may be able to write to it.

Above: `load`. It reads what the file system says about a file, never the file.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from toolcrib.errors import ConfigError

_LARGEST = 4 * 1024 * 1024


def check_module(path: Path) -> Path:
    """The file to run for a module or package.

    Raises `ConfigError` (`tool.module`) if it is no plain file, too large, or open to others, `OSError` if it cannot
    be looked at.
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
    """The module with the folder it really lies in; of a package all files, since any of them may be imported."""
    real = Path(os.path.realpath(path, strict=True))
    yield real.parent
    yield real
    for folder, folders, files in os.walk(real):
        yield from (Path(os.path.realpath(Path(folder, name), strict=True)) for name in (*folders, *files))


if sys.platform == "win32":

    def _check_writers(place: Path) -> None:
        """Windows has no such bits; the home's own protection has to do."""

else:
    import grp
    import pwd

    def _check_writers(place: Path) -> None:
        """Raise if anybody but the user and root may write to a file or folder."""
        info = place.stat()
        if info.st_uid not in (os.geteuid(), 0):
            raise ConfigError("tool.module", f"`{place}` belongs to another user.", "Copy it, so that it is yours.")
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX  # others may add there, but not replace
        others = info.st_mode & stat.S_IWOTH or (info.st_mode & stat.S_IWGRP and not _is_own_group(info.st_gid))
        if others and not sticky:
            raise ConfigError("tool.module", f"Other users may write to `{place}`.", f"Run `chmod go-w '{place}'`.")

    def _is_own_group(group_id: int) -> bool:
        """Whether a group is the user's private one, which many systems make new files writable for."""
        try:
            group, user = grp.getgrgid(group_id), pwd.getpwuid(os.geteuid())
        except KeyError:
            return False
        return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
