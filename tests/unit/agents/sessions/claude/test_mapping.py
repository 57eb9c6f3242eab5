"""Messages of Claude Code become events: in the documented order, each call once, and all closed at the end."""

from collections import defaultdict
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    Message,
    StreamEvent,
    SystemMessage,
    TaskStartedMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.sessions.claude.mapping import ClaudeEmission, ClaudeMapper, ClaudeOutcome
from toolcrib.agents.sessions.runtime import Offered
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import CallResult, Tool, ToolRef

ECHO = Offered("lab", "echo", Tool(ToolRef("the lab", "echo.it"), "Say it again.", {"type": "object"}))
NAME = "mcp__lab__echo"
DONE = [{"type": "text", "text": "done"}]


def mapper() -> ClaudeMapper:
    return ClaudeMapper({NAME: ECHO})


def stream_event(kind: str, parent: str | None = None, **fields: Json) -> StreamEvent:
    return StreamEvent("u", "s", {"type": kind, **fields}, parent)


def block_start(index: int, block: JsonObject, parent: str | None = None) -> StreamEvent:
    return stream_event("content_block_start", parent, index=index, content_block=block)


def delta(index: int, parent: str | None = None, **fields: Json) -> StreamEvent:
    return stream_event("content_block_delta", parent, index=index, delta=fields)


def assistant_message(*blocks: Any, id: str = "m1", parent: str | None = None, error: Any = None) -> AssistantMessage:
    return AssistantMessage(list(blocks), "claude", parent_tool_use_id=parent, message_id=id, error=error)


def result(tool_call: str, content: Json = "done", *, is_error: bool | None = None) -> UserMessage:
    return UserMessage([ToolResultBlock(tool_call, content, is_error)])


def events_of(mapper: ClaudeMapper, *messages: Message) -> list[ClaudeEmission]:
    return [emission for message in messages for emission in mapper.take(message)]


def test_streamed_message_is_emitted_in_pieces_and_then_whole() -> None:
    messages = [
        stream_event("message_start", message={"id": "m1"}),
        block_start(0, {"type": "thinking", "thinking": ""}),
        delta(0, type="thinking_delta", thinking="Hm."),
        delta(0, type="signature_delta", signature="x"),
        assistant_message(ThinkingBlock("Hm.", "x")),
        stream_event("content_block_stop", index=0),
        block_start(1, {"type": "text", "text": ""}),
        delta(1, type="text_delta", text="Hel"),
        delta(1, type="text_delta", text="lo"),
        assistant_message(TextBlock("Hello")),
        block_start(2, {"type": "tool_use", "id": "t1", "name": NAME, "input": {}}),
        delta(2, type="input_json_delta", partial_json='{"a"'),
        assistant_message(ToolUseBlock("t1", NAME, {"a": 1})),
        result("t1"),
    ]
    assert events_of(mapper(), *messages) == [
        ("thinking_delta", {"messageId": "m1.0", "text": "Hm."}, None),
        ("text_delta", {"messageId": "m1.1", "text": "Hel"}, None),
        ("text_delta", {"messageId": "m1.1", "text": "lo"}, None),
        ("text_message", {"messageId": "m1.1", "text": "Hello"}, None),
        ("tool_call_start", {"toolCallId": "t1", "toolName": NAME, "server": "the lab", "tool": "echo.it"}, None),
        ("tool_call_delta", {"toolCallId": "t1", "partialJson": '{"a"'}, None),
        ("tool_call_end", {"toolCallId": "t1", "arguments": {"a": 1}}, None),
        ("tool_result", {"toolCallId": "t1", "isError": False, "content": DONE, "durationMs": 0.0}, None),
    ]


def test_sub_agent_messages_carry_their_call_and_do_not_mix_with_streamed_ones() -> None:
    messages = [
        stream_event("message_start", message={"id": "m1"}),
        block_start(0, {"type": "text", "text": ""}),
        delta(0, type="text_delta", text="Above"),
        assistant_message(
            ThinkingBlock("below", "x"), TextBlock("Below"), ToolUseBlock("t2", "Bash", {}), id="m2", parent="t1"
        ),
        assistant_message(TextBlock("Above")),
    ]
    emissions = events_of(mapper(), *messages)
    assert [(kind, data.get("messageId"), parent) for kind, data, parent in emissions] == [
        ("text_delta", "m1.0", None),
        ("thinking_delta", "m2.0", "t1"),
        ("text_message", "m2.1", "t1"),
        ("tool_call_start", None, "t1"),
        ("tool_call_end", None, "t1"),
        ("text_message", "m1.0", None),
    ]
    assert emissions[3].data["server"] == "claude_code"


def test_announced_call_carries_the_parent_call_of_its_sub_agent() -> None:
    mapping = mapper()
    events_of(mapping, TaskStartedMessage("task_started", {}, "agent7", "d", "u", "s", tool_use_id="t1"))
    assert not mapping.is_announced("t9")
    emissions = mapping.announce("t9", NAME, {"a": 1}, "agent7")
    assert [(kind, parent) for kind, _, parent in emissions] == [("tool_call_start", "t1"), ("tool_call_end", "t1")]
    assert mapping.is_announced("t9")
    assert events_of(mapping, assistant_message(ToolUseBlock("t9", NAME, {"a": 1}), parent="t1")) == [], (
        "it was announced before"
    )


