"""Sub-agents: their calls take the same road, and say whose they are."""

import pytest

from integration.agents.sessions.whole.workshop import Workshop, bash, use
from toolcrib import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def test_calls_of_a_sub_agent_are_asked_for_decided_and_recorded_like_all_others(workshop: Workshop) -> None:
    path = workshop.project / "touched"
    below = workshop.script(
        "below", do(use("mcp__toolcrib__ping")), do(bash(f"touch {path}")), do({"text": "Below is done."})
    )
    task: JsonObject = {"description": "d", "prompt": below, "subagent_type": "general-purpose"}
    above = workshop.script("above", do(use("Agent", **task)), say("Above is done."))

    async def person(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            verb = "deny" if event.data["tool"] == "Bash" else "approve"
            await crib.approvals.answer(event.data["approvalId"], verb, by=crib.owner("cli"), reason="Not there.")

    async with workshop.crib.session(mode="default") as session:
        turn = await workshop.say(session.id, above, person)
        records = await workshop.records(session.id)

    top, ping, touch = turn.calls
    assert (top.parent, ping.parent, touch.parent) == (None, top.id, top.id)
    assert [call.became for call in turn.calls] == ["asked"] * 3
    assert [call.is_error for call in turn.calls] == [False, False, True]
    assert not path.exists()
    assert "Not there." in workshop.heard()
    results = [event for event in turn if event.kind == "tool_result"]
    assert {event.data["toolCallId"]: event.parent for event in results} == {
        call.id: call.parent for call in turn.calls
    }
    assert [event.shape.get("parentToolCallId") for event in results].count(top.id) == 2
    assert len(records) == len(workshop.made()) == 3
    assert {(call[0]["server"], call[0]["tool"]): [each["phase"] for each in call] for call in records.values()} == {
        ("claude_code", "Task"): ["intent", "outcome"],
        ("toolcrib", "ping"): ["intent", "outcome"],
        ("claude_code", "Bash"): ["outcome"],
    }
