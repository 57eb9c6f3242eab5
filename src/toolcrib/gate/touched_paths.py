"""Resolve the paths that a call touches, and detect those that lead into the crib's home.

Whether a path is in the home is decided by the identity of directories (device and inode), not by name. This covers
links, other spellings, case-insensitive file systems and second mounts. A file with several names is compared with
every file in the home.

`policy.zones` defines the values and `policy.coding_tools` extracts the paths. Must never report a path as open that
was not looked up.
"""

import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import orjson

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.zones import NamedPath, TouchedPath, closed_paths, is_inside
from toolcrib.model.json import Json, JsonObject, canonical, is_array, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

_MOST_LINKS: Final = 40
_MOST_FILES: Final = 50_000
"""Entries of the home compared with a file of several names. In a larger home such a file counts as closed."""
_MOST_TEXTS: Final = 500
_LONGEST_PATH: Final = 4_096
# For the agent `/proc/self` is another process than for the crib, and so is everything its links lead to. On macOS
# `/.vol` names files by number.
_INDIRECT: Final = re.compile(
    r"/proc/(?:\d+|self|thread-self)/(?:task/\d+/)?(?:cwd|root|exe|fd|map_files)(?:/|$)|/\.vol/"
)


class _Identity(NamedTuple):
    device: int
    inode: int


class HomeGuard:
    """Finds the paths of calls that lead into the crib's home, if one is set.

    `work` holds the worktrees of work tasks, `user_home` is what `~` means to agents, and `programs` are the
    directories the crib itself runs from.
    """

    def __init__(
        self,
        root: Path | None = None,
        work: Path | None = None,
        user_home: Path | None = None,
        programs: Sequence[str] | None = None,
    ) -> None:
        user_home = user_home or Path.home()
        self._root = str(root or "")
        self._work = str(work or "")
        self._user_home = str(user_home)
        self._programs = _installation() if programs is None else tuple(programs)
        name = root.name.casefold() if root is not None else ""
        self._mark = orjson.dumps(name)[1:-1] if name.isascii() else b""
        self._spellings = tuple(_spellings(root, user_home)) if root is not None else ()

    def touched(self, ref: ToolRef, arguments: JsonObject, cwd: str | None) -> tuple[TouchedPath, ...]:
        """Return the paths that a call touches. For tools other than the coding agent's own, only the closed ones."""
        base = cwd or "/"
        if ref.server == coding_tools.SERVER:
            named = coding_tools.named_paths(ref.tool, arguments, base, self._user_home)
            found = tuple(self.look(each) for each in named)
            if ref.tool == coding_tools.COMMAND:
                return (*(each for each in found if each.closed is not None), *self._written_out(arguments))
            return found
        texts = (text for text, _ in zip(_texts(arguments), range(_MOST_TEXTS), strict=False))
        paths = dict.fromkeys(path for text in texts for path in coding_tools.readings(text, base, self._user_home))
        return tuple(each for each in map(self.look, map(NamedPath, paths)) if each.closed is not None)

    def is_closed(self, path: str, principal: Principal, *, is_tree: bool = False) -> bool:
        """Return whether the home closes a path for a principal; with `is_tree`, including everything below it.

        Actions of the owner by hand are never restricted.
        """
        if principal.by_hand:
            return False
        return bool(closed_paths((self.look(NamedPath(path, is_tree)),), principal.projects))

    def is_named(self, ref: ToolRef, params: JsonObject, principal: Principal) -> bool:
        """Return whether a request names the home and may not. Requests of the owner by hand are never restricted."""
        if principal.by_hand or not self.may_be_named(canonical(params)):
            return False
        return bool(closed_paths(self.touched(ref, params, principal.cwd), principal.projects))

    def may_be_named(self, encoded: bytes) -> bool:
        """Return whether the arguments could name the home. A cheap test that spares ordinary calls the file system."""
        if not self._root:
            return False
        lowered = encoded.lower()
        return not self._mark or self._mark in lowered or b"file:" in lowered

    def look(self, named: NamedPath) -> TouchedPath:
        """Resolve one path."""
        if named.path is None or "\0" in named.path:
            return TouchedPath(None)
        real, is_indirect = _resolve(named.path)
        if is_indirect:
            return TouchedPath(real, "indirect")
        home = _identity(self._root) if self._root else None
        if is_inside(real, self._root) or (home is not None and home in _chain(real)):
            return self._in_home(real)
        if named.is_tree and self._root and _identity(real) in set(_chain(self._root)):
            return TouchedPath(real, "around")
        is_linked = _has_names(real)
        closed = "inside" if is_linked and self._has_file(real) else None
        return TouchedPath(real, closed, is_linked=is_linked, is_program=self._is_program(real))

    def _is_program(self, real: str) -> bool:
        if any(is_inside(real, each) for each in self._programs):
            return True
        above = set(_chain(real))
        return any(_identity(each) in above for each in self._programs)

    def _in_home(self, real: str) -> TouchedPath:
        """Return a path in the home. A path in a worktree may belong to the project of its task."""
        if not is_inside(real, self._work) or real == self._work:
            return TouchedPath(real, "inside")
        worktree = str(PurePath(self._work, PurePath(real).relative_to(self._work).parts[0]))
        is_linked = _has_names(real)
        if is_linked and self._has_file(real):
            return TouchedPath(real, "inside")
        return TouchedPath(real, "inside", worktree, is_linked)

    def _has_file(self, path: str) -> bool:
        """Return whether the file is a file of the home, outside of worktrees, under another name."""
        wanted, home = _identity(path), _identity(self._root)
        if wanted is None or home is None or wanted.device != home.device:
            return False
        folders, seen = [self._root], 0
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        seen += 1
                        if entry.inode() == wanted.inode or seen > _MOST_FILES:
                            return True
                        if entry.is_dir(follow_symlinks=False) and entry.path != self._work:
                            folders.append(entry.path)
            except OSError:
                continue
        return False

    def _written_out(self, arguments: JsonObject) -> tuple[TouchedPath, ...]:
        """Return the home if a command names it in full. Its path may contain spaces, which split words."""
        command = arguments.get("command")
        if not isinstance(command, str):
            return ()
        plain = re.sub(r"""\\(?=\s)|["']""", "", command)
        plain = (
            re.sub(rf"{re.escape(self._work)}/[\w.-]+", "", plain) if self._work else plain
        )  # worktrees are looked up word by word
        is_named = any(re.search(rf"{re.escape(text)}(?![\w.-])", plain) for text in self._spellings)
        return (TouchedPath(self._root, "inside"),) if is_named else ()


