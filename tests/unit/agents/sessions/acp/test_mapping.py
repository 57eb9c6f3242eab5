"""Updates of ACP agents become events: each call once and in order, whatever is missing, repeated or late."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.sessions.acp.mapping import AcpEmission, AcpMapper, AcpOutcome
from toolcrib.agents.sessions.acp.recognition import Recognition
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.testing.runner_rig import ECHO

ECHO_CALL: JsonObject = {"toolCallId": "1", "title": "toolcrib_lab_echo", "kind": "other"}
ORDER = ["tool_call_start", "tool_call_end", "tool_result"]


def mapper() -> AcpMapper:
    """Return a mapper that knows `lab_echo`."""
    return AcpMapper(Recognition({"lab_echo": ECHO}, "plain"))


def chunk(text: str, kind: str = "agent_message_chunk", **more: str) -> JsonObject:
    """Return a piece of a message."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}


def call_update(update: str = "tool_call_update", /, **fields: Any) -> JsonObject:
    """Return an update about a call."""
    return {"sessionUpdate": update, **fields}


def kinds(emissions: list[AcpEmission]) -> list[str]:
    """Return the kinds of the emitted events."""
    return [emission.kind for emission in emissions]


def test_pieces_are_joined_into_a_message_when_another_update_arrives() -> None:
    mapped = mapper()
    events = [*mapped.take(chunk("I ")), *mapped.take(chunk("look."))]
    events += mapped.take(chunk("hm", "agent_thought_chunk"))
    events += [*mapped.take(chunk("Done.")), *mapped.finish("")]
    assert kinds(events) == ["text_delta", "text_delta", "text_message", "thinking_delta", "text_delta", "text_message"]
    wholes = [each.data for each in events if each.kind == "text_message"]
    assert [each["text"] for each in wholes] == ["I look.", "Done."]
    assert wholes[0]["messageId"] != wholes[1]["messageId"]


def test_message_ids_of_the_agent_separate_messages() -> None:
    mapped = mapper()
    events = [*mapped.take(chunk("a", messageId="m1")), *mapped.take(chunk("b", messageId="m2")), *mapped.finish("")]
    assert [each.data["text"] for each in events if each.kind == "text_message"] == ["a", "b"]


def test_arguments_are_emitted_when_they_are_complete() -> None:
    mapped = mapper()
    events = mapped.take(call_update("tool_call", **ECHO_CALL, status="pending", rawInput={}))
    events += mapped.take(call_update(toolCallId="1", rawInput={"te": "half"}))
    events += mapped.asked({"toolCallId": "1", "rawInput": {"text": "a"}})
    events += mapped.take(call_update(toolCallId="1", status="completed", rawOutput="out"))
    assert kinds(events) == ORDER
    assert events[1].data["arguments"] == {"text": "a"}
    assert events[2].data["content"] == [{"type": "text", "text": "out"}]


def test_endpoint_call_matches_the_announced_call_with_its_arguments() -> None:
    mapped = mapper()
    for id, text in (("1", "a"), ("2", "b")):
        mapped.take(call_update("tool_call", **{**ECHO_CALL, "toolCallId": id}, rawInput={"text": text}))
    second = mapped.announced(ECHO, {"text": "b"}, exactly=True)
    assert second is not None
    assert second.id == "2"
    mapped.make(second, ECHO, {"text": "b"}, "lab_echo")
    assert mapped.announced(ECHO, {"text": "b"}, exactly=True) is None
    first = mapped.announced(ECHO, {"text": "b"}, exactly=False)
    assert first is not None
    assert first.id == "1"


def test_unannounced_call_is_emitted_and_a_late_update_adds_nothing() -> None:
    mapped = mapper()
    call, events = mapped.make(None, ECHO, {"text": "a"}, "lab_echo")
    assert kinds(events) == ORDER[:2]
    late = mapped.take(call_update("tool_call", **ECHO_CALL, status="in_progress"))
    assert late == []
    call.outcome = AcpOutcome(3.0, CallResult.text("pong"))
    assert mapped.result(call) == []
    (result,) = mapped.take(call_update(toolCallId="1", status="completed"))
    assert (result.kind, result.data["toolCallId"], result.data["durationMs"]) == ("tool_result", call.id, 3.0)
    assert mapped.take(call_update(toolCallId="1", status="completed")) == []


def test_update_after_the_result_of_a_call_adds_nothing() -> None:
    mapped = mapper()
    call, _ = mapped.make(None, ECHO, {}, "lab_echo")
    mapped.result(call)
    assert mapped.take(call_update("tool_call", **ECHO_CALL, status="completed")) == []
    assert kinds(mapped.take(call_update("tool_call", **{**ECHO_CALL, "toolCallId": "2"}))) == ORDER[:1]


def test_outcome_of_the_host_replaces_the_result_of_the_agent() -> None:
    mapped = mapper()
    mapped.take(call_update("tool_call", **ECHO_CALL))
    call, _ = mapped.make(mapped.call("1"), ECHO, {}, "lab_echo")
    call.outcome = AcpOutcome(
        1.0, CallResult(({"type": "text", "text": "all of it"},), structured_content=1, has_structured=True)
    )
    (result,) = mapped.take(call_update(toolCallId="1", status="completed", rawOutput="all…"))
    assert (result.data["content"][0]["text"], result.data["structuredContent"]) == ("all of it", 1)


def test_sub_agent_call_carries_the_id_of_its_parent() -> None:
    meta = {"claudeCode": {"toolName": "Bash", "parentToolUseId": "p"}}
    (start,) = mapper().take(call_update("tool_call", toolCallId="1", title="ls", kind="execute", _meta=meta))
    assert start.parent == "p"
    assert (start.data["server"], start.data["tool"]) == ("claude_code", "Bash")


def test_unknown_updates_are_ignored() -> None:
    mapped = mapper()
    for update in ({}, {"sessionUpdate": "plan"}, {"sessionUpdate": "new"}, chunk(""), call_update(title="no id")):
        assert mapped.take(update) == []


UPDATES = st.fixed_dictionaries(
    {
        "sessionUpdate": st.sampled_from(["tool_call", "tool_call_update"]),
        "toolCallId": st.sampled_from(["1", "2", "3"]),
    },
    optional={
        "title": st.sampled_from(["toolcrib_lab_echo", "ls"]),
        "kind": st.sampled_from(["other", "execute", "read", None]),
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed", None]),
        "rawInput": st.sampled_from([{}, {"command": "ls"}, None, 3]),
        "content": st.sampled_from([[], [{"type": "diff", "path": "a"}], None]),
    },
)


@given(st.lists(UPDATES, max_size=20), st.lists(st.booleans(), max_size=20))
def test_each_call_is_emitted_once_and_in_order(updates: list[JsonObject], asks: list[bool]) -> None:
    mapped = mapper()
    events: list[AcpEmission] = []
    for update, ask in zip(updates, [*asks, *[False] * len(updates)], strict=False):
        events += mapped.asked(update) if ask else mapped.take(update)
    events += mapped.finish("The turn is over.")
    for id in {emission.data["toolCallId"] for emission in events}:
        assert [each.kind for each in events if each.data["toolCallId"] == id] == ORDER
