"""The index of a project's code, with real files, a real git and a real process that reads."""

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from toolcrib.agents.symbols.index import Symbols
from toolcrib.model.errors import Unavailable

pytestmark = pytest.mark.anyio

SOON = 60.0
STUBBORN = """
import sys, time
from toolcrib.agents.symbols import worker

def read(root, file, language, real=worker.read_file):
    if file == "kills.py":
        sys.exit(9)
    if file == "hangs.py":
        time.sleep(600)
    return real(root, file, language)

worker.read_file = read
worker.main(sys.stdin.buffer, sys.stdout.buffer)
"""
"""A process that does not survive one file, and never ends with another."""


@pytest.fixture
def symbols() -> Symbols:
    """An index with this machine's variables."""
    return Symbols(dict(os.environ))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that is no repository."""
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "user.py").write_text("class User:\n    def get_name(self): ...\n", "utf-8")
    (root / "main.go").write_text("package main\nfunc getUser() {}\nfunc main() { getUser() }\n", "utf-8")
    (root / "notes.txt").write_text("def nothing(): pass\n", "utf-8")
    return root


def git(root: Path, *arguments: str) -> None:
    """Run git there, as nobody in particular."""
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, timeout=30)


async def names(symbols: Symbols, root: Path, query: str = "") -> list[str]:
    """The names that are found, in order."""
    with anyio.fail_after(SOON):
        return [each.name for each in (await symbols.find(root, query, (), 100)).items]


async def test_symbols_are_found_the_closest_name_first(symbols: Symbols, project: Path) -> None:
    (project / "more.py").write_text("user = 1\nuserland = 2\nsuperuser = 3\nUSER = 4\nget_user = 5\n", "utf-8")
    found = await names(symbols, project, "user")
    assert found == ["user", "USER", "User", "userland", "getUser", "get_user", "superuser"]


async def test_a_name_may_say_what_it_stands_in_and_kinds_choose(symbols: Symbols, project: Path) -> None:
    assert await names(symbols, project, "User.get") == ["get_name"]
    assert await names(symbols, project, "user::get_name") == ["get_name"]
    assert await names(symbols, project, "Nobody.get") == []
    found = await symbols.find(project, "", ("class", "function"), 2)
    assert ([each.name for each in found.items], found.total) == (["getUser", "main"], 3)
    (method,) = (await symbols.find(project, "get_name", (), 5)).items
    assert method.to_json() == {
        "name": "get_name", "kind": "method", "file": "pkg/user.py", "line": 2, "container": "User",
        "signature": "def get_name(self):",
    }  # fmt: skip


async def test_references_have_their_lines_and_definitions_come_first(symbols: Symbols, project: Path) -> None:
    found = await symbols.references(project, "getUser", 10)
    assert [each.to_json() for each in found.items] == [
        {"file": "main.go", "line": 2, "text": "func getUser() {}", "isDefinition": True},
        {"file": "main.go", "line": 3, "text": "func main() { getUser() }", "isDefinition": False},
    ]
    few = await symbols.references(project, "getUser", 1)
    assert (len(few.items), few.total) == (1, 2)
    assert (await symbols.references(project, "nobody", 10)).total == 0


async def test_only_what_changed_is_read_again(symbols: Symbols, project: Path) -> None:
    async def found(name: str) -> object:
        (symbol,) = (await symbols.find(project, name, ("class", "function"), 1)).items
        return symbol

    user, main = await found("User"), await found("main")
    (project / "main.go").write_text("package main\n\nfunc main() {}\n", "utf-8")
    os.utime(project / "pkg" / "user.py")  # another time, the same content
    assert await found("User") is user
    assert await found("main") is not main
    assert await names(symbols, project, "getUser") == []
    (project / "pkg" / "user.py").unlink()
    assert await names(symbols, project, "User") == []


async def test_a_change_that_keeps_size_and_time_is_seen_while_the_time_could_not_tell(
    symbols: Symbols, project: Path
) -> None:
    file = project / "same.py"
    ahead = time.time_ns() + 3_600 * 10**9  # no look is later than this, so the time proves nothing
    for name in ("one", "two"):
        file.write_text(f"{name} = 1\n", "utf-8")
        os.utime(file, ns=(ahead, ahead))
        found = await names(symbols, project)
        assert [each for each in found if each in ("one", "two")] == [name]


async def test_in_a_repository_what_git_ignores_does_not_count(symbols: Symbols, project: Path) -> None:
    (project / ".gitignore").write_text("generated/\n", "utf-8")
    (project / "generated").mkdir()
    (project / "generated" / "big.py").write_text("generated = 1\n", "utf-8")
    (project / "build").mkdir()
    (project / "build" / "tool.py").write_text("built = 1\n", "utf-8")
    assert "generated" in await names(symbols, project)
    assert "built" not in await names(symbols, project)
    git(project, "init", "-q")
    git(project, "add", "main.go")
    found = await names(symbols, project)
    assert {"User", "getUser", "built"} <= set(found)
    assert "generated" not in found


async def test_a_directory_below_a_repository_has_its_own_files_only(symbols: Symbols, project: Path) -> None:
    git(project, "init", "-q")
    found = await symbols.find(project / "pkg", "", (), 10)
    assert {each.file for each in found.items} == {"user.py"}


async def test_nothing_that_a_repository_configures_is_run(symbols: Symbols, project: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n", "utf-8")
    program.chmod(0o755)
    git(project, "init", "-q")
    git(project, "add", "main.go")
    git(project, "config", "core.fsmonitor", str(program))
    assert "User" in await names(symbols, project)
    assert not marker.exists()


async def test_modules_that_lie_in_the_directory_are_not_loaded(
    symbols: Symbols, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "was-run"
    for name in ("orjson", "tree_sitter", "toolcrib"):
        (project / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\n", "utf-8")
    monkeypatch.chdir(project)
    assert "User" in await names(symbols, project)
    assert not marker.exists()


async def test_links_are_not_followed_and_what_is_too_large_is_left_out(
    symbols: Symbols, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.py").write_text("secret = 1\n", "utf-8")
    (project / "link.py").symlink_to(tmp_path / "secret.py")
    (project / "folder").symlink_to(tmp_path, target_is_directory=True)
    (project / "large.py").write_text("x = 1\n" * 200_000, "utf-8")
    (project / "pipe.py").unlink(missing_ok=True)
    os.mkfifo(project / "pipe.py")
    with anyio.fail_after(SOON):
        found = await symbols.find(project, "", (), 100)
    assert "secret" not in {each.name for each in found.items}
    assert (found.state.files, found.state.skipped, found.state.complete) == (2, 1, True)


async def test_a_file_that_cannot_be_read_is_one_file_less(symbols: Symbols, project: Path) -> None:
    (project / "latin.py").write_bytes(b"# caf\xe9\ncaf\xe9 = 1\nplain = 2\n")
    (project / "empty.py").write_bytes(b"")
    (project / "zeros.py").write_bytes(b"\0" * 1000)
    found = await names(symbols, project)
    assert {"User", "plain"} <= set(found)


@pytest.mark.parametrize("file", ["kills.py", "hangs.py"])
async def test_a_file_that_ends_or_holds_up_the_process_is_the_only_one_that_is_lost(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (project / file).write_text("lost = 1\n", "utf-8")
    monkeypatch.setattr("toolcrib.agents.symbols.parsing.COMMAND", (sys.executable, "-P", "-c", STUBBORN))
    if file == "hangs.py":
        monkeypatch.setattr("toolcrib.agents.symbols.parsing.TIMEOUT", 5.0)
    with anyio.fail_after(SOON):
        found = await symbols.find(project, "", (), 100)
    assert {each.name for each in found.items} == {"User", "get_name", "getUser", "main"}
    assert (found.state.files, found.state.failed, found.state.complete) == (3, 1, True)


async def test_where_no_process_stays_alive_that_is_said(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        (project / f"more{number}.py").write_text("x = 1\n", "utf-8")
    monkeypatch.setattr("toolcrib.agents.symbols.parsing.COMMAND", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(Unavailable) as caught, anyio.fail_after(SOON):
        await symbols.find(project, "", (), 1)
    assert caught.value.code == "code.failed"


async def test_an_index_that_is_not_complete_in_time_says_so_and_goes_on(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("toolcrib.agents.symbols.index.TIMEOUT", 0.0)
        found = await symbols.find(project, "", (), 10)
    assert (found.items, found.state.complete) == ((), False)
    found = await symbols.find(project, "", (), 10)
    assert (len(found.items), found.state.complete) == (4, True)


async def test_questions_at_the_same_time_share_one_index(symbols: Symbols, project: Path) -> None:
    answers: list[list[str]] = []

    async def ask() -> None:
        answers.append(await names(symbols, project))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert len(answers) == 5
    assert all(answer == answers[0] for answer in answers)


async def test_without_git_a_directory_is_walked(project: Path) -> None:
    assert "User" in await names(Symbols({"PATH": str(project)}), project)
