"""Upstream tools whose definitions change: held back until a person accepted what differs."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.gate.permissions.answering import Desk, calling, open_desk, upstream
from toolcrib.model.errors import Conflict, Denied, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

TOOL = ToolRef("changing_tools", "tool")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    """A crib with a server that changes when it is told to."""
    async with open_desk(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as desk:
        yield desk


async def become(desk: Desk, way: str) -> None:
    await desk.owner.call(ToolRef("changing_tools", "become"), {"way": way})


async def held(desk: Desk) -> JsonObject:
    """The one definition that is held back, as soon as one is."""

    async def look() -> JsonObject | None:
        found = await desk.owner.permissions.changes()
        return found[0] if found else None

    return await desk.until(look)


async def seen(desk: Desk) -> JsonObject | None:
    return next((tool for tool in await desk.owner.tools(server="changing_tools") if tool["name"] == "tool"), None)


async def test_a_reworded_tool_is_out_until_a_person_accepts_it(desk: Desk) -> None:
    secret = await desk.token("ide")
    assert not (await desk.owner.call(TOOL, {"text": "a"}))["isError"]
    await become(desk, "reworded")
    change = await held(desk)
    assert (change["ref"], change["kind"]) == ("changing_tools/tool", "other")
    assert "send the file .env" in str(change["differences"])
    assert await seen(desk) is None
    assert "tool.changed" in {problem["code"] for problem in await desk.owner.tool_problems()}
    with pytest.raises((NotFound, Denied)):
        await desk.owner.call(TOOL, {"text": "a"})
    async with desk.mcp(secret, "2026-07-28") as client:
        assert "changing_tools_tool" not in {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("changing_tools_tool", {})
        assert refused.is_error and "tool.changed" in str(refused.content)
    await desk.owner.permissions.judge(TOOL, "accept", change["hash"])
    assert await desk.owner.permissions.changes() == []
    tool = await seen(desk)
    assert tool is not None
    assert "send the file .env" in tool["description"]
    assert (await desk.owner.call(TOOL, {"text": "a"}))["content"][0]["text"] == "called reworded"


async def test_a_rejected_definition_stays_out_until_the_server_goes_back(desk: Desk) -> None:
    await become(desk, "needy")
    change = await held(desk)
    await desk.owner.permissions.judge(TOOL, "reject", change["hash"])
    assert (await held(desk))["rejectedBy"] == "owner"
    assert await seen(desk) is None
    with pytest.raises(Conflict):
        await desk.owner.permissions.judge(TOOL, "accept", "0" * 64)
    await become(desk, "plain")

    async def back() -> bool:
        return await seen(desk) is not None

    await desk.until(back)
    assert await desk.owner.permissions.changes() == []


async def test_a_wider_tool_passes(desk: Desk) -> None:
    await become(desk, "wider")

    async def wider() -> bool:
        tool = await seen(desk)
        return tool is not None and "sep" in tool["inputSchema"]["properties"]

    await desk.until(wider)
    assert await desk.owner.permissions.changes() == []


async def test_a_hint_that_a_tool_only_reads_counts_in_plan_once_it_was_accepted(desk: Desk) -> None:
    await become(desk, "hinted")
    change = await held(desk)
    planner = desk.crib.principals.owner("api", mode="plan")
    with pytest.raises(ToolcribError):
        await desk.crib.call(TOOL, {}, principal=planner)
    await desk.owner.permissions.judge(TOOL, "accept", change["hash"])
    assert not (await desk.crib.call(TOOL, {}, principal=planner)).is_error


async def test_the_hints_of_a_first_definition_count_in_plan_only_once_a_person_agreed(tmp_path: Path) -> None:
    async with open_desk(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as desk:
        await become(desk, "hinted")
        change = await held(desk)
        await desk.owner.permissions.judge(TOOL, "accept", change["hash"])
    async with open_desk(tmp_path) as desk:
        planner = desk.crib.principals.owner("api", mode="plan")
        assert not (await desk.crib.call(TOOL, {}, principal=planner)).is_error, "a person's word outlives the crib"
        with pytest.raises(Denied, match="read-only"):
            await desk.crib.call(ToolRef("changing_tools", "become"), {"way": "plain"}, principal=planner)


async def test_a_definition_that_changes_while_a_person_thinks_is_refused(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(TOOL, {"text": "a"})) as call:
            question = await desk.question()
            await become(desk, "reworded")
            change = await held(desk)
            await desk.owner.permissions.judge(TOOL, "accept", change["hash"])
            await desk.answer(question["id"], "approve")
        assert isinstance(call.raised, Denied)
        assert call.raised.code == "tool.changed"
    assert [record["phase"] for record in await desk.records("tool")] == ["outcome"]


async def test_no_program_judges_definitions(desk: Desk) -> None:
    await become(desk, "reworded")
    change = await held(desk)
    async with desk.rest(await desk.token("robot", source="api", mayApprove=True)) as robot:
        with pytest.raises((NotFound, Denied)):
            await robot.permissions.judge(TOOL, "accept", change["hash"])
    for agent in (desk.crib.principals.owner("agent"), desk.crib.principals.owner("ide")):
        with pytest.raises(Denied):
            await desk.crib.intake.accept(None, TOOL, change["hash"], agent)
    assert await seen(desk) is None
