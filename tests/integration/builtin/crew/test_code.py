"""The crew tools for source code, through the gate: who may look where, and what is said where nobody may."""

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

SOON = 60.0


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    """A crib whose own directory is `here`, beside a directory `there`."""
    for name in ("here/lib", "there"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "here" / "lib" / "ship.py").write_text("class Ship:\n    def sail(self): ...\n", "utf-8")
    (tmp_path / "there" / "sea.go").write_text("package sea\nfunc Wave() {}\nfunc Tide() { Wave() }\n", "utf-8")
    settings = Settings(home=tmp_path / "home", default_cwd=tmp_path / "here")
    variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    async with Crib(settings, environment=Environment(variables)) as opened:
        yield opened


async def use(crib: Crib, tool: str, who: Principal | None = None, **arguments: Json) -> CallResult:
    """Call a tool."""
    with anyio.fail_after(SOON):
        return await crib.call(f"crew/{tool}", arguments, principal=who or crib.owner("web", mode="acceptEdits"))


async def ok(crib: Crib, tool: str, who: Principal | None = None, **arguments: Json) -> Any:
    """What a tool gives that works."""
    result = await use(crib, tool, who, **arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def wrong(crib: Crib, tool: str, who: Principal | None = None, **arguments: Json) -> str:
    """What a tool says that does not."""
    result = await use(crib, tool, who, **arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0]["text"])


async def test_symbols_of_the_own_directory_and_of_one_below_it(crib: Crib, tmp_path: Path) -> None:
    found = await ok(crib, "crib_code_symbols", query="ship")
    assert found == {
        "projectDir": str((tmp_path / "here").resolve()),
        "symbols": [{"name": "Ship", "kind": "class", "file": "lib/ship.py", "line": 1, "signature": "class Ship:"}],
        "total": 1,
        "index": {"files": 1, "skipped": 0, "failed": 0, "complete": True},
    }
    below = await ok(crib, "crib_code_symbols", query="", project_dir="lib", kinds=["method"])
    assert [(each["name"], each["container"], each["file"]) for each in below["symbols"]] == [
        ("sail", "Ship", "ship.py")
    ]


async def test_a_directory_around_or_in_the_home_is_refused(crib: Crib, tmp_path: Path) -> None:
    (crib.home.tools / "mine.py").write_text("SECRET = 1\n", encoding="utf-8")
    around = crib.owner("cli", mode="acceptEdits", cwd=str(tmp_path))
    for place in (None, "home", "home/tools", "here/../home"):
        assert "closed to agents" in await wrong(crib, "crib_code_symbols", around, query="", project_dir=place)
        assert "closed" in await wrong(crib, "crib_find_references", around, symbol_name="SECRET", project_dir=place)
    assert (await ok(crib, "crib_code_symbols", around, query="ship", project_dir="here"))["total"] == 1
    by_hand = crib.owner("cli", cwd=str(tmp_path))
    assert (await ok(crib, "crib_code_symbols", by_hand, query="Wave"))["total"] == 1


async def test_references_of_the_directory_a_caller_works_in(crib: Crib, tmp_path: Path) -> None:
    there = crib.owner("cli", mode="acceptEdits", cwd=str(tmp_path / "there"))
    found = await ok(crib, "crib_find_references", there, symbol_name="Wave")
    assert [(each["line"], each["isDefinition"]) for each in found["references"]] == [(2, True), (3, False)]
    assert found["references"][1]["text"] == "func Tide() { Wave() }"
    few = await ok(crib, "crib_find_references", there, symbol_name="Wave", limit=1)
    assert (len(few["references"]), few["total"]) == (1, 2)
    assert (await ok(crib, "crib_find_references", there, symbol_name="Ship"))["total"] == 0


@pytest.mark.parametrize("place", ["{}/there", "../there", "lib/../../there", "/", "link"])
async def test_another_directory_is_refused_until_it_is_a_project(crib: Crib, tmp_path: Path, place: str) -> None:
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    said = await wrong(crib, "crib_code_symbols", query="Wave", project_dir=place.format(tmp_path))
    assert "neither in your directory nor in a project" in said
    assert "crib_list_projects" in said
    await crib.permissions.projects.save(Project(str(tmp_path / "there")))
    if place != "/":
        found = await ok(crib, "crib_code_symbols", query="Wave", project_dir=place.format(tmp_path))
        assert [each["name"] for each in found["symbols"]] == ["Wave"]
    else:
        assert "neither" in await wrong(crib, "crib_code_symbols", query="Wave", project_dir=place)


async def test_a_directory_that_is_none_says_so(crib: Crib) -> None:
    assert "is not a directory" in await wrong(crib, "crib_code_symbols", query="x", project_dir="nowhere")
    assert "is not a directory" in await wrong(crib, "crib_find_references", symbol_name="x", project_dir="lib/ship.py")


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
async def test_arguments_that_do_not_fit_are_refused(crib: Crib, tool: str, arguments: JsonObject) -> None:
    assert await wrong(crib, tool, **arguments)


async def test_a_plan_may_look_at_code_and_a_schedule_too(crib: Crib) -> None:
    for who in (crib.owner("cli", mode="plan"), crib.owner("scheduler", mode="plan")):
        assert (await ok(crib, "crib_code_symbols", who, query="Ship"))["total"] == 1


async def test_without_tree_sitter_the_tools_are_not_offered_and_why_says_how_to_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.host.builtin.missing_parts", lambda: ("tree_sitter",))
    async with Crib(Settings(home=tmp_path / "home"), environment=Environment({"HOME": str(tmp_path)})) as crib:
        names = {each.ref.tool for each in crib.gate.listing(crib.owner("web")).tools}
        assert not names & {"crib_code_symbols", "crib_find_references"}
        explained = await crib.why("crew/crib_code_symbols", principal=crib.owner("web"))
        assert "toolcrib[code]" in explained.decided_by.reason
