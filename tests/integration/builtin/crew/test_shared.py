"""The library, the time limit of a turn, and the projects, as tools of agents."""

from pathlib import Path

import pytest

from integration.builtin.crew.crews import REPEAT_RESULT, Crew, call_step, texts
from toolcrib.gate.policy.bundles import PRESETS
from toolcrib.model.projects import Project
from toolcrib.model.sessions import SessionLimits

pytestmark = pytest.mark.anyio


async def test_library_entry_of_one_agent_is_found_by_others_with_its_author(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    written = await crew.result_of(
        "crib_library_write", cook, key="galley/stove", content="Light it from below. " * 20, title="The stove",
        category="galley", tags=["fire"],
    )  # fmt: skip
    assert (written["key"], written["created"]) == ("galley/stove", True)
    found = await crew.result_of("crib_library_list", mate, query="stov light")
    (entry,) = found["entries"]
    assert (entry["key"], entry["author"], entry["category"]) == ("galley/stove", "cook", "galley")
    assert len(entry["excerpt"]) == 201
    assert found["categories"] == {"galley": 1}
    read = await crew.result_of("crib_library_read", mate, key="galley/stove")
    assert (read["agentId"], read["sessionId"], read["title"]) == ("cook", cook.session, "The stove")
    assert (await crew.result_of("crib_library_list", mate, category="x"))["entries"] == []
    assert await crew.result_of("crib_library_delete", mate, key="galley/stove") == {
        "key": "galley/stove",
        "deleted": True,
    }


async def test_invalid_library_calls_are_errors_with_a_hint(crew: Crew) -> None:
    owner = crew.crib.owner("cli")
    for tool, arguments, words in (
        ("crib_library_write", {"key": "a b", "content": "x"}, "is not a valid key"),
        ("crib_library_write", {"key": "k", "content": ""}, "content has 0"),
        ("crib_library_read", {"key": "none"}, "no entry 'none'"),
        ("crib_library_delete", {"key": "none"}, "no entry 'none'"),
        ("crib_library_list", {"query": "!!"}, "no word"),
    ):
        error = await crew.error_of(tool, owner, **arguments)
        assert words in error
        assert "Hint: " in error


async def test_turn_is_extended_by_an_hour_at_most(crew: Crew) -> None:
    crew.script(
        "more",
        call_step("crib_extend_timeout", minutes=50),
        call_step("crib_extend_timeout", minutes=20),
        REPEAT_RESULT,
    )
    crew.script("once", call_step("crib_extend_timeout", minutes=60), REPEAT_RESULT)
    session = await crew.session(limits=SessionLimits(seconds=30))
    answer = texts(await crew.turn(session.id, "[[script:more]]"))[-1]
    assert "by 60 minutes in total; 10 are left" in answer
    assert '"secondsLeft":36' in texts(await crew.turn(session.id, "[[script:once]]"))[-1], (
        "each turn has its own limit"
    )
    unlimited = await crew.session()
    assert '"secondsLeft":null' in texts(await crew.turn(unlimited.id, "[[script:once]]"))[-1]


async def test_only_a_running_turn_is_extended(crew: Crew) -> None:
    assert "not made in a session" in await crew.error_of("crib_extend_timeout", crew.crib.owner("cli"), minutes=1)
    idle = (await crew.session()).principal
    assert "No turn is running" in await crew.error_of("crib_extend_timeout", idle, minutes=1)
    assert "minutes" in await crew.error_of("crib_extend_timeout", idle, minutes=61)
    assert "minutes" in await crew.error_of("crib_extend_timeout", idle, minutes=0)


async def test_innermost_project_is_the_current_one(crew: Crew, tmp_path: Path) -> None:
    inner = tmp_path / "ship" / "hold"
    inner.mkdir(parents=True)
    projects = crew.crib.permissions.projects
    await projects.save(Project(str(tmp_path / "ship")))
    await projects.save(Project(str(inner), agent="cook", bundles=(PRESETS[0].id,)))
    session = await crew.session(cwd=str(inner))
    current = await crew.result_of("crib_current_project", session.principal)
    assert current["cwd"] == str(inner)
    assert current["project"] == {
        "path": str(inner), "trusted": False, "bundles": [PRESETS[0].id], "agentId": "cook",
    }  # fmt: skip
    listed = await crew.result_of("crib_list_projects", session.principal)
    assert [project["path"] for project in listed["projects"]] == [str(tmp_path / "ship"), str(inner)]
    nowhere = await crew.result_of("crib_current_project", crew.crib.owner("cli"))
    assert nowhere == {"cwd": str(crew.crib.settings.default_cwd), "project": None}
