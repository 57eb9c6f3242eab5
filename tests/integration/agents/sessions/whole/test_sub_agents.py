"""Calls of sub-agents pass the gate and have a parent."""

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, bash_block, tool_block
from toolcrib import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def test_calls_of_a_sub_agent_are_approved_and_recorded(claude: ClaudeCrib) -> None:
    path = claude.project / "touched"
    below = claude.script(
        "below", do(tool_block("mcp__toolcrib__ping")), do(bash_block(f"touch {path}")), do({"text": "Below is done."})
    )
    task: JsonObject = {"description": "d", "prompt": below, "subagent_type": "general-purpose"}
    above = claude.script("above", do(tool_block("Agent", **task)), say("Above is done."))

    async def answer(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            verb = "deny" if event.data["tool"] == "Bash" else "approve"
            await crib.approvals.answer(event.data["approvalId"], verb, by=crib.owner("cli"), reason="Not there.")

    async with claude.crib.session(mode="default") as session:
        turn = await claude.send(session.id, above, answer)
        records = await claude.records(session.id)

    top, ping, touch = turn.calls
    assert (top.parent, ping.parent, touch.parent) == (None, top.id, top.id)
    assert [call.outcome for call in turn.calls] == ["asked"] * 3
    assert [call.is_error for call in turn.calls] == [False, False, True]
    assert not path.exists()
    assert "Not there." in claude.tool_results()
    results = [event for event in turn if event.kind == "tool_result"]
    assert {event.data["toolCallId"]: event.parent for event in results} == {
        call.id: call.parent for call in turn.calls
    }
    assert [event.shape.get("parentToolCallId") for event in results].count(top.id) == 2
    assert len(records) == len(claude.model_call_ids()) == 3
    assert {(call[0]["server"], call[0]["tool"]): [each["phase"] for each in call] for call in records.values()} == {
        ("claude_code", "Task"): ["intent", "outcome"],
        ("toolcrib", "ping"): ["intent", "outcome"],
        ("claude_code", "Bash"): ["outcome"],
    }