def test_outcome_of_the_host_replaces_the_result_of_claude_code() -> None:
    mapping = mapper()
    events_of(
        mapping,
        assistant_message(ToolUseBlock("t1", NAME, {}), ToolUseBlock("t2", "Bash", {}), ToolUseBlock("t3", "Read", {})),
    )
    full = CallResult(({"type": "audio", "data": "x"},), structured_content=None, has_structured=True)
    mapping.keep("t1", ClaudeOutcome(12.5, full))
    mapping.keep("t2", ClaudeOutcome(3.0))
    image = {"type": "image", "source": {"type": "base64", "data": "QQ==", "media_type": "image/png"}}
    first, second, third = events_of(
        mapping, result("t1", "shortened"), result("t2", [image]), result("t3", None, is_error=True)
    )
    assert first.data == {
        "toolCallId": "t1", "isError": False, "content": [{"type": "audio", "data": "x"}], "durationMs": 12.5,
        "structuredContent": None,
    }  # fmt: skip
    assert second.data["content"] == [{"type": "image", "data": "QQ==", "mimeType": "image/png"}]
    assert second.data["durationMs"] == 3.0
    assert (third.data["isError"], third.data["content"]) == (True, [])


def test_results_for_unknown_calls_are_ignored() -> None:
    assert events_of(mapper(), result("t0", "[Tool call interrupted]", is_error=True)) == []


def test_text_of_a_failed_request_is_ignored() -> None:
    assert events_of(mapper(), assistant_message(TextBlock("API Error: 529"), error="server_error")) == []


def test_retried_request_emits_an_error() -> None:
    retry: JsonObject = {"attempt": 2, "max_retries": 10, "error_status": 529, "error": "overloaded"}
    ((kind, data, _),) = events_of(mapper(), SystemMessage("api_retry", retry))
    assert (kind, data["code"]) == ("error", "runner.overloaded")
    assert data["message"].endswith("Retrying, attempt 2 of 10.")


def test_finish_closes_open_messages_and_calls() -> None:
    mapping = mapper()
    events_of(
        mapping,
        stream_event("message_start", message={"id": "m1"}),
        block_start(0, {"type": "text", "text": ""}),
        delta(0, type="text_delta", text="Hel"),
        block_start(1, {"type": "tool_use", "id": "t1", "name": NAME, "input": {}}),
        assistant_message(ToolUseBlock("t2", "Bash", {"command": "ls"})),
    )
    assert [(kind, data.get("text") or data["toolCallId"]) for kind, data, _ in mapping.finish("Cut short.")] == [
        ("text_message", "Hel"), ("tool_call_end", "t1"), ("tool_result", "t1"), ("tool_result", "t2"),
    ]  # fmt: skip
    assert mapping.finish("Again.") == []


def test_abandoned_message_is_closed_before_the_next_one() -> None:
    messages = [
        stream_event("message_start", message={"id": "m1"}),
        block_start(0, {"type": "text", "text": ""}),
        delta(0, type="text_delta", text="Hel"),
        stream_event("message_start", message={"id": "m2"}),
        block_start(0, {"type": "text", "text": ""}),
        delta(0, type="text_delta", text="Hello"),
        assistant_message(TextBlock("Hello"), id="m2"),
    ]
    assert [(kind, data["messageId"], data["text"]) for kind, data, _ in events_of(mapper(), *messages)] == [
        ("text_delta", "m1.0", "Hel"), ("text_message", "m1.0", "Hel"),
        ("text_delta", "m2.0", "Hello"), ("text_message", "m2.0", "Hello"),
    ]  # fmt: skip


CALLS = st.sampled_from(["t1", "t2", "t3"])
PARENTS = st.sampled_from([None, "t1", "t9"])


@st.composite
def some_message(draw: st.DrawFn) -> Message:
    """Draw a message of any kind, valid or not after those before it."""
    call, parent, index = draw(CALLS), draw(PARENTS), draw(st.integers(0, 2))
    kinds: list[Message] = [
        stream_event("message_start", parent, message={"id": draw(st.sampled_from(["m1", "m2"]))}),
        block_start(index, {"type": "text", "text": ""}, parent),
        block_start(index, {"type": "tool_use", "id": call, "name": NAME, "input": {}}, parent),
        delta(index, parent, type="text_delta", text=draw(st.text(max_size=3))),
        delta(index, parent, type="input_json_delta", partial_json=draw(st.text(max_size=3))),
        assistant_message(TextBlock(draw(st.text(max_size=3))), parent=parent),
        assistant_message(ToolUseBlock(call, "Bash", {"n": index}), parent=parent),
        result(call),
    ]
    return draw(st.sampled_from(kinds))


@given(st.lists(some_message(), max_size=30))
def test_each_call_is_emitted_once_in_order_and_closed(messages: list[Message]) -> None:
    mapping = mapper()
    emissions = [*events_of(mapping, *messages), *mapping.finish("Cut short.")]
    order: defaultdict[str, list[str]] = defaultdict(list)
    last: dict[tuple[str, str | None], str] = {}
    for kind, data, parent in emissions:
        if kind in ("text_delta", "text_message"):
            last[data["messageId"], parent] = kind
        if "toolCallId" in data:
            order[data["toolCallId"]].append(kind)
    for kinds in order.values():
        assert [kind for kind in kinds if kind != "tool_call_delta"] == [
            "tool_call_start", "tool_call_end", "tool_result",
        ]  # fmt: skip
        assert kinds[0] == "tool_call_start"
        assert "tool_call_delta" not in kinds[kinds.index("tool_call_end") :]
    assert set(last.values()) <= {"text_message"}, "every message that starts in pieces is completed"
