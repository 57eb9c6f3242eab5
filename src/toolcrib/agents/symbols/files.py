"""Lists the source files of a directory, and detects changes.

In a git repository these are the tracked files and the untracked ones that are not ignored; elsewhere all files outside
directories such as `node_modules`. Symlinks are not followed.

Must never run a program that a repository configures: its content is untrusted.
"""

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.agents.symbols.languages import language_of

LARGEST_FILE: Final = 1024 * 1024
"""Larger files are most likely generated."""
MOST_FILES: Final = 20_000
MOST_WALKED: Final = 200_000
"""Limit on the directory entries visited outside git repositories."""
GIT_SECONDS: Final = 20.0
_SKIPPED: Final = frozenset(
    {"node_modules", "venv", "env", "__pycache__", "site-packages", "dist", "build", "out", "target", "vendor"}
)
# A repository's own configuration may name programs to run; listing files needs none of them.
_GIT_OPTIONS: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "submodule.recurse=false",
)
_KEPT: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_GIT_VARIABLES: Final = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file's modification time and size."""

    modified: int
    size: int


@dataclass(frozen=True, slots=True)
class Looked:
    """The source files of a directory by relative path; `skipped` counts the files over the limits."""

    stamps: Mapping[str, Stamp]
    skipped: int


async def look(root: Path, environment: Mapping[str, str]) -> Looked:
    """Return the current source files."""
    listed = await _of_git(root, environment)
    return await anyio.to_thread.run_sync(_stamp_files, root, listed)


async def _of_git(root: Path, environment: Mapping[str, str]) -> list[str] | None:
    """Return the files that git lists below a directory; None outside a repository or without git."""
    git = shutil.which("git", path=environment.get("PATH", os.defpath))
    if git is None:
        return None
    options = (part for option in _GIT_OPTIONS for part in ("-c", option))
    command = [git, *options, "-C", str(root), "ls-files", "-coz", "--exclude-standard", "--deduplicate"]
    with anyio.move_on_after(GIT_SECONDS):
        done = await anyio.run_process(
            command,
            env={name: environment[name] for name in _KEPT if name in environment} | _GIT_VARIABLES,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode == 0:
            return os.fsdecode(done.stdout).split("\0")
    return None


def _walk(root: Path) -> Iterator[str]:
    """Yield the files below a directory, except in skipped and hidden directories."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        inside = Path(folder).relative_to(root)
        yield from ((inside / name).as_posix() for name in sorted(names))


def _stamp_files(root: Path, listed: Iterable[str] | None) -> Looked:
    stamps: dict[str, Stamp] = {}
    skipped = 0
    for file in listed if listed is not None else islice(_walk(root), MOST_WALKED):
        if language_of(file) is None or not _is_plain(file):
            continue
        try:
            status = os.lstat(f"{root}/{file}")  # not a `Path`: this runs for every file on every query
        except OSError:  # deleted since it was listed
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        if len(stamps) >= MOST_FILES or status.st_size > LARGEST_FILE:
            skipped += 1
            continue
        stamps[file] = Stamp(status.st_mtime_ns, status.st_size)
    return Looked(stamps, skipped)


def read_bytes(path: Path) -> bytes:
    """Return a regular file's content. Raises `OSError` for other files, `ValueError` if it is too large."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("It is not a regular file.")
        content = stream.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"It is larger than {LARGEST_FILE} bytes.")
    return content


def digest_of(content: bytes) -> str:
    """Return a digest that identifies a version of a file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _is_plain(file: str) -> bool:
    """Return whether a path stays below its directory and is printable text."""
    return not file.startswith("/") and ".." not in file.split("/") and file.isprintable()
