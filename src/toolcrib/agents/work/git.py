"""The git operations of work tasks: create a worktree on its own branch, commit the work, compute the difference.

An agent may have written to everything that git reads. So git runs without the configuration of the repository, the
user and the machine (see `repository`), with a minimal environment, and never discovers a repository itself: its state,
working tree and common directory are always passed explicitly. `git worktree` would read the repository's
configuration, so its work is done here by hand.

Must never run a program that a repository names, and never touch the user's working tree, index or current branch.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.agents.work.repository import GitPlace, NotARepository, locate, neutral
from toolcrib.base.settings import Environment
from toolcrib.model.errors import InvalidRequest, Unavailable

SECONDS: Final = 120.0
_LONGEST_DIFF: Final = 10_000
_LONGEST_WORDS: Final = 500
_SETTINGS: Final = (
    f"core.hooksPath={os.devnull}",
    f"core.attributesFile={os.devnull}",
    f"core.excludesFile={os.devnull}",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "credential.helper=",
    "gpg.program=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "advice.addEmbeddedRepo=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.name=Toolcrib",
    "user.email=toolcrib@localhost",
)
_TAKEN_OVER: Final = {
    "core.repositoryformatversion": r"[01]",
    "extensions.objectformat": r"sha1|sha256",
    "core.filemode": r"true|false",
    "core.symlinks": r"true|false",
    "core.ignorecase": r"true|false",
    "core.precomposeunicode": r"true|false",
    "core.longpaths": r"true|false",
    "core.autocrlf": r"true|false|input",
    "core.eol": r"lf|crlf|native",
}
"""The repository settings that define how files are stored, with their allowed values."""


@dataclass(frozen=True, slots=True)
class GitRepository:
    """A repository seen from a directory: its location, the directory's path inside it, and the current commit."""

    place: GitPlace
    inside: Path
    commit: str

    @property
    def top(self) -> Path:
        """Return the top of the working tree."""
        return self.place.top


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree; `git_dir` is its state directory in the repository."""

    path: Path
    git_dir: Path

    @property
    def common(self) -> Path:
        """Return the common directory; `commondir` is not trusted, since an agent may have written it."""
        return self.git_dir.parent.parent


class Git:
    """Runs git."""

    def __init__(self, environment: Environment) -> None:
        path = environment.get("PATH")
        self._variables = {
            "PATH": path if path else os.defpath,
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_EDITOR": "false",
            "GIT_PAGER": "cat",
        }

    async def find(self, directory: str) -> GitRepository:
        """Return the repository that contains a directory; raises `work.not_a_repository`."""
        path = Path(await anyio.Path(directory).resolve())
        if not await anyio.Path(path).is_dir():
            raise InvalidRequest("work.not_a_repository", f"{directory} is not a directory.")
        try:
            place = await anyio.to_thread.run_sync(locate, path)
        except NotARepository as error:
            raise InvalidRequest("work.not_a_repository", f"{directory} is not in a git repository: {error}.") from None
        try:
            found = await self._run(place.git_dir, place.common, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except _Failed:
            message = f"The repository {place.top} has no commit yet."
            raise InvalidRequest("work.not_a_repository", message) from None
        return GitRepository(place, path.relative_to(place.top), found.strip())

    async def add_worktree(self, repository: GitRepository, path: Path, branch: str) -> Worktree:
        """Create a worktree at the repository's current commit, on a new branch."""
        worktree = Worktree(path, repository.place.common / "worktrees" / path.name)
        try:
            await anyio.to_thread.run_sync(_register, worktree, branch)
        except OSError as error:
            raise Unavailable("work.git", f"Could not create the worktree {path}: {error.strerror}.") from None
        try:
            await self._in(
                worktree, "update-ref", f"refs/heads/{branch}", repository.commit, "0" * len(repository.commit)
            )
            await self._in(worktree, "reset", "--quiet", "--hard", "HEAD")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_unregister, worktree)
            raise
        return worktree

    async def keep(self, worktree: Worktree, message: str) -> str:
        """Commit all changes in a worktree and return its current commit."""
        await self._in(worktree, "add", "--all")
        if await self._in(worktree, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"):
            await self._in(worktree, "commit", "--quiet", "--no-verify", "--message", message)
        return (await self._in(worktree, "rev-parse", "HEAD")).strip()

    async def difference(self, repository: str, base: str, commit: str) -> str:
        """Return the diffstat between two commits; empty if they do not differ."""
        place = await self._place(repository)
        options = (
            "--stat=100",
            "--find-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--ignore-submodules=all",
        )
        text = await self._try(place.git_dir, place.common, "diff-tree", "-r", *options, base, commit, "--")
        return text.rstrip()[-_LONGEST_DIFF:]

    async def remove_worktree(self, repository: str, path: str) -> None:
        """Remove a worktree with its files; its branch is kept."""
        try:
            place = await self._place(repository)
        except Unavailable:  # the repository is gone
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(path, ignore_errors=True))
            return
        worktree = Worktree(Path(path), place.common / "worktrees" / Path(path).name)
        await anyio.to_thread.run_sync(_unregister, worktree)

    async def remove_branch(self, repository: str, branch: str) -> None:
        """Delete a branch."""
        place = await self._place(repository)
        await self._try(place.git_dir, place.common, "update-ref", "-d", f"refs/heads/{branch}")

    async def tag(self, repository: str, name: str, message: str) -> None:
        """Add an annotated tag to the current commit of a repository, unless it exists."""
        place = (await self.find(repository)).place
        if not (await self._try(place.git_dir, place.common, "tag", "--list", name)).strip():
            await self._try(place.git_dir, place.common, "tag", "--annotate", "--message", message, name, "HEAD")

    async def tag_messages(self, repository: str, prefix: str) -> list[str]:
        """Return the subjects of the annotated tags with this prefix, sorted by tag name."""
        place = (await self.find(repository)).place
        pattern = f"refs/tags/{prefix}*"
        text = await self._try(place.git_dir, place.common, "for-each-ref", "--format=%(contents:subject)", pattern)
        return text.splitlines()

    async def _place(self, repository: str) -> GitPlace:
        try:
            return await anyio.to_thread.run_sync(locate, Path(await anyio.Path(repository).resolve()))
        except NotARepository as error:
            raise Unavailable("work.git", f"The repository {repository} cannot be used: {error}.") from None

    async def _in(self, worktree: Worktree, *arguments: str) -> str:
        return await self._try(worktree.git_dir, worktree.common, *arguments, work_tree=worktree.path)

    async def _try(self, git_dir: Path, common: Path, *arguments: str, work_tree: Path | None = None) -> str:
        try:
            return await self._run(git_dir, common, *arguments, work_tree=work_tree)
        except _Failed as error:
            raise Unavailable("work.git", f"git failed: {error}") from None

    async def _run(self, git_dir: Path, common: Path, *arguments: str, work_tree: Path | None = None) -> str:
        """Run git on a repository without exposing that repository's configuration to it."""
        config = await self._storage(common)
        with neutral(common, config) as shared:
            variables = {"GIT_DIR": str(git_dir), **shared}
            if work_tree is not None:
                variables["GIT_WORK_TREE"] = str(work_tree)
            options = [part for setting in _SETTINGS for part in ("-c", setting)]
            return await self._execute([*options, *arguments], variables, work_tree or git_dir)

    async def _storage(self, common: Path) -> dict[str, str]:
        """Return a repository's storage settings; its configuration is parsed, never applied."""
        listing = ("config", "--file", str(common / "config"), "--no-includes", "--null", "--list")
        try:
            # Not a repository, so that git does not look for one.
            found = await self._execute(listing, {"GIT_DIR": os.devnull}, Path(os.sep))
        except _Failed:
            return {}
        rows = (row.partition("\n")[::2] for row in found.split("\0") if row)
        given = {key.lower(): value for key, value in rows}
        if given.get("extensions.refstorage", "files") != "files":
            raise Unavailable(
                "work.git", "Work tasks do not support repositories with another reference storage format."
            )
        return {
            key: given[key].lower()
            for key, allowed in _TAKEN_OVER.items()
            if key in given and re.fullmatch(allowed, given[key].lower())
        }

    async def _execute(self, arguments: "list[str] | tuple[str, ...]", variables: Mapping[str, str], cwd: Path) -> str:
        try:
            with anyio.fail_after(SECONDS):
                done = await anyio.run_process(
                    ["git", *arguments],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd=cwd,
                    env={**self._variables, **variables},
                )
        except TimeoutError:
            raise Unavailable("work.git", f"git timed out after {SECONDS:g} s.") from None
        except OSError as error:
            raise Unavailable("work.git", f"git cannot be run: {error.strerror}.", "Install git.") from None
        if done.returncode:
            raise _Failed(" ".join(done.stderr.decode("utf-8", "replace").split())[-_LONGEST_WORDS:])
        return done.stdout.decode("utf-8", "replace")


def _register(worktree: Worktree, branch: str) -> None:
    """Write the files that link a repository and its worktree."""
    worktree.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    worktree.git_dir.parent.mkdir(exist_ok=True)
    worktree.git_dir.mkdir()
    worktree.path.mkdir(mode=0o700)
    (worktree.git_dir / "gitdir").write_text(f"{worktree.path / '.git'}\n", encoding="utf-8")
    (worktree.git_dir / "commondir").write_text("../..\n", encoding="utf-8")
    (worktree.git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="utf-8")
    (worktree.path / ".git").write_text(f"gitdir: {worktree.git_dir}\n", encoding="utf-8")


def _unregister(worktree: Worktree) -> None:
    """Remove a worktree and its registration, unless the registration belongs to another worktree."""
    back = worktree.git_dir / "gitdir"
    try:
        is_its = Path(back.read_text(encoding="utf-8").strip()) == worktree.path / ".git"
    except (OSError, UnicodeDecodeError):
        is_its = False
    shutil.rmtree(worktree.path, ignore_errors=True)
    if is_its:
        shutil.rmtree(worktree.git_dir, ignore_errors=True)


class _Failed(Exception):
    """git failed; the text is the end of its error output."""
