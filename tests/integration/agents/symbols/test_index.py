"""The index of a project's code, with real files, real git and a real reader process."""

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

TIMEOUT = 60.0
FAULTY_WORKER = """
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
"""A worker that exits at one file and hangs at another."""


@pytest.fixture
def symbols() -> Symbols:
    """Return an index with the variables of this process."""
    return Symbols(dict(os.environ))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a small project that is no repository."""
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "user.py").write_text("class User:\n    def get_name(self): ...\n", "utf-8")
    (root / "main.go").write_text("package main\nfunc getUser() {}\nfunc main() { getUser() }\n", "utf-8")
    (root / "notes.txt").write_text("def nothing(): pass\n", "utf-8")
    return root


def git(root: Path, *arguments: str) -> None:
    """Run git in this directory."""
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, timeout=30)


async def names(symbols: Symbols, root: Path, query: str = "") -> list[str]:
    """Return the found names, in order."""
    with anyio.fail_after(TIMEOUT):
        return [each.name for each in (await symbols.find(root, query, (), 100)).items]


async def test_symbols_are_ordered_by_closeness_of_the_name(symbols: Symbols, project: Path) -> None:
    (project / "more.py").write_text("user = 1\nuserland = 2\nsuperuser = 3\nUSER = 4\nget_user = 5\n", "utf-8")
    found = await names(symbols, project, "user")
    assert found == ["user", "USER", "User", "userland", "getUser", "get_user", "superuser"]


async def test_query_may_name_the_container_and_the_kinds(symbols: Symbols, project: Path) -> None:
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


async def test_references_have_lines_and_definitions_come_first(symbols: Symbols, project: Path) -> None:
    found = await symbols.references(project, "getUser", 10)
    assert [each.to_json() for each in found.items] == [
        {"file": "main.go", "line": 2, "text": "func getUser() {}", "isDefinition": True},
        {"file": "main.go", "line": 3, "text": "func main() { getUser() }", "isDefinition": False},
    ]
    few = await symbols.references(project, "getUser", 1)
    assert (len(few.items), few.total) == (1, 2)
    assert (await symbols.references(project, "unknown", 10)).total == 0


async def test_only_changed_files_are_read_again(symbols: Symbols, project: Path) -> None:
    async def found(name: str) -> object:
        (symbol,) = (await symbols.find(project, name, ("class", "function"), 1)).items
        return symbol

    user, main = await found("User"), await found("main")
    (project / "main.go").write_text("package main\n\nfunc main() {}\n", "utf-8")
    os.utime(project / "pkg" / "user.py")  # new modification time, same content
    assert await found("User") is user
    assert await found("main") is not main
    assert await names(symbols, project, "getUser") == []
    (project / "pkg" / "user.py").unlink()
    assert await names(symbols, project, "User") == []


async def test_change_with_equal_size_and_recent_time_is_detected(symbols: Symbols, project: Path) -> None:
    file = project / "same.py"
    ahead = time.time_ns() + 3_600 * 10**9  # a time in the future never proves that a file is unchanged
    for name in ("one", "two"):
        file.write_text(f"{name} = 1\n", "utf-8")
        os.utime(file, ns=(ahead, ahead))
        found = await names(symbols, project)
        assert [each for each in found if each in ("one", "two")] == [name]


async def test_files_ignored_by_git_are_not_indexed(symbols: Symbols, project: Path) -> None:
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


async def test_subdirectory_of_a_repository_has_only_its_own_files(symbols: Symbols, project: Path) -> None:
    git(project, "init", "-q")
    found = await symbols.find(project / "pkg", "", (), 10)
    assert {each.file for each in found.items} == {"user.py"}


async def test_programs_configured_by_a_repository_are_not_run(symbols: Symbols, project: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n", "utf-8")
    program.chmod(0o755)
    git(project, "init", "-q")
    git(project, "add", "main.go")
    git(project, "config", "core.fsmonitor", str(program))
    assert "User" in await names(symbols, project)
    assert not marker.exists()


async def test_modules_in_the_project_are_not_imported(
    symbols: Symbols, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "was-run"
    for name in ("orjson", "tree_sitter", "toolcrib"):
        (project / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\n", "utf-8")
    monkeypatch.chdir(project)
    assert "User" in await names(symbols, project)
    assert not marker.exists()


async def test_links_special_and_large_files_are_skipped(symbols: Symbols, project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("secret = 1\n", "utf-8")
    (project / "link.py").symlink_to(tmp_path / "secret.py")
    (project / "folder").symlink_to(tmp_path, target_is_directory=True)
    (project / "large.py").write_text("x = 1\n" * 200_000, "utf-8")
    (project / "pipe.py").unlink(missing_ok=True)
    os.mkfifo(project / "pipe.py")
    with anyio.fail_after(TIMEOUT):
        found = await symbols.find(project, "", (), 100)
    assert "secret" not in {each.name for each in found.items}
    assert (found.state.files, found.state.skipped, found.state.complete) == (2, 1, True)


async def test_undecodable_file_does_not_stop_the_index(symbols: Symbols, project: Path) -> None:
    (project / "latin.py").write_bytes(b"# caf\xe9\ncaf\xe9 = 1\nplain = 2\n")
    (project / "empty.py").write_bytes(b"")
    (project / "zeros.py").write_bytes(b"\0" * 1000)
    found = await names(symbols, project)
    assert {"User", "plain"} <= set(found)


@pytest.mark.parametrize("file", ["kills.py", "hangs.py"])
async def test_file_that_crashes_or_hangs_the_worker_is_skipped(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (project / file).write_text("lost = 1\n", "utf-8")
    monkeypatch.setattr("toolcrib.agents.symbols.parsing.COMMAND", (sys.executable, "-P", "-c", FAULTY_WORKER))
    if file == "hangs.py":
        monkeypatch.setattr("toolcrib.agents.symbols.parsing.TIMEOUT", 5.0)
    with anyio.fail_after(TIMEOUT):
        found = await symbols.find(project, "", (), 100)
    assert {each.name for each in found.items} == {"User", "get_name", "getUser", "main"}
    assert (found.state.files, found.state.failed, found.state.complete) == (3, 1, True)


async def test_worker_that_always_crashes_is_an_error(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        (project / f"more{number}.py").write_text("x = 1\n", "utf-8")
    monkeypatch.setattr("toolcrib.agents.symbols.parsing.COMMAND", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(Unavailable) as caught, anyio.fail_after(TIMEOUT):
        await symbols.find(project, "", (), 1)
    assert caught.value.code == "code.failed"


async def test_incomplete_index_is_reported_and_continued(
    symbols: Symbols, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr("toolcrib.agents.symbols.index.TIMEOUT", 0.0)
        found = await symbols.find(project, "", (), 10)
    assert (found.items, found.state.complete) == ((), False)
    found = await symbols.find(project, "", (), 10)
    assert (len(found.items), found.state.complete) == (4, True)


async def test_concurrent_queries_have_equal_results(symbols: Symbols, project: Path) -> None:
    answers: list[list[str]] = []

    async def query() -> None:
        answers.append(await names(symbols, project))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(query)
    assert len(answers) == 5
    assert all(answer == answers[0] for answer in answers)


async def test_directory_is_walked_without_git(project: Path) -> None:
    assert "User" in await names(Symbols({"PATH": str(project)}), project)
