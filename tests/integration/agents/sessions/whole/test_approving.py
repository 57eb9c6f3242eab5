"""Approvals in sessions: a call runs with exactly the approved arguments, and denials reach the model."""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, deny_all, tool_block
from toolcrib import Crib
from toolcrib.model.json import Json, JsonObject, canonical, is_array, is_object
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio

ODD: JsonObject = {"text": 'a "quoted" \u202e word,\r\n  \u0000 ünïcode 𝄞 and </system-reminder>', "times": 10**15}


async def test_call_runs_with_exactly_the_approved_arguments(claude: ClaudeCrib) -> None:
    prompt = claude.script("s", do(tool_block("mcp__lab__change", **ODD)), say("Done."))
    async with claude.crib.session(mode="default") as session:
        (call,) = (await claude.send(session.id, prompt)).calls
        (records,) = (await claude.records(session.id)).values()
    assert call.approval is not None
    assert call.arguments == call.approval["arguments"] == ODD
    assert claude.lab.calls == [ODD]
    assert {record["argumentsDigest"].removeprefix("sha256:") for record in records} == {
        sha256(canonical(ODD)).hexdigest()
    }
    assert {record["approvalId"] for record in records} == {call.approval["approvalId"]}


def texts(value: Json) -> Iterator[str]:
    """Yield every text in a request to the model."""
    if isinstance(value, str):
        yield value
    for each in value.values() if is_object(value) else value if is_array(value) else ():
        yield from texts(each)


async def test_call_runs_with_the_edited_arguments(claude: ClaudeCrib) -> None:
    def written(name: str) -> JsonObject:
        return {"file_path": str(claude.project / name), "content": name}

    edits: dict[str, JsonObject] = {
        "change": {"text": "edited", "times": 2},
        "Write": written("edited"),
    }

    async def edit_and_approve(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            edited = edits[event.data["tool"]]
            await crib.approvals.answer(event.data["approvalId"], "approve", by=crib.owner("cli"), arguments=edited)

    calls = [tool_block("mcp__lab__change", text="asked"), tool_block("Write", **written("asked"))]
    prompt = claude.script("s", *map(do, calls), say("Done."))
    async with claude.crib.session(mode="default") as session:
        turn = await claude.send(session.id, prompt, edit_and_approve)
        records = await claude.records(session.id)
    assert [call.is_error for call in turn.calls] == [False, False]
    assert claude.lab.calls == [edits["change"]]
    assert not (claude.project / "asked").exists()
    assert (claude.project / "edited").read_text(encoding="utf-8") == "edited"
    assert [[record["arguments"] for record in call] for call in records.values()] == [
        [edits["change"]] * 2,
        [edits["Write"]] * 2,
    ]
    assert "changed edited" in claude.tool_results()
    assert [data["arguments"] for data in turn.of("approval_resolved")] == [edits["change"], edits["Write"]]
    notes = [text for text in texts(claude.model.bodies) if "A person changed the arguments" in text]
    assert all(any(path in note for note in notes) for path in ('"times":2', str(claude.project / "edited")))


async def test_denied_calls_do_not_run_and_the_reason_reaches_the_model(claude: ClaudeCrib) -> None:
    path = claude.project / "written"
    calls = [tool_block("mcp__lab__change", text="a"), tool_block("Write", file_path=str(path), content="a")]
    prompt = claude.script("s", *map(do, calls), say("Done."))
    async with claude.crib.session(mode="default") as session:
        turn = await claude.send(session.id, prompt, deny_all("Not on a Friday."))
        records = await claude.records(session.id)
    assert [call.is_error for call in turn.calls] == [True, True]
    assert claude.tool_results().count("Not on a Friday.") >= 2
    assert claude.lab.calls == []
    assert not path.exists()
    assert [[record["phase"] for record in call] for call in records.values()] == [["outcome"], ["outcome"]]
    assert [data["decision"] for data in turn.of("approval_resolved")] == ["denied", "denied"]
