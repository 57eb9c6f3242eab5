"""Repositories that name programs in every place git knows: none of them runs while a work task begins and ends."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolcrib.agents.work.git import Git
from toolcrib.base.settings import Environment
from toolcrib.model.errors import InvalidRequest

pytestmark = pytest.mark.anyio

BRANCH = "toolcrib/t1"
HOOKS = ("post-checkout", "pre-commit", "post-commit", "commit-msg", "reference-transaction", "post-index-change")


class Trap:
    """A repository and a program that leaves a mark when it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = folder / "repo"
        self.mark = folder / "ran"
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\ntouch {self.mark}\ncat\n", encoding="utf-8")
        self.program.chmod(0o755)
        self.top.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("a.txt", "one\n")
        self.commit()

    def git(self, *arguments: str, top: Path | None = None) -> str:
        identity = ("-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always")
        command = ["git", "-C", str(top or self.top), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=self.variables).stdout

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text, encoding="utf-8")

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")
        self.mark.unlink(missing_ok=True)

    def config(self, text: str, file: str = ".git/config") -> None:
        with (self.top / file).open("a", encoding="utf-8") as stream:
            stream.write(text)

    def filtering(self, text: str) -> str:
        """A configuration with a filter that runs the program in every direction."""
        return f'[filter "evil"]\n\tsmudge = {self.program}\n\tclean = {self.program}\n{text}'


