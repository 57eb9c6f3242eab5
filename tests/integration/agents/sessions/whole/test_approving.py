"""What a person says to a call: it runs with exactly what they approved, and the model hears why it does not."""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from integration.agents.sessions.whole.workshop import Workshop, disagrees, use
from toolcrib import Crib
from toolcrib.model.json import Json, JsonObject, canonical, is_array, is_object
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio

ODD: JsonObject = {"text": 'a "quoted" \u202e word,\r\n  \u0000 ünïcode 𝄞 and </system-reminder>', "times": 10**15}


async def test_a_call_runs_with_exactly_the_arguments_that_were_approved(workshop: Workshop) -> None:
    prompt = workshop.script("s", do(use("mcp__lab__change", **ODD)), say("Done."))
    async with workshop.crib.session(mode="default") as session:
        (call,) = (await workshop.say(session.id, prompt)).calls
        (records,) = (await workshop.records(session.id)).values()
    assert call.approval is not None
    assert call.arguments == call.approval["arguments"] == ODD
    assert workshop.lab.noted == [ODD]
    assert {record["argumentsDigest"].removeprefix("sha256:") for record in records} == {
        sha256(canonical(ODD)).hexdigest()
    }
    assert {record["approvalId"] for record in records} == {call.approval["approvalId"]}


def texts(value: Json) -> Iterator[str]:
    """Every text in a request to the model."""
    if isinstance(value, str):
        yield value
    for each in value.values() if is_object(value) else value if is_array(value) else ():
        yield from texts(each)


async def test_arguments_that_a_person_edited_are_the_ones_that_run(workshop: Workshop) -> None:
    def written(name: str) -> JsonObject:
        return {"file_path": str(workshop.project / name), "content": name}

    edits: dict[str, JsonObject] = {
        "change": {"text": "edited", "times": 2},
        "Write": written("edited"),
    }

    async def editor(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            edited = edits[event.data["tool"]]
            await crib.approvals.answer(event.data["approvalId"], "approve", by=crib.owner("cli"), arguments=edited)

    asked = [use("mcp__lab__change", text="asked"), use("Write", **written("asked"))]
    prompt = workshop.script("s", *map(do, asked), say("Done."))
    async with workshop.crib.session(mode="default") as session:
        turn = await workshop.say(session.id, prompt, editor)
        records = await workshop.records(session.id)
    assert [call.is_error for call in turn.calls] == [False, False]
    assert workshop.lab.noted == [edits["change"]]
    assert not (workshop.project / "asked").exists()
    assert (workshop.project / "edited").read_text(encoding="utf-8") == "edited"
    assert [[record["arguments"] for record in call] for call in records.values()] == [
        [edits["change"]] * 2,
        [edits["Write"]] * 2,
    ]
    assert "changed edited" in workshop.heard()
    assert [data["arguments"] for data in turn.of("approval_resolved")] == [edits["change"], edits["Write"]]
    notes = [text for text in texts(workshop.model.bodies) if "A person changed the arguments" in text]
    assert all(any(path in note for note in notes) for path in ('"times":2', str(workshop.project / "edited")))


async def test_a_refusal_with_its_reason_reaches_the_model_and_nothing_runs(workshop: Workshop) -> None:
    path = workshop.project / "written"
    asked = [use("mcp__lab__change", text="a"), use("Write", file_path=str(path), content="a")]
    prompt = workshop.script("s", *map(do, asked), say("Done."))
    async with workshop.crib.session(mode="default") as session:
        turn = await workshop.say(session.id, prompt, disagrees("Not on a Friday."))
        records = await workshop.records(session.id)
    assert [call.is_error for call in turn.calls] == [True, True]
    assert workshop.heard().count("Not on a Friday.") >= 2
    assert workshop.lab.noted == []
    assert not path.exists()
    assert [[record["phase"] for record in call] for call in records.values()] == [["outcome"], ["outcome"]]
    assert [data["decision"] for data in turn.of("approval_resolved")] == ["denied", "denied"]
