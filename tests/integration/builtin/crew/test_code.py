"""The crew tools for source code through the gate: which directories they may read, and the errors for others."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.projects import Project
from toolcrib.model.tools import CallResult

pytestmark = pytest.mark.anyio

TIMEOUT = 60.0


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    """Open a crib whose working directory is `here`, with a directory `there` beside it."""
    for name in ("here/lib", "there"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "lib" / "ship.py").write_text("class Ship:\n    def sail(self): ...\n", "utf-8")
    (tmp_path / "there" / "sea.go").write_text("package sea\nfunc Wave() {}\nfunc Tide() { Wave() }\n", "utf-8")
    settings = Settings(home=tmp_path / "home", default_cwd=tmp_path / "here")
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    async with Crib(settings, environment=Environment(variables)) as opened:
        yield opened


async def call(crib: Crib, tool: str, principal: Principal | None = None, **arguments: Json) -> CallResult:
    """Call a crew tool."""
    with anyio.fail_after(TIMEOUT):
        return await crib.call(f"crew/{tool}", arguments, principal=principal or crib.owner("web", mode="acceptEdits"))


async def result_of(crib: Crib, tool: str, principal: Principal | None = None, **arguments: Json) -> Any:
    """Return the structured result of a tool that must succeed."""
    result = await call(crib, tool, principal, **arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def error_of(crib: Crib, tool: str, principal: Principal | None = None, **arguments: Json) -> str:
    """Return the error text of a tool that must fail."""
    result = await call(crib, tool, principal, **arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0]["text"])


async def test_symbols_are_found_in_the_working_directory_and_in_one_below_it(crib: Crib, tmp_path: Path) -> None:
    found = await result_of(crib, "crib_code_symbols", query="ship")
    assert found == {
        "projectDir": str((tmp_path / "here").resolve()),
        "symbols": [{"name": "Ship", "kind": "class", "file": "lib/ship.py", "line": 1, "signature": "class Ship:"}],
        "total": 1,
        "index": {"files": 1, "skipped": 0, "failed": 0, "complete": True},
    }
    below = await result_of(crib, "crib_code_symbols", query="", project_dir="lib", kinds=["method"])
    assert [(each["name"], each["container"], each["file"]) for each in below["symbols"]] == [
        ("sail", "Ship", "ship.py")
    ]


async def test_directories_that_contain_or_are_in_the_home_are_refused(crib: Crib, tmp_path: Path) -> None:
    (crib.home.tools / "mine.py").write_text("SECRET = 1\n", encoding="utf-8")
    around = crib.owner("cli", mode="acceptEdits", cwd=str(tmp_path))
    for place in (None, "home", "home/tools", "here/../home"):
        assert "closed to agents" in await error_of(crib, "crib_code_symbols", around, query="", project_dir=place)
        assert "closed" in await error_of(crib, "crib_find_references", around, symbol_name="SECRET", project_dir=place)
    assert (await result_of(crib, "crib_code_symbols", around, query="ship", project_dir="here"))["total"] == 1
    person = crib.owner("cli", cwd=str(tmp_path))
    assert (await result_of(crib, "crib_code_symbols", person, query="Wave"))["total"] == 1


async def test_references_are_found_in_the_callers_working_directory(crib: Crib, tmp_path: Path) -> None:
    there = crib.owner("cli", mode="acceptEdits", cwd=str(tmp_path / "there"))
    found = await result_of(crib, "crib_find_references", there, symbol_name="Wave")
    assert [(each["line"], each["isDefinition"]) for each in found["references"]] == [(2, True), (3, False)]
    assert found["references"][1]["text"] == "func Tide() { Wave() }"
    few = await result_of(crib, "crib_find_references", there, symbol_name="Wave", limit=1)
    assert (len(few["references"]), few["total"]) == (1, 2)
    assert (await result_of(crib, "crib_find_references", there, symbol_name="Ship"))["total"] == 0


@pytest.mark.parametrize("place", ["{}/there", "../there", "lib/../../there", "/", "link"])
async def test_other_directory_is_refused_until_it_is_a_project(crib: Crib, tmp_path: Path, place: str) -> None:
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    error = await error_of(crib, "crib_code_symbols", query="Wave", project_dir=place.format(tmp_path))
    assert "neither in your directory nor in a project" in error
    assert "crib_list_projects" in error
    await crib.permissions.projects.save(Project(str(tmp_path / "there")))
    if place != "/":
        found = await result_of(crib, "crib_code_symbols", query="Wave", project_dir=place.format(tmp_path))
        assert [each["name"] for each in found["symbols"]] == ["Wave"]
    else:
        assert "neither" in await error_of(crib, "crib_code_symbols", query="Wave", project_dir=place)


async def test_path_that_is_no_directory_is_an_error(crib: Crib) -> None:
    assert "is not a directory" in await error_of(crib, "crib_code_symbols", query="x", project_dir="nowhere")
    assert "is not a directory" in await error_of(
        crib, "crib_find_references", symbol_name="x", project_dir="lib/ship.py"
    )


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("crib_code_symbols", {}),
        ("crib_code_symbols", {"query": "x", "kinds": ["poem"]}),
        ("crib_code_symbols", {"query": "x", "limit": 0}),
        ("crib_code_symbols", {"query": "x" * 201}),
        ("crib_find_references", {"symbol_name": ""}),
        ("crib_find_references", {"symbol_name": "x", "limit": 501}),
    ],
)
async def test_invalid_arguments_of_code_tools_are_refused(crib: Crib, tool: str, arguments: JsonObject) -> None:
    assert await error_of(crib, tool, **arguments)


async def test_plan_mode_and_schedules_may_read_code(crib: Crib) -> None:
    for principal in (crib.owner("cli", mode="plan"), crib.owner("scheduler", mode="plan")):
        assert (await result_of(crib, "crib_code_symbols", principal, query="Ship"))["total"] == 1


async def test_missing_tree_sitter_hides_the_code_tools_and_why_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.host.builtin.missing_parts", lambda: ("tree_sitter",))
    async with Crib(Settings(home=tmp_path / "home"), environment=Environment({"HOME": str(tmp_path)})) as crib:
        names = {each.ref.tool for each in crib.gate.listing(crib.owner("web")).tools}
        assert not names & {"crib_code_symbols", "crib_find_references"}
        explained = await crib.why("crew/crib_code_symbols", principal=crib.owner("web"))
        assert "toolcrib[code]" in explained.decided_by.reason