def filters(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.commit()
    trap.config(trap.filtering(""))


def required_process_filter(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.commit()
    trap.config(f'[filter "evil"]\n\tprocess = {trap.program}\n\trequired = true\n')


def include_for_worktrees(trap: Trap) -> None:
    """Only a working tree of a task has this configuration: what is read beforehand does not show it."""
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.commit()
    (trap.top / ".git" / "more").write_text(trap.filtering(""), encoding="utf-8")
    trap.config('[includeIf "gitdir:**/worktrees/**"]\n\tpath = more\n')


def include_for_branches(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.commit()
    (trap.top / ".git" / "more").write_text(trap.filtering(""), encoding="utf-8")
    trap.config('[includeIf "onbranch:toolcrib/**"]\n\tpath = more\n')


def include(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.write("shared.config", trap.filtering(""))
    trap.commit()
    trap.config(f"[include]\n\tpath = {trap.top}/shared.config\n")


def attributes_of_the_repository(trap: Trap) -> None:
    trap.config("* filter=evil\n", ".git/info/attributes")
    trap.config(trap.filtering(""))


def attributes_by_configuration(trap: Trap) -> None:
    trap.write("attributes", "* filter=evil\n")
    trap.config(trap.filtering(f"[core]\n\tattributesFile = {trap.top}/attributes\n"))


def worktree_configuration(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt filter=evil\n")
    trap.commit()
    trap.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (trap.top / ".git" / "config.worktree").write_text(trap.filtering(""), encoding="utf-8")
    state = trap.top / ".git" / "worktrees" / "t1"
    state.parent.mkdir()
    (trap.folder / "config.worktree").write_text(trap.filtering(""), encoding="utf-8")


def hooks(trap: Trap) -> None:
    for hook in HOOKS:
        (trap.top / ".git" / "hooks").mkdir(exist_ok=True)
        (trap.top / ".git" / "hooks" / hook).unlink(missing_ok=True)
        (trap.top / ".git" / "hooks" / hook).symlink_to(trap.program)


def hooks_elsewhere(trap: Trap) -> None:
    (trap.top / "hooks").mkdir()
    for hook in HOOKS:
        (trap.top / "hooks" / hook).symlink_to(trap.program)
    trap.config("[core]\n\thooksPath = hooks\n")
    trap.config(f"[core]\n\thooksPath = {trap.top}/hooks\n")


def file_system_monitor(trap: Trap) -> None:
    trap.config(f"[core]\n\tfsmonitor = {trap.program}\n")


def differences(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt diff=evil\n")
    trap.commit()
    trap.config(f'[diff]\n\texternal = {trap.program}\n[diff "evil"]\n\ttextconv = {trap.program}\n')


def merge_driver(trap: Trap) -> None:
    trap.write(".gitattributes", "*.txt merge=evil\n")
    trap.commit()
    trap.config(f'[merge "evil"]\n\tdriver = {trap.program} %A\n')


def signatures(trap: Trap) -> None:
    trap.config(f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {trap.program}\n")


def programs_of_the_user_interface(trap: Trap) -> None:
    keys = {
        "core": ("pager", "editor", "askPass", "sshCommand", "gitProxy", "alternateRefsCommand"),
        "pager": ("diff", "status"),
        "uploadpack": ("packObjectsHook",),
        "sequence": ("editor",),
    }
    for section, names in keys.items():
        trap.config(f"[{section}]\n" + "".join(f"\t{name} = {trap.program}\n" for name in names))
    trap.config(f"[credential]\n\thelper = !{trap.program}\n")
    trap.config("[alias]\n" + "".join(f"\t{name} = !{trap.program}\n" for name in ("add", "reset", "update-ref")))


def missing_objects(trap: Trap) -> None:
    """A partial clone whose server is a program."""
    trap.config(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
        f'[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\tpromisor = true\n\turl = ext::{trap.program}\n'
    )


def submodule(trap: Trap) -> None:
    inner = trap.top / "inner"
    inner.mkdir()
    trap.git("init", "--quiet", "--initial-branch=main", top=inner)
    trap.write("inner/b.txt", "two\n")
    trap.git("add", "--all", top=inner)
    trap.git("commit", "--quiet", "--message", "x", top=inner)
    trap.write(".gitmodules", f'[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tupdate = !{trap.program}\n')
    trap.commit()
    trap.config(f"[core]\n\tfsmonitor = {trap.program}\n", "inner/.git/config")
    trap.config("[submodule]\n\trecurse = true\n")
    trap.config(f'[submodule "inner"]\n\tactive = true\n\tupdate = !{trap.program}\n\turl = ./inner\n')


VECTORS: dict[str, Callable[[Trap], None]] = {
    vector.__name__: vector
    for vector in (
        filters, required_process_filter, include, include_for_worktrees, include_for_branches,
        attributes_of_the_repository, attributes_by_configuration, worktree_configuration, hooks, hooks_elsewhere,
        file_system_monitor, differences, merge_driver, signatures, programs_of_the_user_interface, missing_objects,
        submodule,
    )
}  # fmt: skip
HARMLESS = {
    "merge_driver", "programs_of_the_user_interface", "missing_objects", "submodule", "worktree_configuration",
}  # fmt: skip
"""What ordinary git does not run either with these commands; later versions might."""


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    yield Trap(tmp_path)


@pytest.mark.parametrize("name", VECTORS)
async def test_no_program_of_a_repository_runs_in_a_work_task(trap: Trap, name: str, tmp_path: Path) -> None:
    VECTORS[name](trap)
    trap.mark.unlink(missing_ok=True)
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    found = await git.find(str(trap.top))
    worktree = await git.add_worktree(found, tmp_path / "work" / "t1", BRANCH)
    assert (worktree.path / "a.txt").read_text(encoding="utf-8") == "one\n"
    if (tmp_path / "config.worktree").exists():
        (tmp_path / "config.worktree").rename(worktree.git_dir / "config.worktree")
    (worktree.path / "a.txt").write_text("changed\n", encoding="utf-8")
    (worktree.path / "b.txt").write_text("new\n", encoding="utf-8")
    commit = await git.keep(worktree, "done")
    assert "2 files changed" in await git.difference(str(trap.top), found.commit, commit)
    await git.remove_worktree(str(trap.top), str(worktree.path))
    assert not worktree.path.exists()
    assert not worktree.git_dir.exists()
    assert not trap.mark.exists()

    plain = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
    assert trap.git(*plain, "show", "--no-textconv", "--no-ext-diff", f"{BRANCH}:b.txt") == "new\n"
    assert trap.git(*plain, "rev-parse", "--abbrev-ref", "HEAD") == "main\n"
    await git.remove_branch(str(trap.top), BRANCH)
    assert trap.git(*plain, "branch", "--list", "toolcrib/*") == ""


@pytest.mark.parametrize("name", sorted(VECTORS.keys() - HARMLESS))
def test_the_traps_catch_ordinary_git(trap: Trap, name: str) -> None:
    """So that the test above can fail: what it forbids does happen without the care that is taken."""
    VECTORS[name](trap)
    trap.mark.unlink(missing_ok=True)
    place = trap.folder / "worktrees" / "t1"
    run = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost", "-C"]
    commands = (
        [*run, str(trap.top), "worktree", "add", "--quiet", "-b", BRANCH, str(place)],
        [*run, str(place), "add", "--all"],
        [*run, str(place), "status"],
        [*run, str(place), "commit", "--message", "x"],
        [*run, str(trap.top), "diff", "HEAD~1", "HEAD"],
    )
    for command in commands:
        if place.exists():
            (place / "a.txt").write_text("changed\n", encoding="utf-8")
            (trap.top / "a.txt").write_text("changed\n", encoding="utf-8")
        subprocess.run(command, capture_output=True, check=False, env=trap.variables, stdin=subprocess.DEVNULL)
    subprocess.run([*run, str(trap.top), "diff"], capture_output=True, check=False, env=trap.variables)
    assert trap.mark.exists()


async def test_the_worktree_is_one_that_git_knows(trap: Trap, tmp_path: Path) -> None:
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    worktree = await git.add_worktree(await git.find(str(trap.top)), tmp_path / "work" / "t1", BRANCH)
    assert str(worktree.path) in trap.git("worktree", "list")
    assert trap.git("status", "--porcelain", top=worktree.path) == ""
    assert trap.git("symbolic-ref", "HEAD", top=worktree.path) == f"refs/heads/{BRANCH}\n"
    inner = await git.find(str(worktree.path))
    nested = await git.add_worktree(inner, tmp_path / "work" / "t2", "toolcrib/t2")
    assert nested.git_dir == trap.top / ".git" / "worktrees" / "t2"
    assert trap.git("fsck", "--strict") == ""


async def test_packed_references_and_borrowed_objects_are_found(trap: Trap, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    trap.git("clone", "--quiet", "--shared", str(trap.top), str(clone), top=tmp_path)
    trap.git("pack-refs", "--all", top=clone)
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    worktree = await git.add_worktree(await git.find(str(clone)), tmp_path / "work" / "t1", BRANCH)
    (worktree.path / "a.txt").write_text("changed\n", encoding="utf-8")
    commit = await git.keep(worktree, "done")
    trap.git("pack-refs", "--all", top=clone)
    await git.remove_worktree(str(clone), str(worktree.path))
    assert trap.git("rev-parse", BRANCH, top=clone).strip() == commit
    await git.remove_branch(str(clone), BRANCH)
    assert trap.git("branch", "--list", "toolcrib/*", top=clone) == ""


async def test_a_git_file_that_names_another_repository_is_refused(trap: Trap, tmp_path: Path) -> None:
    thief = tmp_path / "thief"
    thief.mkdir()
    (thief / ".git").write_text(f"gitdir: {trap.top}/.git\n", encoding="utf-8")
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    with pytest.raises(InvalidRequest, match="does not know this working tree"):
        await git.find(str(thief))
    with pytest.raises(InvalidRequest, match="not in a git repository"):
        await git.find(str(trap.top / ".git" / "hooks"))
