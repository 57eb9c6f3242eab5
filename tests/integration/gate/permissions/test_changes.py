"""Upstream tools with changed definitions: held back until a person accepts the differences."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.gate.permissions.shop_lab import ShopLab, background_call, open_shop_lab, upstream
from toolcrib.model.errors import Conflict, Denied, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

TOOL = ToolRef("changing_tools", "tool")


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[ShopLab]:
    """Open a crib with a server that changes its definitions on request."""
    async with open_shop_lab(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as lab:
        yield lab


async def change_definition(lab: ShopLab, way: str) -> None:
    await lab.owner.call(ToolRef("changing_tools", "become"), {"way": way})


async def held_definition(lab: ShopLab) -> JsonObject:
    """Wait for a held definition and return it."""

    async def look() -> JsonObject | None:
        found = await lab.owner.permissions.changes()
        return found[0] if found else None

    return await lab.until(look)


async def listed_tool(lab: ShopLab) -> JsonObject | None:
    return next((tool for tool in await lab.owner.tools(server="changing_tools") if tool["name"] == "tool"), None)


async def test_reworded_tool_is_unavailable_until_it_is_accepted(lab: ShopLab) -> None:
    secret = await lab.token("ide")
    assert not (await lab.owner.call(TOOL, {"text": "a"}))["isError"]
    await change_definition(lab, "reworded")
    change = await held_definition(lab)
    assert (change["ref"], change["kind"]) == ("changing_tools/tool", "other")
    assert "send the file .env" in str(change["differences"])
    assert await listed_tool(lab) is None
    assert "tool.changed" in {problem["code"] for problem in await lab.owner.tool_problems()}
    with pytest.raises((NotFound, Denied)):
        await lab.owner.call(TOOL, {"text": "a"})
    async with lab.mcp(secret, "2026-07-28") as client:
        assert "changing_tools_tool" not in {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("changing_tools_tool", {})
        assert refused.is_error and "tool.changed" in str(refused.content)
    await lab.owner.permissions.judge(TOOL, "accept", change["hash"])
    assert await lab.owner.permissions.changes() == []
    tool = await listed_tool(lab)
    assert tool is not None
    assert "send the file .env" in tool["description"]
    assert (await lab.owner.call(TOOL, {"text": "a"}))["content"][0]["text"] == "called reworded"


async def test_rejected_definition_stays_unavailable_until_it_reverts(lab: ShopLab) -> None:
    await change_definition(lab, "needy")
    change = await held_definition(lab)
    await lab.owner.permissions.judge(TOOL, "reject", change["hash"])
    assert (await held_definition(lab))["rejectedBy"] == "owner"
    assert await listed_tool(lab) is None
    with pytest.raises(Conflict):
        await lab.owner.permissions.judge(TOOL, "accept", "0" * 64)
    await change_definition(lab, "plain")

    async def back() -> bool:
        return await listed_tool(lab) is not None

    await lab.until(back)
    assert await lab.owner.permissions.changes() == []


async def test_tool_with_an_added_optional_argument_stays_available(lab: ShopLab) -> None:
    await change_definition(lab, "wider")

    async def wider() -> bool:
        tool = await listed_tool(lab)
        return tool is not None and "sep" in tool["inputSchema"]["properties"]

    await lab.until(wider)
    assert await lab.owner.permissions.changes() == []


async def test_read_only_hint_counts_in_plan_mode_once_accepted(lab: ShopLab) -> None:
    await change_definition(lab, "hinted")
    change = await held_definition(lab)
    planner = lab.crib.principals.owner("api", mode="plan")
    with pytest.raises(ToolcribError):
        await lab.crib.call(TOOL, {}, principal=planner)
    await lab.owner.permissions.judge(TOOL, "accept", change["hash"])
    assert not (await lab.crib.call(TOOL, {}, principal=planner)).is_error


async def test_accepted_hints_of_a_definition_survive_a_restart(tmp_path: Path) -> None:
    async with open_shop_lab(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as lab:
        await change_definition(lab, "hinted")
        change = await held_definition(lab)
        await lab.owner.permissions.judge(TOOL, "accept", change["hash"])
    async with open_shop_lab(tmp_path) as lab:
        planner = lab.crib.principals.owner("api", mode="plan")
        assert not (await lab.crib.call(TOOL, {}, principal=planner)).is_error, "the acceptance was lost at the restart"
        with pytest.raises(Denied, match="read-only"):
            await lab.crib.call(ToolRef("changing_tools", "become"), {"way": "plain"}, principal=planner)


async def test_call_is_refused_when_the_definition_changed_while_pending(lab: ShopLab) -> None:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(TOOL, {"text": "a"})) as call:
            approval = await lab.pending_approval()
            await change_definition(lab, "reworded")
            change = await held_definition(lab)
            await lab.owner.permissions.judge(TOOL, "accept", change["hash"])
            await lab.answer(approval["id"], "approve")
        assert isinstance(call.raised, Denied)
        assert call.raised.code == "tool.changed"
    assert [record["phase"] for record in await lab.records("tool")] == ["outcome"]


async def test_programs_cannot_accept_definitions(lab: ShopLab) -> None:
    await change_definition(lab, "reworded")
    change = await held_definition(lab)
    async with lab.rest(await lab.token("robot", source="api", mayApprove=True)) as robot:
        with pytest.raises((NotFound, Denied)):
            await robot.permissions.judge(TOOL, "accept", change["hash"])
    for agent in (lab.crib.principals.owner("agent"), lab.crib.principals.owner("ide")):
        with pytest.raises(Denied):
            await lab.crib.intake.accept(None, TOOL, change["hash"], agent)
    assert await listed_tool(lab) is None
