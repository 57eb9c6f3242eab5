"""Updates of agents as events: every call once and in order, whatever is left out, repeated or said too late."""

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
    """One that knows `lab_echo`."""
    return AcpMapper(Recognition({"lab_echo": ECHO}, "plain"))


def chunk(text: str, kind: str = "agent_message_chunk", **more: str) -> JsonObject:
    """A piece of what an agent says."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}


def word(update: str = "tool_call_update", /, **said: Any) -> JsonObject:
    """A word of an agent on a call."""
    return {"sessionUpdate": update, **said}


def kinds(emissions: list[AcpEmission]) -> list[str]:
    """What is told."""
    return [emission.kind for emission in emissions]


def test_pieces_become_a_whole_when_something_else_is_said() -> None:
    mapped = mapper()
    told = [*mapped.take(chunk("I ")), *mapped.take(chunk("look."))]
    told += mapped.take(chunk("hm", "agent_thought_chunk"))
    told += [*mapped.take(chunk("Done.")), *mapped.finish("")]
    assert kinds(told) == ["text_delta", "text_delta", "text_message", "thinking_delta", "text_delta", "text_message"]
    wholes = [each.data for each in told if each.kind == "text_message"]
    assert [each["text"] for each in wholes] == ["I look.", "Done."]
    assert wholes[0]["messageId"] != wholes[1]["messageId"]


def test_messages_that_an_agent_numbers_are_told_apart_by_that() -> None:
    mapped = mapper()
    told = [*mapped.take(chunk("a", messageId="m1")), *mapped.take(chunk("b", messageId="m2")), *mapped.finish("")]
    assert [each.data["text"] for each in told if each.kind == "text_message"] == ["a", "b"]


def test_arguments_are_told_when_they_are_complete() -> None:
    mapped = mapper()
    told = mapped.take(word("tool_call", **ECHO_CALL, status="pending", rawInput={}))
    told += mapped.take(word(toolCallId="1", rawInput={"te": "half"}))
    told += mapped.asked({"toolCallId": "1", "rawInput": {"text": "a"}})
    told += mapped.take(word(toolCallId="1", status="completed", rawOutput="out"))
    assert kinds(told) == ORDER
    assert told[1].data["arguments"] == {"text": "a"}
    assert told[2].data["content"] == [{"type": "text", "text": "out"}]


def test_a_call_at_the_endpoint_is_the_one_that_was_announced_with_its_arguments() -> None:
    mapped = mapper()
    for id, text in (("1", "a"), ("2", "b")):
        mapped.take(word("tool_call", **{**ECHO_CALL, "toolCallId": id}, rawInput={"text": text}))
    second = mapped.announced(ECHO, {"text": "b"}, exactly=True)
    assert second is not None
    assert second.id == "2"
    mapped.make(second, ECHO, {"text": "b"}, "lab_echo")
    assert mapped.announced(ECHO, {"text": "b"}, exactly=True) is None
    first = mapped.announced(ECHO, {"text": "b"}, exactly=False)
    assert first is not None
    assert first.id == "1"


def test_a_call_that_nobody_announced_is_told_and_a_late_word_on_it_says_nothing_new() -> None:
    mapped = mapper()
    call, told = mapped.make(None, ECHO, {"text": "a"}, "lab_echo")
    assert kinds(told) == ORDER[:2]
    late = mapped.take(word("tool_call", **ECHO_CALL, status="in_progress"))
    assert late == []
    call.outcome = AcpOutcome(3.0, CallResult.text("pong"))
    assert mapped.result(call) == []
    (result,) = mapped.take(word(toolCallId="1", status="completed"))
    assert (result.kind, result.data["toolCallId"], result.data["durationMs"]) == ("tool_result", call.id, 3.0)
    assert mapped.take(word(toolCallId="1", status="completed")) == []


def test_a_word_on_a_call_that_is_over_already_says_nothing_new() -> None:
    mapped = mapper()
    call, _ = mapped.make(None, ECHO, {}, "lab_echo")
    mapped.result(call)
    assert mapped.take(word("tool_call", **ECHO_CALL, status="completed")) == []
    assert kinds(mapped.take(word("tool_call", **{**ECHO_CALL, "toolCallId": "2"}))) == ORDER[:1]


def test_what_the_desk_knows_of_a_call_counts_for_its_result() -> None:
    mapped = mapper()
    mapped.take(word("tool_call", **ECHO_CALL))
    call, _ = mapped.make(mapped.call("1"), ECHO, {}, "lab_echo")
    call.outcome = AcpOutcome(
        1.0, CallResult(({"type": "text", "text": "all of it"},), structured_content=1, has_structured=True)
    )
    (result,) = mapped.take(word(toolCallId="1", status="completed", rawOutput="all…"))
    assert (result.data["content"][0]["text"], result.data["structuredContent"]) == ("all of it", 1)


def test_calls_of_sub_agents_say_whose_they_are() -> None:
    meta = {"claudeCode": {"toolName": "Bash", "parentToolUseId": "p"}}
    (start,) = mapper().take(word("tool_call", toolCallId="1", title="ls", kind="execute", _meta=meta))
    assert start.parent == "p"
    assert (start.data["server"], start.data["tool"]) == ("claude_code", "Bash")


def test_what_is_not_known_is_not_told() -> None:
    mapped = mapper()
    for update in ({}, {"sessionUpdate": "plan"}, {"sessionUpdate": "new"}, chunk(""), word(title="no id")):
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
def test_every_call_is_told_once_and_in_order(updates: list[JsonObject], asks: list[bool]) -> None:
    mapped = mapper()
    told: list[AcpEmission] = []
    for update, ask in zip(updates, [*asks, *[False] * len(updates)], strict=False):
        told += mapped.asked(update) if ask else mapped.take(update)
    told += mapped.finish("The turn is over.")
    for id in {emission.data["toolCallId"] for emission in told}:
        assert [each.kind for each in told if each.data["toolCallId"] == id] == ORDER
