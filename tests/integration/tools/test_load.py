"""Loading a tools folder: each valid module becomes a server, each invalid one a problem with its location."""

import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from toolcrib.model.json import canonical
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.sources import CallContext
from toolcrib.model.tools import CallResult
from toolcrib.tools import LoadedFolder, PythonSource, load_folder

GOOD = '''"""Weather of the world."""
from toolcrib.tools import tool

@tool(read_only=True)
def forecast(city: str) -> str:
    """Forecast for a city."""
    return f"sunny in {city}"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tools"
    path.mkdir(mode=0o700)
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def only_problem(loaded: LoadedFolder) -> Problem:
    (problem,) = loaded.problems
    assert problem.code == "tool.module"
    assert problem.hint
    return problem


async def call(loaded: LoadedFolder, tool: str, server: int = 0) -> CallResult:
    async with PythonSource(loaded.servers[server]) as source:
        with anyio.fail_after(5):
            return await source.prepare(tool, {}, b"{}")(CallContext(Principal("owner", "owner", "cli"), "1"))


def module_names() -> set[str]:
    return {name for name in sys.modules if name.startswith("toolcrib_tools_")}


def test_module_is_a_server_named_after_its_stem(folder: Path) -> None:
    file = write(folder / "weather.py", GOOD)
    loaded = load_folder(folder)
    (server,) = loaded.servers
    assert server.name == "weather"
    assert server.kind == "plugin"
    assert server.instructions == "Weather of the world."
    assert list(server.definitions) == ["forecast"]
    assert list(loaded.modules) == [file]
    assert loaded.problems == ()


@pytest.mark.anyio
async def test_package_is_a_server_with_its_submodules_and_providers(folder: Path) -> None:
    package = folder / "city"
    write(
        package / "__init__.py",
        "from .parts import Map, look\nfrom toolcrib.tools import tool\nproviders = {Map: Map}\n",
    )
    write(
        package / "parts.py",
        "from __future__ import annotations\n"
        "from typing import Annotated\n"
        "from toolcrib.tools import Inject, tool\n"
        "class Map:\n    name = 'Ulm'\n"
        "@tool\n"
        "def look(*, map: Annotated[Map, Inject]) -> str:\n    return map.name\n",
    )
    loaded = load_folder(folder)
    assert loaded.problems == ()
    assert list(loaded.modules) == [package]
    assert await call(loaded, "look") == CallResult.text("Ulm")


def test_missing_or_empty_folder_loads_without_problems(folder: Path) -> None:
    assert load_folder(folder) == LoadedFolder()
    assert load_folder(folder / "missing") == LoadedFolder()


def test_files_that_are_not_modules_are_skipped(folder: Path) -> None:
    for name in ("_helper.py", ".hidden.py", "notes.txt", "data.json"):
        write(folder / name, "raise SystemExit")
    write(folder / "data" / "x.py", "raise SystemExit")
    write(folder / "__pycache__" / "x.py", "raise SystemExit")
    assert load_folder(folder) == LoadedFolder()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("x = 1\nraise ValueError('broken')\n", 2, "ValueError: broken"),
        ("x = 1\n\ndef f(:\n", 3, "SyntaxError"),
        ("import sys\nsys.exit('bye')\n", 2, "SystemExit: bye"),
        ("\nimport no_such_module_at_all\n", 2, "no_such_module_at_all"),
        ("from toolcrib.tools import tool\n@tool\ndef f(x): ...\n", 2, "parameter `x`: it has no type"),
        ("def a():\n    return b()\ndef b():\n    return 1 / 0\na()\n", 4, "ZeroDivisionError"),
        ("x = 1\n", None, "has no tools"),
        ("", None, "has no tools"),
        (GOOD + "tools = 5\n", None, "`tools` is not a list"),
        (GOOD + "tools = [print]\n", None, "is not a tool"),
        (GOOD + "providers = []\n", None, "`providers` is not a dict"),
        (GOOD + "providers = {int: 5}\n", None, "cannot be called"),
        (GOOD + "@tool(name='forecast')\ndef again() -> None: ...\n", None, "already has a tool `forecast`"),
        ("raise BaseExceptionGroup('x', [ValueError('inner')])", 1, "ValueError: inner"),
        ("def f(): f()\nf()\n", 1, "RecursionError"),
        ("x = " + "(" * 1000 + ")" * 1000, 1, "SyntaxError"),
    ],
)
def test_broken_module_is_one_problem_and_others_load(folder: Path, text: str, line: int | None, expected: str) -> None:
    before = module_names()
    broken = write(folder / "broken.py", text)
    write(folder / "weather.py", GOOD)
    loaded = load_folder(folder)
    problem = only_problem(loaded)
    assert problem.message.startswith("`broken.py` could not be loaded: ")
    assert expected in problem.message
    assert (problem.file, problem.line) == (str(broken), line)
    assert [server.name for server in loaded.servers] == ["weather"]
    assert not [name for name in module_names() - before if "broken" in name]


def test_problem_inside_a_package_names_its_file_and_line(folder: Path) -> None:
    before = module_names()
    write(folder / "city" / "__init__.py", "from . import parts\n")
    parts = write(folder / "city" / "parts.py", "x = 1\nraise ValueError('deep')\n")
    problem = only_problem(load_folder(folder))
    assert (problem.file, problem.line) == (str(parts), 2)
    assert module_names() == before


def test_missing_import_is_named_in_the_hint(folder: Path) -> None:
    write(folder / "broken.py", "import no_such_module_at_all\n")
    assert "no_such_module_at_all" in (only_problem(load_folder(folder)).hint or "")


@pytest.mark.parametrize("name", ["my tools.py", "größe.py", "a+b.py"])
def test_module_with_an_invalid_server_name_is_not_imported(folder: Path, name: str) -> None:
    write(folder / name, "raise SystemExit('ran')")
    assert "cannot be the name of a server" in only_problem(load_folder(folder)).message


def test_module_name_may_contain_dots_and_dashes(folder: Path) -> None:
    write(folder / "my-weather.v2.py", GOOD)
    assert [server.name for server in load_folder(folder).servers] == ["my-weather.v2"]


def test_module_and_package_of_the_same_name_are_a_problem(folder: Path) -> None:
    write(folder / "weather.py", GOOD)
    write(folder / "weather" / "__init__.py", GOOD)
    loaded = load_folder(folder)
    assert "already server `weather`" in only_problem(loaded).message
    assert len(loaded.servers) == 1


def test_imported_tools_count_only_when_the_module_lists_them(folder: Path) -> None:
    write(folder / "a.py", "from toolcrib.builtin.toolcrib.server import ping\n" + GOOD + "alias = forecast\n")
    write(folder / "b.py", "from toolcrib.builtin.toolcrib.server import ping\ntools = [ping]\n")
    write(folder / "c.py", GOOD.replace("def forecast", "def tools"))
    loaded = load_folder(folder)
    assert loaded.problems == ()
    assert {s.name: list(s.definitions) for s in loaded.servers} == {"a": ["forecast"], "b": ["ping"], "c": ["tools"]}


@pytest.mark.anyio
async def test_second_load_reads_changed_submodules(folder: Path) -> None:
    text = "from .part import word\nfrom toolcrib.tools import tool\n@tool\ndef say() -> str:\n    return word + '{}'\n"
    write(folder / "voice" / "part.py", "word = 'one '\n")
    write(folder / "voice" / "__init__.py", text.format("a"))
    first = load_folder(folder)
    write(folder / "voice" / "part.py", "word = 'second '\n")
    write(folder / "voice" / "__init__.py", text.format("b"))
    again = load_folder(folder)
    assert await call(first, "say") == CallResult.text("one a")
    assert await call(again, "say") == CallResult.text("second b")


def test_edit_with_the_same_time_and_size_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "from toolcrib.tools import tool\n@tool\ndef say() -> str:\n    return '{}'\n"
    for word in ("a", "b", "c"):
        os.utime(write(folder / "voice.py", text.format(word)), (1_000_000_000, 1_000_000_000))
        assert anyio.run(call, load_folder(folder), "say") == CallResult.text(word)
    assert [path.name for path in folder.iterdir()] == ["voice.py"]


def test_definition_hash_is_stable_across_loads(folder: Path) -> None:
    clash = (
        "from pydantic import BaseModel\nfrom toolcrib.tools import tool\n"
        "class A:\n    class Place(BaseModel):\n        x: int\n"
        "class B:\n    class Place(BaseModel):\n        y: int\n"
        "@tool\ndef go(a: A.Place, b: B.Place) -> None: ...\n"
    )
    write(folder / "clash.py", clash)
    hashes = [PythonSource(load_folder(folder).servers[0]).tools()[0].definition_hash for _ in range(2)]
    assert hashes[0] == hashes[1]


def test_output_of_a_module_while_loading_does_not_reach_stdout(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "loud.py", "print('hello')\n" + GOOD)
    assert load_folder(folder).problems == ()
    assert capsys.readouterr().out == ""


def test_undecodable_modules_are_problems(folder: Path) -> None:
    (folder / "bytes.py").write_bytes(b"x = '\xff\xfe'\n")
    (folder / "nulls.py").write_bytes(b"x = 1\x00\n")
    loaded = load_folder(folder)
    assert [Path(problem.file or "").name for problem in loaded.problems] == ["bytes.py", "nulls.py"]


def test_special_files_broken_links_and_huge_files_are_problems(folder: Path) -> None:
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py", 0o600)
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "lost.py").symlink_to("nowhere.py")
    (folder / "package").mkdir()
    os.mkfifo(folder / "package" / "__init__.py", 0o600)
    write(folder / "huge.py", "#" * (5 * 1024 * 1024))
    loaded = load_folder(folder)
    assert {Path(problem.file or "").name for problem in loaded.problems} == {
        "folder.py", "pipe.py", "loop.py", "lost.py", "package", "huge.py",
    }  # fmt: skip
    assert all(problem.hint for problem in loaded.problems)


def test_undecodable_file_name_is_a_problem_that_can_be_serialized(folder: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py")).touch()
    except OSError:
        pytest.skip("This file system accepts only valid Unicode names.")
    assert canonical(only_problem(load_folder(folder)).to_json())


def test_file_in_place_of_the_folder_is_a_problem(folder: Path) -> None:
    assert only_problem(load_folder(write(folder / "x", ""))).file == str(folder / "x")


def test_symlink_to_a_module_is_loaded(folder: Path, tmp_path: Path) -> None:
    (folder / "weather.py").symlink_to(write(tmp_path / "elsewhere" / "source.py", GOOD))
    assert [server.name for server in load_folder(folder).servers] == ["weather"]


@pytest.mark.parametrize("open_to_others", ["file", "folder", "submodule", "target"])
def test_module_writable_by_others_is_refused_before_it_runs(folder: Path, tmp_path: Path, open_to_others: str) -> None:
    script = "raise SystemExit('ran')"
    package = folder / "city"
    places = {
        "file": write(folder / "weather.py", script),
        "folder": folder,
        "submodule": write(package / "__init__.py", script).with_name("parts.py"),
        "target": write(tmp_path / "elsewhere" / "source.py", script),
    }
    write(places["submodule"], "")
    (folder / "link.py").symlink_to(places["target"])
    place = places[open_to_others]
    place.chmod(0o707 if place.is_dir() else 0o606)
    refused = [problem for problem in load_folder(folder).problems if "SystemExit" not in problem.message]
    assert refused
    assert all(str(place) in problem.message for problem in refused)
    assert all("chmod" in (problem.hint or "") for problem in refused)


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can change the owner of a file.")
def test_file_of_another_user_or_group_is_refused(folder: Path) -> None:
    os.chown(write(folder / "owned_by_other.py", GOOD), 12345, -1)
    grouped = write(folder / "grouped.py", GOOD)
    os.chown(grouped, -1, 12345)
    grouped.chmod(0o660)
    messages = [problem.message for problem in load_folder(folder).problems]
    assert len(messages) == 2
    assert "Other users may write" in messages[0]
    assert "belongs to another user" in messages[1]


def test_file_writable_by_the_users_own_group_is_loaded(folder: Path) -> None:
    file = write(folder / "weather.py", GOOD)
    if file.group() != file.owner():
        pytest.skip("This user has no private group.")
    file.chmod(0o660)
    assert load_folder(folder).problems == ()


def test_reload_keeps_unchanged_servers_and_replaces_changed_ones(folder: Path) -> None:
    write(folder / "kept.py", GOOD)
    write(folder / "changed.py", GOOD)
    before = load_folder(folder)
    write(folder / "changed.py", GOOD + "\n# changed\n")
    after = load_folder(folder, before)
    changed, kept = after.servers
    assert kept is before.servers[1]
    assert changed is not before.servers[0]


@pytest.mark.parametrize("fixed", ["mode", "name", "dependency"])
def test_reload_clears_a_problem_whose_external_cause_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fixed: str
) -> None:
    file = write(folder / "weather.py", GOOD)
    write(folder / "rival.py", GOOD)
    if fixed == "mode":
        file.chmod(0o606)
    elif fixed == "name":
        write(folder / "rival" / "__init__.py", GOOD)
    else:
        write(file, "import toolcrib_tools_late_arrival\n" + GOOD)
    before = load_folder(folder)
    assert len(before.problems) == 1
    if fixed == "mode":
        file.chmod(0o600)
    elif fixed == "name":
        shutil.rmtree(folder / "rival")
    else:
        monkeypatch.setitem(sys.modules, "toolcrib_tools_late_arrival", sys)
    after = load_folder(folder, before)
    assert after.problems == ()
    assert [server.name for server in after.servers] == ["rival", "weather"]
