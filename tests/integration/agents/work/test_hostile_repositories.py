"""Repositories that configure programs in every place git knows: work tasks run none of them."""

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


class HostileRepository:
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
        """Return a configuration with a filter that runs the program in both directions."""
        return f'[filter "evil"]\n\tsmudge = {self.program}\n\tclean = {self.program}\n{text}'


def filters(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.commit()
    repository.config(repository.filtering(""))


def required_process_filter(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.commit()
    repository.config(f'[filter "evil"]\n\tprocess = {repository.program}\n\trequired = true\n')


def include_for_worktrees(repository: HostileRepository) -> None:
    """Only the working tree of a task has this configuration; reading it beforehand does not reveal it."""
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.commit()
    (repository.top / ".git" / "more").write_text(repository.filtering(""), encoding="utf-8")
    repository.config('[includeIf "gitdir:**/worktrees/**"]\n\tpath = more\n')


def include_for_branches(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.commit()
    (repository.top / ".git" / "more").write_text(repository.filtering(""), encoding="utf-8")
    repository.config('[includeIf "onbranch:toolcrib/**"]\n\tpath = more\n')


def include(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.write("shared.config", repository.filtering(""))
    repository.commit()
    repository.config(f"[include]\n\tpath = {repository.top}/shared.config\n")


def attributes_of_the_repository(repository: HostileRepository) -> None:
    repository.config("* filter=evil\n", ".git/info/attributes")
    repository.config(repository.filtering(""))


def attributes_by_configuration(repository: HostileRepository) -> None:
    repository.write("attributes", "* filter=evil\n")
    repository.config(repository.filtering(f"[core]\n\tattributesFile = {repository.top}/attributes\n"))


def worktree_configuration(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt filter=evil\n")
    repository.commit()
    repository.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (repository.top / ".git" / "config.worktree").write_text(repository.filtering(""), encoding="utf-8")
    state = repository.top / ".git" / "worktrees" / "t1"
    state.parent.mkdir()
    (repository.folder / "config.worktree").write_text(repository.filtering(""), encoding="utf-8")


def hooks(repository: HostileRepository) -> None:
    for hook in HOOKS:
        (repository.top / ".git" / "hooks").mkdir(exist_ok=True)
        (repository.top / ".git" / "hooks" / hook).unlink(missing_ok=True)
        (repository.top / ".git" / "hooks" / hook).symlink_to(repository.program)


def hooks_elsewhere(repository: HostileRepository) -> None:
    (repository.top / "hooks").mkdir()
    for hook in HOOKS:
        (repository.top / "hooks" / hook).symlink_to(repository.program)
    repository.config("[core]\n\thooksPath = hooks\n")
    repository.config(f"[core]\n\thooksPath = {repository.top}/hooks\n")


def file_system_monitor(repository: HostileRepository) -> None:
    repository.config(f"[core]\n\tfsmonitor = {repository.program}\n")


def differences(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt diff=evil\n")
    repository.commit()
    repository.config(f'[diff]\n\texternal = {repository.program}\n[diff "evil"]\n\ttextconv = {repository.program}\n')


def merge_driver(repository: HostileRepository) -> None:
    repository.write(".gitattributes", "*.txt merge=evil\n")
    repository.commit()
    repository.config(f'[merge "evil"]\n\tdriver = {repository.program} %A\n')


def signatures(repository: HostileRepository) -> None:
    repository.config(f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {repository.program}\n")


def programs_of_the_user_interface(repository: HostileRepository) -> None:
    keys = {
        "core": ("pager", "editor", "askPass", "sshCommand", "gitProxy", "alternateRefsCommand"),
        "pager": ("diff", "status"),
        "uploadpack": ("packObjectsHook",),
        "sequence": ("editor",),
    }
    for section, names in keys.items():
        repository.config(f"[{section}]\n" + "".join(f"\t{name} = {repository.program}\n" for name in names))
    repository.config(f"[credential]\n\thelper = !{repository.program}\n")
    repository.config(
        "[alias]\n" + "".join(f"\t{name} = !{repository.program}\n" for name in ("add", "reset", "update-ref"))
    )


def missing_objects(repository: HostileRepository) -> None:
    """A partial clone whose server is a program."""
    repository.config(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
        f'[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\tpromisor = true\n\turl = ext::{repository.program}\n'
    )


def submodule(repository: HostileRepository) -> None:
    inner = repository.top / "inner"
    inner.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main", top=inner)
    repository.write("inner/b.txt", "two\n")
    repository.git("add", "--all", top=inner)
    repository.git("commit", "--quiet", "--message", "x", top=inner)
    repository.write(
        ".gitmodules", f'[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tupdate = !{repository.program}\n'
    )
    repository.commit()
    repository.config(f"[core]\n\tfsmonitor = {repository.program}\n", "inner/.git/config")
    repository.config("[submodule]\n\trecurse = true\n")
    repository.config(f'[submodule "inner"]\n\tactive = true\n\tupdate = !{repository.program}\n\turl = ./inner\n')


VECTORS: dict[str, Callable[[HostileRepository], None]] = {
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
"""Vectors that plain git does not run with these commands; later versions might."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[HostileRepository]:
    yield HostileRepository(tmp_path)


@pytest.mark.parametrize("name", VECTORS)
async def test_work_task_runs_no_program_of_a_repository(
    repository: HostileRepository, name: str, tmp_path: Path
) -> None:
    VECTORS[name](repository)
    repository.mark.unlink(missing_ok=True)
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    found = await git.find(str(repository.top))
    worktree = await git.add_worktree(found, tmp_path / "work" / "t1", BRANCH)
    assert (worktree.path / "a.txt").read_text(encoding="utf-8") == "one\n"
    if (tmp_path / "config.worktree").exists():
        (tmp_path / "config.worktree").rename(worktree.git_dir / "config.worktree")
    (worktree.path / "a.txt").write_text("changed\n", encoding="utf-8")
    (worktree.path / "b.txt").write_text("new\n", encoding="utf-8")
    commit = await git.keep(worktree, "done")
    assert "2 files changed" in await git.difference(str(repository.top), found.commit, commit)
    await git.remove_worktree(str(repository.top), str(worktree.path))
    assert not worktree.path.exists()
    assert not worktree.git_dir.exists()
    assert not repository.mark.exists()

    plain = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
    assert repository.git(*plain, "show", "--no-textconv", "--no-ext-diff", f"{BRANCH}:b.txt") == "new\n"
    assert repository.git(*plain, "rev-parse", "--abbrev-ref", "HEAD") == "main\n"
    await git.remove_branch(str(repository.top), BRANCH)
    assert repository.git(*plain, "branch", "--list", "toolcrib/*") == ""


@pytest.mark.parametrize("name", sorted(VECTORS.keys() - HARMLESS))
def test_plain_git_runs_the_programs_of_the_vectors(repository: HostileRepository, name: str) -> None:
    """Shows that the test above can fail."""
    VECTORS[name](repository)
    repository.mark.unlink(missing_ok=True)
    worktree_dir = repository.folder / "worktrees" / "t1"
    run = ["git", "-c", "user.name=T", "-c", "user.email=t@localhost", "-C"]
    commands = (
        [*run, str(repository.top), "worktree", "add", "--quiet", "-b", BRANCH, str(worktree_dir)],
        [*run, str(worktree_dir), "add", "--all"],
        [*run, str(worktree_dir), "status"],
        [*run, str(worktree_dir), "commit", "--message", "x"],
        [*run, str(repository.top), "diff", "HEAD~1", "HEAD"],
    )
    for command in commands:
        if worktree_dir.exists():
            (worktree_dir / "a.txt").write_text("changed\n", encoding="utf-8")
            (repository.top / "a.txt").write_text("changed\n", encoding="utf-8")
        subprocess.run(command, capture_output=True, check=False, env=repository.variables, stdin=subprocess.DEVNULL)
    subprocess.run([*run, str(repository.top), "diff"], capture_output=True, check=False, env=repository.variables)
    assert repository.mark.exists()


async def test_worktree_of_a_task_is_valid_for_git(repository: HostileRepository, tmp_path: Path) -> None:
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    worktree = await git.add_worktree(await git.find(str(repository.top)), tmp_path / "work" / "t1", BRANCH)
    assert str(worktree.path) in repository.git("worktree", "list")
    assert repository.git("status", "--porcelain", top=worktree.path) == ""
    assert repository.git("symbolic-ref", "HEAD", top=worktree.path) == f"refs/heads/{BRANCH}\n"
    inner = await git.find(str(worktree.path))
    nested = await git.add_worktree(inner, tmp_path / "work" / "t2", "toolcrib/t2")
    assert nested.git_dir == repository.top / ".git" / "worktrees" / "t2"
    assert repository.git("fsck", "--strict") == ""


async def test_packed_references_and_shared_objects_are_found(repository: HostileRepository, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--shared", str(repository.top), str(clone), top=tmp_path)
    repository.git("pack-refs", "--all", top=clone)
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    worktree = await git.add_worktree(await git.find(str(clone)), tmp_path / "work" / "t1", BRANCH)
    (worktree.path / "a.txt").write_text("changed\n", encoding="utf-8")
    commit = await git.keep(worktree, "done")
    repository.git("pack-refs", "--all", top=clone)
    await git.remove_worktree(str(clone), str(worktree.path))
    assert repository.git("rev-parse", BRANCH, top=clone).strip() == commit
    await git.remove_branch(str(clone), BRANCH)
    assert repository.git("branch", "--list", "toolcrib/*", top=clone) == ""


async def test_git_file_that_names_another_repository_is_refused(repository: HostileRepository, tmp_path: Path) -> None:
    foreign = tmp_path / "thief"
    foreign.mkdir()
    (foreign / ".git").write_text(f"gitdir: {repository.top}/.git\n", encoding="utf-8")
    git = Git(Environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}))
    with pytest.raises(InvalidRequest, match="does not know this working tree"):
        await git.find(str(foreign))
    with pytest.raises(InvalidRequest, match="not in a git repository"):
        await git.find(str(repository.top / ".git" / "hooks"))
