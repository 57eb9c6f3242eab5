"""The items that an interrupted turn leaves open, and the events that close them."""

from toolcrib.agents.sessions.open_items import End, OpenItems
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind

START: JsonObject = {"toolCallId": "c", "toolName": "Bash", "server": "claude_code", "tool": "Bash"}


def closing_events(*logged: tuple[SessionEventKind, JsonObject]) -> list[End]:
    """Return the events that close this log."""
    ends = OpenItems()
    ends.take(SessionEvent(number, "", "s", kind, data, "above") for number, (kind, data) in enumerate(logged, 1))
    return list(ends.closing_events("why"))


def test_closed_items_are_not_closed_again() -> None:
    assert (
        closing_events(
            ("user_message", {"messageId": "m", "content": "a", "queued": False}),
            ("text_delta", {"messageId": "t", "text": "a"}),
            ("text_message", {"messageId": "t", "text": "a"}),
            ("tool_call_start", START),
            ("tool_call_end", {"toolCallId": "c", "arguments": {}}),
            ("approval_required", {"approvalId": "a", "toolCallId": "c"}),
            ("approval_resolved", {"approvalId": "a", "decision": "approved"}),
            ("question_prompt", {"questionId": "q", "questions": []}),
            ("question_answered", {"questionId": "q", "answers": {}}),
            ("tool_result", {"toolCallId": "c", "isError": False, "content": [], "durationMs": 1.0}),
        )
        == []
    )


def test_open_items_are_closed_in_the_documented_order() -> None:
    ends = closing_events(
        ("text_delta", {"messageId": "t", "text": "one "}),
        ("tool_call_start", START),
        ("approval_required", {"approvalId": "a", "toolCallId": "c"}),
        ("question_prompt", {"questionId": "q", "questions": []}),
        ("text_delta", {"messageId": "t", "text": "two"}),
    )
    assert [(end.kind, end.parent) for end in ends] == [
        ("text_message", "above"),
        ("tool_call_end", "above"),
        ("approval_resolved", None),
        ("question_answered", None),
        ("tool_result", "above"),
    ]
    assert ends[0].data == {"messageId": "t", "text": "one two"}
    assert ends[2].data == {"approvalId": "a", "decision": "expired", "reason": "why"}
    assert (ends[4].data["isError"], ends[4].data["content"]) == (True, [{"type": "text", "text": "why"}])


def test_items_of_an_earlier_turn_are_not_closed_again() -> None:
    assert closing_events(("tool_call_start", START), ("done", {"reason": "interrupted"})) == []


def test_prompts_that_wait_for_the_end_of_a_turn_are_counted() -> None:
    def sent(*, queued: bool) -> SessionEvent:
        return SessionEvent(1, "", "s", "user_message", {"messageId": "m", "content": "a", "queued": queued}, None)

    ends = OpenItems()
    ends.take([sent(queued=False), sent(queued=True), sent(queued=True)])
    assert ends.waiting == 2
    ends.take([SessionEvent(4, "", "s", "done", {"reason": "completed"}, None)])
    assert ends.waiting == 1
    ends.take([sent(queued=False)])
    assert ends.waiting == 0
