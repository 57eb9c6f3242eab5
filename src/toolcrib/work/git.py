"""git, as far as work tasks need it: a worktree with a branch of its own, what was done there kept, the difference.

An agent may have written to what git reads, and much of that names programs. So git runs without hooks, filters,
prompts and fetching, without the user's or the machine's configuration, and with no variables but a few of ours; in a
worktree that an agent has worked in it is told where its state is, and follows no `.git` that lies there.

Above: `work`. It must never run a program that a repository names, and never touch the working tree, the index or the
current branch of the user.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.errors import InvalidRequest, Unavailable
from toolcrib.settings import Environment

SECONDS: Final = 120.0
_LONGEST_DIFF: Final = 10_000
_LONGEST_WORDS: Final = 500
_SETTINGS: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "diff.ignoreSubmodules=all",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.name=Toolcrib",
    "user.email=toolcrib@localhost",
)


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository as seen from a directory: the top of its working tree, where in it that is, the current commit."""

    top: Path
    inside: Path
    commit: str


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree; `git_dir` is where git keeps the state of it, in the repository."""

    path: Path
    git_dir: Path


class Git:
    """Runs git."""

    def __init__(self, environment: Environment) -> None:
        path = environment.get("PATH")
        self._variables = {
            "PATH": path if path else os.defpath,
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
        }

    async def find(self, directory: str) -> Repository:
        """The repository around a directory; raises `work.not_a_repository`."""
        path = await anyio.Path(directory).resolve()
        if not path.is_absolute() or not await path.is_dir():
            raise InvalidRequest("work.not_a_repository", f"{directory} is not a directory.")
        try:
            top = Path((await self._run("-C", str(path), "rev-parse", "--show-toplevel")).strip())
        except _Failed as error:
            raise InvalidRequest("work.not_a_repository", f"{directory} is not in a git repository: {error}") from None
        try:
            commit = (await self._run("-C", str(top), "rev-parse", "--verify", "--quiet", "HEAD^{commit}")).strip()
        except _Failed:
            raise InvalidRequest("work.not_a_repository", f"The repository {top} has no commit yet.") from None
        real = await anyio.Path(top).resolve()
        return Repository(top, Path(path.relative_to(real)), commit)

    async def add_worktree(self, repository: Repository, path: Path, branch: str) -> Worktree:
        """Make a worktree at the repository's current commit, on a new branch."""
        await anyio.Path(path.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        top = str(repository.top)
        arguments = ("worktree", "add", "--quiet", "--no-track", "-b", branch, str(path), repository.commit)
        await self._try("-C", top, *arguments, variables=await self._filters("-C", top))
        kept = await self._try("-C", str(path), "rev-parse", "--absolute-git-dir")
        return Worktree(path, Path(kept.strip()))

    async def keep(self, worktree: Worktree, message: str) -> str:
        """Commit all that differs in a worktree, and give the commit it is at then."""
        await self._in(worktree, "add", "--all")
        if await self._in(worktree, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"):
            await self._in(worktree, "commit", "--quiet", "--no-verify", "--message", message)
        return (await self._in(worktree, "rev-parse", "HEAD")).strip()

    async def difference(self, repository: str, base: str, commit: str) -> str:
        """What differs between two commits, in short; empty if nothing does."""
        text = await self._try(
            "-C", repository, "diff", "--stat=100", "--no-ext-diff", "--no-textconv", "--no-color", base, commit, "--"
        )
        return text.rstrip()[-_LONGEST_DIFF:]

    async def remove_worktree(self, repository: str, path: str) -> None:
        """Remove a worktree with its files; its branch stays."""
        try:
            await self._run("-C", repository, "worktree", "remove", "--force", "--force", path)
        except _Failed:  # the repository is gone, or does not know it any more
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(path, ignore_errors=True))

    async def remove_branch(self, repository: str, branch: str) -> None:
        """Remove a branch that nothing was done on."""
        await self._try("-C", repository, "branch", "--quiet", "-D", branch)

    async def _in(self, worktree: Worktree, *arguments: str) -> str:
        places = (f"--git-dir={worktree.git_dir}", f"--work-tree={worktree.path}", "-C", str(worktree.path))
        return await self._try(*places, *arguments, variables=await self._filters(*places))

    async def _filters(self, *places: str) -> dict[str, str]:
        """Variables that switch off every filter the configuration there names: each would be a program to run."""
        try:
            found = await self._run(*places, "config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        except _Failed:  # there are none
            return {}
        drivers = {key.rpartition(".")[0] for key in found.split("\0") if key}
        off = [
            (f"{driver}.{part}", value)
            for driver in sorted(drivers)
            for part, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        ]
        named = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(off)}
        values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(off)}
        return {"GIT_CONFIG_COUNT": str(len(off)), **named, **values}

    async def _try(self, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        try:
            return await self._run(*arguments, variables=variables)
        except _Failed as error:
            raise Unavailable("work.git", f"git failed: {error}") from None

    async def _run(self, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        options = [part for setting in _SETTINGS for part in ("-c", setting)]
        environment = {**self._variables, **(variables or {})}
        try:
            with anyio.fail_after(SECONDS):
                done = await anyio.run_process(
                    ["git", *options, *arguments],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment,
                )
        except TimeoutError:
            raise Unavailable("work.git", f"git did not end within {SECONDS:g} s.") from None
        except OSError as error:
            raise Unavailable("work.git", f"git cannot be run: {error.strerror}.", "Install git.") from None
        if done.returncode:
            raise _Failed(" ".join(done.stderr.decode("utf-8", "replace").split())[-_LONGEST_WORDS:])
        return done.stdout.decode("utf-8", "replace")


class _Failed(Exception):
    """git said no; the text is its last words."""
