"""What the design that sessions follow promised its users: its acceptance criteria, one test each.

Of the ten, the last three are about that project's own code and tests, and have no counterpart here.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

import orjson
import pytest

from integration.agents.sessions.whole.workshop import Call, Workshop, use
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import JsonObject
from toolcrib.model.version import __version__
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def called(workshop: Workshop, *calls: JsonObject, mode: Literal["acceptEdits"] = "acceptEdits") -> list[Call]:
    """The calls that an agent was told to make in a turn of its own."""
    prompt = workshop.script("s", *map(do, calls), say("Done."))
    async with workshop.crib.session(mode=mode) as session:
        return (await workshop.say(session.id, prompt)).calls


def answer(call: Call) -> JsonObject:
    """What a tool answered, which it says as text and as a structure."""
    structured: JsonObject = call.result["structuredContent"]
    assert orjson.loads(call.result["content"][0]["text"]) == structured
    return structured


async def test_1_the_agent_can_call_ping_and_gets_a_pong_with_its_time(workshop: Workshop) -> None:
    (ping,) = await called(workshop, use("mcp__toolcrib__ping"))
    pong = answer(ping)
    assert (pong["status"], pong["server"]) == ("pong", "toolcrib")
    assert datetime.now(UTC) - datetime.fromisoformat(pong["timestamp"]) < timedelta(minutes=1)
    assert pong["timestamp"] in workshop.heard()


async def test_2_the_agent_can_call_get_server_info_with_and_without_the_uptime(workshop: Workshop) -> None:
    name = "mcp__toolcrib__get_server_info"
    without, with_it = map(answer, await called(workshop, use(name), use(name, include_uptime=True)))
    assert (without["product"], without["version"], without["port"]) == ("Toolcrib", __version__, workshop.crib.port)
    assert "uptime_seconds" not in without
    assert {**without, "uptime_seconds": with_it["uptime_seconds"]} == with_it
    assert with_it["uptime_seconds"] >= 0


async def test_3_the_agent_can_call_get_session_count_and_gets_a_real_count(workshop: Workshop) -> None:
    for _ in range(2):
        await workshop.crib.sessions.create(NewSession("api"))
    (count,) = await called(workshop, use("mcp__toolcrib__get_session_count"))
    assert answer(count) == {"count": 3, "cwd": str(workshop.project)}, "the one that asks counts too"


async def test_4_calls_show_up_as_normal_events(workshop: Workshop) -> None:
    prompt = workshop.script("s", do(use("mcp__lab__change", text="a")), say("Done."))
    async with workshop.crib.session(mode="acceptEdits") as session:
        turn = await workshop.say(session.id, prompt)
    (start,), (end,), (result,) = (turn.of(kind) for kind in ("tool_call_start", "tool_call_end", "tool_result"))
    assert start == {
        "toolCallId": start["toolCallId"], "toolName": "mcp__lab__change", "server": "lab", "tool": "change",
    }  # fmt: skip
    assert end == {"toolCallId": start["toolCallId"], "arguments": {"text": "a"}}
    assert (result["toolCallId"], result["isError"]) == (start["toolCallId"], False)
    kinds = [event.kind for event in turn if event.kind not in ("session_status", "text_delta", "tool_call_delta")]
    assert kinds == ["user_message", "tool_call_start", "tool_call_end", "tool_result", "text_message", "done"]


async def test_5_in_default_mode_calls_bring_up_the_approval(workshop: Workshop) -> None:
    prompt = workshop.script("s", do(use("mcp__toolcrib__ping")), say("Done."))
    async with workshop.crib.session(mode="default") as session:
        turn = await workshop.say(session.id, prompt)
    (call,) = turn.calls
    assert call.approval is not None
    assert (call.approval["server"], call.approval["tool"], call.approval["arguments"]) == ("toolcrib", "ping", {})
    assert "waiting" in [data["state"] for data in turn.of("session_status")]
    assert [data["decision"] for data in turn.of("approval_resolved")] == ["approved"]
    assert "pong" in call.text


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
async def test_6_in_accept_edits_and_bypass_permissions_calls_run_unasked(
    workshop: Workshop, mode: Literal["acceptEdits", "bypassPermissions"]
) -> None:
    prompt = workshop.script("s", do(use("mcp__toolcrib__ping")), say("Done."))
    async with workshop.crib.session(mode=mode) as session:
        turn = await workshop.say(session.id, prompt)
    (call,) = turn.calls
    assert (call.became, turn.of("approval_required")) == ("ran", [])


async def test_7_a_session_that_is_resumed_has_its_memory_and_its_tools(workshop: Workshop) -> None:
    first = workshop.script("first", say("My favourite colour is teal."))
    second = workshop.script("second", do(use("mcp__toolcrib__ping")), say("Done."))
    session = await workshop.crib.sessions.create(NewSession("api", mode="acceptEdits"))
    await workshop.say(session.id, first)
    await workshop.crib.sessions.close(session.id)
    assert workshop.crib.sessions.active() == ()
    turn = await workshop.say(session.id, second)
    assert "pong" in turn.calls[0].text
    assert "My favourite colour is teal." in str(workshop.model.bodies[-1]["messages"])
