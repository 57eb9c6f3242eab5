"""The library, the time of a turn and the projects, as agents meet them."""

from pathlib import Path

import pytest

from integration.builtin.crew.crews import HEARD, Crew, do, texts
from toolcrib.gate.policy.presets import PRESETS
from toolcrib.model.projects import Project
from toolcrib.model.sessions import SessionLimits

pytestmark = pytest.mark.anyio


async def test_what_one_agent_writes_all_find_with_its_author(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    written = await crew.ok(
        "crib_library_write", cook, key="galley/stove", content="Light it from below. " * 20, title="The stove",
        category="galley", tags=["fire"],
    )  # fmt: skip
    assert (written["key"], written["created"]) == ("galley/stove", True)
    found = await crew.ok("crib_library_list", mate, query="stov light")
    (entry,) = found["entries"]
    assert (entry["key"], entry["author"], entry["category"]) == ("galley/stove", "cook", "galley")
    assert len(entry["excerpt"]) == 201
    assert found["categories"] == {"galley": 1}
    read = await crew.ok("crib_library_read", mate, key="galley/stove")
    assert (read["agentId"], read["sessionId"], read["title"]) == ("cook", cook.session, "The stove")
    assert (await crew.ok("crib_library_list", mate, category="x"))["entries"] == []
    assert await crew.ok("crib_library_delete", mate, key="galley/stove") == {"key": "galley/stove", "deleted": True}


async def test_failures_of_the_library_say_what_to_do(crew: Crew) -> None:
    owner = crew.crib.owner("cli")
    for tool, arguments, words in (
        ("crib_library_write", {"key": "a b", "content": "x"}, "is not a valid key"),
        ("crib_library_write", {"key": "k", "content": ""}, "content has 0"),
        ("crib_library_read", {"key": "none"}, "no entry 'none'"),
        ("crib_library_delete", {"key": "none"}, "no entry 'none'"),
        ("crib_library_list", {"query": "!!"}, "no word"),
    ):
        said = await crew.wrong(tool, owner, **arguments)
        assert words in said
        assert "Hint: " in said


async def test_a_turn_takes_more_time_but_an_hour_at_most(crew: Crew) -> None:
    crew.script("more", do("crib_extend_timeout", minutes=50), do("crib_extend_timeout", minutes=20), HEARD)
    crew.script("once", do("crib_extend_timeout", minutes=60), HEARD)
    session = await crew.session(limits=SessionLimits(seconds=30))
    said = texts(await crew.turn(session.id, "[[script:more]]"))[-1]
    assert "by 60 minutes in total; 10 are left" in said
    assert '"secondsLeft":36' in texts(await crew.turn(session.id, "[[script:once]]"))[-1], "each turn begins anew"
    unlimited = await crew.session()
    assert '"secondsLeft":null' in texts(await crew.turn(unlimited.id, "[[script:once]]"))[-1]


async def test_more_time_is_for_sessions_whose_turn_runs(crew: Crew) -> None:
    assert "not made in a session" in await crew.wrong("crib_extend_timeout", crew.crib.owner("cli"), minutes=1)
    idle = (await crew.session()).principal
    assert "No turn is running" in await crew.wrong("crib_extend_timeout", idle, minutes=1)
    assert "minutes" in await crew.wrong("crib_extend_timeout", idle, minutes=61)
    assert "minutes" in await crew.wrong("crib_extend_timeout", idle, minutes=0)


async def test_the_innermost_project_is_the_current_one(crew: Crew, tmp_path: Path) -> None:
    inner = tmp_path / "ship" / "hold"
    inner.mkdir(parents=True)
    projects = crew.crib.permissions.projects
    await projects.save(Project(str(tmp_path / "ship")))
    await projects.save(Project(str(inner), agent="cook", bundles=(PRESETS[0].id,)))
    session = await crew.session(cwd=str(inner))
    current = await crew.ok("crib_current_project", session.principal)
    assert current["cwd"] == str(inner)
    assert current["project"] == {
        "path": str(inner), "trusted": False, "bundles": [PRESETS[0].id], "agentId": "cook",
    }  # fmt: skip
    listed = await crew.ok("crib_list_projects", session.principal)
    assert [project["path"] for project in listed["projects"]] == [str(tmp_path / "ship"), str(inner)]
    nowhere = await crew.ok("crib_current_project", crew.crib.owner("cli"))
    assert nowhere == {"cwd": str(crew.crib.settings.default_cwd), "project": None}
