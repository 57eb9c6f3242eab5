"""Events of a session as the chat displays them: streamed text, lines of the crib, and nothing deceptive."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.chat.view import ChatView, Piece, ViewLine, ViewText
from toolcrib.model.json import JsonObject

HOSTILE = "\x1b]0;evil\x07\x1b[2J\u202egpj.exe\u200b\rgone"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


class ShownSession:
    """A session whose events are shown in order."""

    def __init__(self, **status: object) -> None:
        self.view = ChatView(dict(status))
        self.pieces: list[Piece] = []

    def event(self, kind: str, **data: object) -> "ShownSession":
        sent: JsonObject = {"kind": kind, "seq": self.view.seq + 1, "at": "2026-01-01T00:00:00Z", **data}
        self.pieces += self.view.show(sent)
        return self

    def call(self, id: str = "c1", arguments: JsonObject | None = None, **more: object) -> "ShownSession":
        self.event("tool_call_start", toolCallId=id, toolName="mcp__lab__greet", server="lab", tool="greet", **more)
        return self.event("tool_call_end", toolCallId=id, arguments=arguments or {"name": "Ada"}, **more)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces if isinstance(piece, ViewText) and piece.tone == "plain")

    @property
    def lines(self) -> list[str]:
        return [piece.text for piece in self.pieces if isinstance(piece, ViewLine)]

    @property
    def all(self) -> str:
        return "\n".join(piece.text for piece in self.pieces)


@given(st.text(alphabet="ab \n\r", max_size=30), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 30))
def test_text_is_shown_once_for_any_pieces(text: str, cuts: list[int], until: int) -> None:
    shown = ShownSession()
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), min(until, len(text))})
    for start, end in pairwise(places):
        shown.event("text_delta", messageId="m", text=text[start:end])
    shown.event("text_message", messageId="m", text=text)
    whole = ShownSession().event("text_message", messageId="m", text=text)
    assert shown.text == whole.text
    assert not shown.text or shown.text.endswith("\n")


def test_text_joined_in_the_middle_is_shown_whole() -> None:
    shown = (
        ShownSession()
        .event("text_delta", messageId="m", text="the end")
        .event("text_message", messageId="m", text="all to the end")
    )
    assert shown.text == "the end\nall to the end\n"


def test_thoughts_are_faint_and_separated_from_the_text() -> None:
    shown = (
        ShownSession()
        .event("thinking_delta", messageId="m", text="Hm.")
        .event("text_delta", messageId="m", text="Yes.")
    )
    assert shown.pieces == [ViewText("Hm.", "faint"), ViewText("\n", "faint"), ViewText("Yes.")]


def test_call_shows_name_arguments_result_and_duration() -> None:
    shown = ShownSession().call()
    shown.event(
        "tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": "Hello"}], durationMs=12.4
    )
    assert shown.lines == ['* lab/greet {"name": "Ada"}', "  ok in 12 ms: Hello"]


def test_result_after_other_calls_names_its_call() -> None:
    shown = ShownSession().call("c1").call("c2")
    shown.event(
        "tool_result", toolCallId="c1", isError=True, content=[{"type": "text", "text": "no\nway"}], durationMs=2500
    )
    assert shown.lines[-1] == "  lab/greet: error after 2.5 s: no way"


def test_long_arguments_and_results_are_shortened() -> None:
    shown = ShownSession().call(arguments={"name": "x" * 5000})
    shown.event("tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": "y" * 5000}])
    assert all(len(line) < 400 and line.endswith("…") for line in shown.lines)


def test_pending_approval_shows_all_arguments_uncut_with_warnings() -> None:
    shown = ShownSession().event(
        "approval_required",
        approvalId="a1",
        toolCallId="c1",
        server="lab",
        tool="greet",
        arguments={"name": "x" * 5000 + HOSTILE, "other": 1},
        reason="Mode default asks.",
    )
    assert "? lab/greet asks for approval. Mode default asks." in shown.lines
    assert "x" * 5000 in shown.all
    assert '"other": 1' in shown.all
    assert any(line.startswith("  CAREFUL: /name: ") for line in shown.lines)
    assert not OBEYED.search(shown.all)


def test_outcome_of_an_approval_is_shown_in_words() -> None:
    shown = ShownSession()
    shown.event("approval_resolved", approvalId="a", decision="approved", by="owner")
    shown.event("approval_resolved", approvalId="a", decision="denied", by="owner", reason="not today")
    shown.event("approval_resolved", approvalId="a", decision="expired", reason="Not answered within 600 s.")
    shown.event("approval_resolved", approvalId="a", decision="withdrawn")
    assert shown.lines == [
        "  approved by owner",
        "  denied by owner: not today",
        "  expired: denied because it was not answered in time",
        "  withdrawn",
    ]


def test_question_has_numbered_choices_and_its_call_is_not_shown() -> None:
    shown = ShownSession().event("tool_call_start", toolCallId="q", toolName="AskUserQuestion")
    shown.event("tool_call_end", toolCallId="q", arguments={"questions": []})
    question: JsonObject = {
        "question": "Which?",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
    }
    shown.event("question_prompt", questionId="q1", questions=[question])
    shown.event("question_answered", questionId="q1", answers={"Which?": "Blue"})
    shown.event("tool_result", toolCallId="q", isError=False, content=[])
    assert shown.lines == ["", "? Which?", "  1. Red: warm", "  2. Blue", "  answered: Blue"]


def test_message_is_shown_when_stored_and_marked_as_queued() -> None:
    shown = ShownSession().event("user_message", messageId="m", content="one\ntwo", queued=True)
    assert shown.lines[:3] == ["", "> one", "> two"]
    assert "queued" in shown.lines[3]


def test_failure_is_shown_once_with_its_hint() -> None:
    shown = ShownSession(state="running").event(
        "error", code="runner.login", message="Not signed in.", hint="Run `claude`."
    )
    shown.event("session_status", state="failed", reason="Not signed in.").event("done", reason="failed")
    assert shown.lines == ["error: Not signed in.", "hint: Run `claude`."]
    assert not shown.view.is_busy


def test_interrupted_session_shows_the_reason() -> None:
    shown = ShownSession(state="running").event("session_status", state="interrupted", reason="The crib ended.")
    assert shown.lines == ["interrupted: The crib ended."]


def test_only_a_changed_mode_is_shown() -> None:
    shown = ShownSession(state="idle", mode="default").event("session_status", state="running", mode="default")
    shown.event("session_status", state="running", mode="plan")
    assert shown.lines == ["Mode: plan."]


def test_sub_agent_calls_are_indented_and_their_text_comes_whole() -> None:
    shown = (
        ShownSession()
        .call("c9", parentToolCallId="c1")
        .event("text_delta", messageId="s", text="I", parentToolCallId="c1")
    )
    shown.event("text_message", messageId="s", text="I looked.", parentToolCallId="c1")
    assert shown.lines == ['    * lab/greet {"name": "Ada"}', "    I looked."]
    assert shown.text == ""


def test_unknown_event_kinds_are_skipped() -> None:
    assert ShownSession().event("hologram", light=1).pieces == []


def test_control_and_hidden_characters_are_escaped_in_all_events() -> None:
    shown = ShownSession().event("user_message", messageId="m", content=HOSTILE, queued=False)
    shown.event("text_delta", messageId="m", text=HOSTILE).event("text_message", messageId="m", text=HOSTILE)
    shown.event("thinking_delta", messageId="m", text=HOSTILE)
    shown.event("tool_call_start", toolCallId="c", toolName=HOSTILE, server=HOSTILE, tool=HOSTILE)
    shown.event("tool_call_end", toolCallId="c", arguments={HOSTILE: HOSTILE})
    shown.event("tool_result", toolCallId="c", isError=False, content=[{"type": "text", "text": HOSTILE}])
    shown.event(
        "approval_required", approvalId="a", server=HOSTILE, tool=HOSTILE, arguments={HOSTILE: 1}, reason=HOSTILE
    )
    shown.event("approval_resolved", approvalId="a", decision="denied", by=HOSTILE, reason=HOSTILE)
    shown.event("question_prompt", questionId="q", questions=[{"question": HOSTILE, "options": [{"label": HOSTILE}]}])
    shown.event("question_answered", questionId="q", answers={"x": HOSTILE})
    shown.event("error", code="internal", message=HOSTILE, hint=HOSTILE)
    shown.event("session_status", state="failed", reason=HOSTILE + "!", mode=HOSTILE)
    assert shown.pieces
    assert not OBEYED.search(shown.all)
    assert "\\u{1b}" in shown.all
    assert "\\u{202e}" in shown.all


def test_line_break_in_foreign_text_cannot_start_a_new_line() -> None:
    forged = "x\n? lab/wipe asks for approval."
    shown = ShownSession().event("error", code="internal", message=forged).call(arguments={"a": forged})
    shown.event("tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": forged}])
    assert not any(row.startswith("?") for line in shown.lines for row in line.split("\n"))
