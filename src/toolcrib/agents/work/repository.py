"""Locates a git repository and reads its metadata without running git in it.

git applies the configuration of the repository it runs in, and that configuration, with everything it includes, may
name programs. So git never sees it: `neutral` creates a substitute for the common directory (`GIT_COMMON_DIR`), with
our own configuration and links to the repository's references. The repository's hooks, filters, drivers, includes and
worktree configuration do not exist there.

Must never run a program, and never follow a `.git` file to a repository that does not know this working tree.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SMALL: Final = 4_096
"""Bytes; enough for git's one-line files."""
_LINKED: Final = ("refs", "packed-refs", "shallow", "logs")
"""What git reads and writes in the repository itself; objects are located by an environment variable."""


class NotARepository(Exception):
    """Raised if a directory is not in a usable repository; the text is the reason."""


@dataclass(frozen=True, slots=True)
class GitPlace:
    """Where a repository is: the top of the working tree, its git directory, and the shared common directory."""

    top: Path
    git_dir: Path
    common: Path


def locate(directory: Path) -> GitPlace:
    """Return the repository that contains a resolved directory; raises `NotARepository`."""
    for top in (directory, *directory.parents):
        marker = top / ".git"
        if not os.path.lexists(marker):
            continue
        if ".git" in directory.relative_to(top).parts:
            break
        git_dir = marker.resolve() if marker.is_dir() else _named_by(marker)
        common = _common(git_dir)
        if not (common / "objects").is_dir() or not (git_dir / "HEAD").is_file():
            raise NotARepository(f"{marker} is not a repository")
        return GitPlace(top, git_dir, common)
    raise NotARepository("no .git was found in it or above it")


def _named_by(marker: Path) -> Path:
    """Return the directory that a `.git` file names, if it belongs to a linked worktree or a submodule.

    Any other could be an unrelated repository, whose content would be checked out here.
    """
    words = _line(marker)
    if not words.startswith("gitdir:"):
        raise NotARepository(f"{marker} is not a repository")
    git_dir = (marker.parent / words.removeprefix("gitdir:").strip()).resolve()
    back = git_dir / "gitdir"
    if back.is_file() and (git_dir / _line(back)).resolve() == marker.resolve():
        return git_dir
    if any(git_dir.is_relative_to(above / ".git" / "modules") for above in marker.parent.resolve().parents):
        return git_dir
    raise NotARepository(f"{marker} names a repository that does not know this working tree")


def _common(git_dir: Path) -> Path:
    named = git_dir / "commondir"
    return (git_dir / _line(named)).resolve() if named.is_file() else git_dir


def _line(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_SMALL).decode("utf-8", "surrogateescape").strip()
    except OSError as error:
        raise NotARepository(f"{file} cannot be read: {error.strerror}") from None


@contextmanager
def neutral(common: Path, config: Mapping[str, str]) -> Generator[dict[str, str]]:
    """Yield the environment variables with which git uses only this configuration."""
    folder = Path(tempfile.mkdtemp(prefix="toolcrib-git-"))
    try:
        (folder / "config").write_text(_render_config(config), encoding="utf-8")
        for name in _LINKED:
            (folder / name).symlink_to(common / name)
        (folder / "info").mkdir()
        (folder / "info" / "exclude").symlink_to(common / "info" / "exclude")
        yield {"GIT_COMMON_DIR": str(folder), "GIT_OBJECT_DIRECTORY": str(common / "objects")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _render_config(config: Mapping[str, str]) -> str:
    """Render a configuration file; keys have two parts, values are single words."""
    lines = [f"[{key.partition('.')[0]}]\n\t{key.partition('.')[2]} = {value}\n" for key, value in config.items()]
    return "".join(lines)