def _installation() -> tuple[str, ...]:
    """Return the directories of the crib's own code, its libraries and its interpreter."""
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places.add(str(Path(__file__).parents[2]))
    if sys.prefix != sys.base_prefix:
        places.add(sys.prefix)
    return tuple(sorted(os.path.realpath(place) for place in places))


def _spellings(root: Path, user_home: Path) -> Iterator[str]:
    yield str(root)
    yield "$TOOLCRIB_HOME"
    yield "${TOOLCRIB_HOME}"
    for base in {user_home, user_home.resolve()}:
        if root.is_relative_to(base) and root != base:
            inner = root.relative_to(base).as_posix()
            yield from (f"{start}/{inner}" for start in ("~", "$HOME", "${HOME}"))


def _resolve(path: str) -> tuple[str, bool]:
    """Return the real path, and whether a link on the way depends on the process that follows it."""
    if os.name == "nt":
        return os.path.realpath(path), False
    pieces = [piece for piece in reversed(path.split("/")) if piece not in ("", ".")]
    current, links = "", 0
    while pieces:
        piece = pieces.pop()
        if piece in ("", "."):
            continue
        if piece == "..":
            current = current.rpartition("/")[0]
            continue
        current = f"{current}/{piece}"
        if _INDIRECT.match(f"{current}/"):
            return current, True
        try:
            target = os.readlink(current)  # noqa: PTH115 works on strings
        except (OSError, ValueError):
            continue
        links += 1
        if links > _MOST_LINKS:
            return current, True
        pieces += reversed(target.split("/"))
        current = "" if target.startswith("/") else current.rpartition("/")[0]
    return current or "/", False


def _chain(path: str) -> Iterator[_Identity]:
    """Yield the identities of a path and of every existing directory above it."""
    for each in (PurePath(path), *PurePath(path).parents):
        if (identity := _identity(str(each))) is not None:
            yield identity


def _identity(path: str) -> _Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116 works on strings
    except (OSError, ValueError):
        return None
    return _Identity(status.st_dev, status.st_ino) if status.st_ino else None


def _has_names(path: str) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116 works on strings
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _texts(value: Json) -> Iterator[str]:
    """Yield every string in the arguments, nested ones included, that could be a path as a whole."""
    rest: list[Json] = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            if 0 < len(each) <= _LONGEST_PATH and ("/" in each or each.startswith("~")) and "\0" not in each:
                yield each
        elif is_object(each):
            rest += each.values()
        elif is_array(each):
            rest += each
