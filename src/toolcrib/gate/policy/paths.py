"""Matches paths in conditions, regardless of how they are spelled.

`//etc/passwd`, `/var/../etc/passwd`, `/proc/self/root/etc/passwd`, `~/../../etc/passwd`, `file:///etc/passwd` and a
symbolic link all name the same file. Each argument is read in every way a tool may read it. If all readings agree, the
answer is yes or no; if they differ, or one is unknown, it is undetermined.

`Files` provides access to the file system: `LEXICAL` compares texts only, `REAL` resolves links. Must never raise.
"""

import os.path
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import unquote, urlsplit

from toolcrib.model.text import normalized

LONGEST_PATH = 4_096
_GLOB = re.compile(r"[*?\[]")
_UNKNOWN = re.compile(r"[\0$`]|^~[^/]")
"""A null byte, a shell variable or command substitution, or the home of another user."""
_PROCESS = re.compile(r"/(?:proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd|fd|map_files)|dev/fd)(?:/|$)")
"""Unresolved paths that lead elsewhere."""
_NAMES = frozenset({
    "path", "paths", "file", "files", "filepath", "filepaths", "filename", "filenames", "notebookpath",
    "directory", "directories", "dir", "dirs", "folder", "folders", "cwd", "workdir", "workingdirectory",
})  # fmt: skip
_ENDINGS = ("path", "paths", "directory", "dir", "file", "folder")
_LOOKS = re.compile(r"^(?:/|~|\.{1,2}/|file:)")


class Files(Protocol):
    """Access to the file system."""

    def real(self, path: str) -> str:
        """Return the path with all links resolved."""
        ...

    def same(self, one: str, other: str) -> bool:
        """Return whether both name the same existing file or directory."""
        ...


class _Lexical:
    """Compares texts without file access."""

    def real(self, path: str) -> str:
        return path

    def same(self, one: str, other: str) -> bool:
        return one == other


class _Real:
    """Uses the file system."""

    def real(self, path: str) -> str:
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path

    def same(self, one: str, other: str) -> bool:
        try:
            return Path(one).samefile(other)
        except (OSError, ValueError):
            return False


LEXICAL: Files = _Lexical()
REAL: Files = _Real()


def is_path_name(argument: str) -> bool:
    """Return whether an argument of this name usually holds a path."""
    plain = re.sub(r"[^a-z]", "", argument.lower())
    return plain in _NAMES or plain.endswith(_ENDINGS)


def looks_like_path(text: str) -> bool:
    """Return whether a text is written like a path."""
    return _LOOKS.match(text) is not None


def real_path(text: str, cwd: str | None, files: Files) -> str | None:
    """Return the real path if it differs from the text, or None if it does not or is unknown."""
    if not text or len(text) > LONGEST_PATH or "\0" in text or "\n" in text:
        return None
    path = unquote(urlsplit(text).path) if text.lower().startswith("file:") else text
    absolute = next(_absolute(path, cwd), None)
    if absolute is None:
        return None
    real = normal(files.real(absolute))
    as_written = path if path.startswith("/") else f"{cwd}/{path}"
    return None if real == as_written.rstrip("/") or real == "/" == as_written else real


def names_path(found: str, wanted: str, cwd: str | None, files: Files = LEXICAL) -> bool | None:
    """Return whether the path `found` is `wanted` or lies in it, or None if its readings differ.

    `wanted` is a directory or file. A trailing `/*` or `/**` excludes the directory itself; any other wildcard is
    matched as a glob against the normalised path.
    """
    readings = list(_readings(found, cwd, files))
    if not readings or None in readings:
        return None
    verdicts = {_is_in(each, wanted, files) for each in readings if each is not None}
    return verdicts.pop() if len(verdicts) == 1 else None


def _readings(text: str, cwd: str | None, files: Files) -> Iterator[str | None]:
    """Yield every absolute path that a tool may read this text as, None for an unknown one."""
    if not text or len(text) > LONGEST_PATH:
        yield None
        return
    if text.lower().startswith("file:"):
        text = unquote(urlsplit(text).path)
    if _UNKNOWN.search(text):
        yield None
        return
    for form in dict.fromkeys((text, normalized("NFC", text), normalized("NFKC", text))):
        for path in _absolute(form, cwd):
            yield from _resolve(path, files) if path is not None else (None,)


def _absolute(text: str, cwd: str | None) -> Iterator[str | None]:
    """Yield the text as an absolute path, not normalised, since the target of `..` depends on the links before it."""
    if text == "~" or text.startswith("~/"):
        yield f"{Path.home()}/{text[1:]}"
    elif text.startswith("/"):
        yield text
    elif cwd is None:
        yield None
    else:
        yield f"{cwd}/{text}"
        if text.startswith("../"):  # a tool with another working directory may end up at the root
            yield f"/{re.sub(r'^(?:[.]{1,2}/+)+', '', text)}"


def _resolve(path: str, files: Files) -> Iterator[str | None]:
    """Yield the target, the link itself, and the target for a tool that removes `..` before following links."""
    plain = normal(path)
    head, tail = os.path.split(plain)
    for each in (normal(files.real(path)), files.real(plain), normal(f"{files.real(head)}/{tail}")):
        yield None if _PROCESS.match(each) else each


def normal(path: str) -> str:
    """Return an absolute path without `.`, `..`, and doubled or trailing slashes."""
    return os.path.normpath(f"/{path.lstrip('/')}")


def _is_in(path: str, wanted: str, files: Files) -> bool:
    below_only = wanted.endswith(("/*", "/**"))
    base = re.sub(r"/\*{1,2}$", "", wanted) or "/"
    base = f"{Path.home()}{base[1:]}" if base == "~" or base.startswith("~/") else base
    if _GLOB.search(base):
        return fnmatchcase(path, wanted) or fnmatchcase(path, base + "/*")
    places = {normal(base), files.real(normal(base))}
    parts = PurePosixPath(path)
    above = [str(each) for each in parts.parents]
    if any(place in above for place in places) or (not below_only and str(parts) in places):
        return True
    # On case-insensitive file systems, and through mounts, the same location has several spellings.
    return any(files.same(each, normal(base)) for each in (above if below_only else [str(parts), *above]))
