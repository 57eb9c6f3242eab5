"""The acceptance criteria of the session design, one test each; the last three have no counterpart here."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import orjson
import pytest

from integration.agents.sessions.whole.claude_crib import Call, ClaudeCrib, tool_block
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import JsonObject
from toolcrib.model.version import __version__
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def calls_of(claude: ClaudeCrib, *calls: JsonObject, mode: Literal["acceptEdits"] = "acceptEdits") -> list[Call]:
    """Return the calls that an agent makes in one turn."""
    prompt = claude.script("s", *map(do, calls), say("Done."))
    async with claude.crib.session(mode=mode) as session:
        return (await claude.send(session.id, prompt)).calls


def structured_result(call: Call) -> JsonObject:
    """Return the structured content of a result; its text is the same."""
    structured: JsonObject = call.result["structuredContent"]
    assert orjson.loads(call.result["content"][0]["text"]) == structured
    return structured


async def test_1_agent_can_call_ping(claude: ClaudeCrib) -> None:
    (ping,) = await calls_of(claude, tool_block("mcp__toolcrib__ping"))
    pong = structured_result(ping)
    assert (pong["status"], pong["server"]) == ("pong", "toolcrib")
    assert datetime.now(UTC) - datetime.fromisoformat(pong["timestamp"]) < timedelta(minutes=1)
    assert pong["timestamp"] in claude.tool_results()


async def test_2_agent_can_call_get_server_info_with_and_without_uptime(claude: ClaudeCrib) -> None:
    name = "mcp__toolcrib__get_server_info"
    without, with_it = map(
        structured_result, await calls_of(claude, tool_block(name), tool_block(name, include_uptime=True))
    )
    assert (without["product"], without["version"], without["port"]) == ("Toolcrib", __version__, claude.crib.port)
    assert "uptime_seconds" not in without
    assert {**without, "uptime_seconds": with_it["uptime_seconds"]} == with_it
    assert with_it["uptime_seconds"] >= 0


async def test_3_agent_can_call_get_session_count(claude: ClaudeCrib) -> None:
    for _ in range(2):
        await claude.crib.sessions.create(NewSession("api"))
    (count,) = await calls_of(claude, tool_block("mcp__toolcrib__get_session_count"))
    assert structured_result(count) == {"count": 3, "cwd": str(claude.project)}, "the calling session counts too"


async def test_4_calls_are_normal_events(claude: ClaudeCrib) -> None:
    prompt = claude.script("s", do(tool_block("mcp__lab__change", text="a")), say("Done."))
    async with claude.crib.session(mode="acceptEdits") as session:
        turn = await claude.send(session.id, prompt)
    (start,), (end,), (result,) = (turn.of(kind) for kind in ("tool_call_start", "tool_call_end", "tool_result"))
    assert start == {
        "toolCallId": start["toolCallId"], "toolName": "mcp__lab__change", "server": "lab", "tool": "change",
    }  # fmt: skip
    assert end == {"toolCallId": start["toolCallId"], "arguments": {"text": "a"}}
    assert (result["toolCallId"], result["isError"]) == (start["toolCallId"], False)
    kinds = [event.kind for event in turn if event.kind not in ("session_status", "text_delta", "tool_call_delta")]
    assert kinds == ["user_message", "tool_call_start", "tool_call_end", "tool_result", "text_message", "done"]


async def test_5_calls_in_default_mode_need_approval(claude: ClaudeCrib) -> None:
    prompt = claude.script("s", do(tool_block("mcp__toolcrib__ping")), say("Done."))
    async with claude.crib.session(mode="default") as session:
        turn = await claude.send(session.id, prompt)
    (call,) = turn.calls
    assert call.approval is not None
    assert (call.approval["server"], call.approval["tool"], call.approval["arguments"]) == ("toolcrib", "ping", {})
    assert "waiting" in [data["state"] for data in turn.of("session_status")]
    assert [data["decision"] for data in turn.of("approval_resolved")] == ["approved"]
    assert "pong" in call.text


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
async def test_6_calls_in_permissive_modes_need_no_approval(
    claude: ClaudeCrib, mode: Literal["acceptEdits", "bypassPermissions"]
) -> None:
    prompt = claude.script("s", do(tool_block("mcp__toolcrib__ping")), say("Done."))
    async with claude.crib.session(mode=mode) as session:
        turn = await claude.send(session.id, prompt)
    (call,) = turn.calls
    assert (call.outcome, turn.of("approval_required")) == ("ran", [])


async def test_7_resumed_session_has_its_history_and_tools(claude: ClaudeCrib) -> None:
    first = claude.script("first", say("My favourite colour is teal."))
    second = claude.script("second", do(tool_block("mcp__toolcrib__ping")), say("Done."))
    session = await claude.crib.sessions.create(NewSession("api", mode="acceptEdits"))
    await claude.send(session.id, first)
    await claude.crib.sessions.close(session.id)
    assert claude.crib.sessions.active() == ()
    turn = await claude.send(session.id, second)
    assert "pong" in turn.calls[0].text
    assert "My favourite colour is teal." in str(claude.model.bodies[-1]["messages"])
