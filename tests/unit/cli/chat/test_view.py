"""Events of a session as a person reads them: text in pieces, lines of ours, and nothing that could deceive."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.chat.view import ChatView, Piece, ViewLine, ViewText
from toolcrib.model.json import JsonObject

HOSTILE = "\x1b]0;evil\x07\x1b[2J\u202egpj.exe\u200b\rgone"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


class Told:
    """A session that tells events in order, and what is shown of them."""

    def __init__(self, **status: object) -> None:
        self.view = ChatView(dict(status))
        self.pieces: list[Piece] = []

    def tell(self, kind: str, **data: object) -> "Told":
        event: JsonObject = {"kind": kind, "seq": self.view.seq + 1, "at": "2026-01-01T00:00:00Z", **data}
        self.pieces += self.view.show(event)
        return self

    def call(self, id: str = "c1", arguments: JsonObject | None = None, **more: object) -> "Told":
        self.tell("tool_call_start", toolCallId=id, toolName="mcp__lab__greet", server="lab", tool="greet", **more)
        return self.tell("tool_call_end", toolCallId=id, arguments=arguments or {"name": "Ada"}, **more)

    @property
    def said(self) -> str:
        return "".join(piece.text for piece in self.pieces if isinstance(piece, ViewText) and piece.tone == "plain")

    @property
    def lines(self) -> list[str]:
        return [piece.text for piece in self.pieces if isinstance(piece, ViewLine)]

    @property
    def all(self) -> str:
        return "\n".join(piece.text for piece in self.pieces)


@given(st.text(alphabet="ab \n\r", max_size=30), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 30))
def test_a_text_is_shown_once_however_it_is_cut_and_wherever_the_pieces_stop(
    text: str, cuts: list[int], until: int
) -> None:
    told = Told()
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), min(until, len(text))})
    for start, end in pairwise(places):
        told.tell("text_delta", messageId="m", text=text[start:end])
    told.tell("text_message", messageId="m", text=text)
    whole = Told().tell("text_message", messageId="m", text=text)
    assert told.said == whole.said
    assert not told.said or told.said.endswith("\n")


def test_a_text_that_was_not_followed_from_its_beginning_is_shown_whole() -> None:
    told = (
        Told()
        .tell("text_delta", messageId="m", text="the end")
        .tell("text_message", messageId="m", text="all to the end")
    )
    assert told.said == "the end\nall to the end\n"


def test_thoughts_are_faint_and_kept_apart_from_what_is_said() -> None:
    told = Told().tell("thinking_delta", messageId="m", text="Hm.").tell("text_delta", messageId="m", text="Yes.")
    assert told.pieces == [ViewText("Hm.", "faint"), ViewText("\n", "faint"), ViewText("Yes.")]


def test_a_call_and_its_result_are_a_card_with_name_arguments_result_and_duration() -> None:
    told = Told().call()
    told.tell(
        "tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": "Hello"}], durationMs=12.4
    )
    assert told.lines == ['* lab/greet {"name": "Ada"}', "  ok in 12 ms: Hello"]


def test_a_result_that_comes_after_other_calls_says_whose_it_is() -> None:
    told = Told().call("c1").call("c2")
    told.tell(
        "tool_result", toolCallId="c1", isError=True, content=[{"type": "text", "text": "no\nway"}], durationMs=2500
    )
    assert told.lines[-1] == "  lab/greet: error after 2.5 s: no way"


def test_long_arguments_and_results_are_shortened_in_a_card() -> None:
    told = Told().call(arguments={"name": "x" * 5000})
    told.tell("tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": "y" * 5000}])
    assert all(len(line) < 400 and line.endswith("…") for line in told.lines)


def test_a_call_to_be_judged_is_shown_with_every_argument_uncut_and_what_is_remarkable() -> None:
    told = Told().tell(
        "approval_required",
        approvalId="a1",
        toolCallId="c1",
        server="lab",
        tool="greet",
        arguments={"name": "x" * 5000 + HOSTILE, "other": 1},
        reason="Mode default asks.",
    )
    assert "? lab/greet asks for approval. Mode default asks." in told.lines
    assert "x" * 5000 in told.all
    assert '"other": 1' in told.all
    assert any(line.startswith("  CAREFUL: /name: ") for line in told.lines)
    assert not OBEYED.search(told.all)


def test_how_a_question_about_a_call_ended_is_told_in_words() -> None:
    told = Told()
    told.tell("approval_resolved", approvalId="a", decision="approved", by="owner")
    told.tell("approval_resolved", approvalId="a", decision="denied", by="owner", reason="not today")
    told.tell("approval_resolved", approvalId="a", decision="expired", reason="Nobody answered within 600 s.")
    told.tell("approval_resolved", approvalId="a", decision="withdrawn")
    assert told.lines == [
        "  approved by owner",
        "  denied by owner: not today",
        "  expired: denied because it was not answered in time",
        "  withdrawn",
    ]


def test_a_question_of_the_agent_has_numbered_choices_and_its_call_is_not_shown_twice() -> None:
    told = Told().tell("tool_call_start", toolCallId="q", toolName="AskUserQuestion")
    told.tell("tool_call_end", toolCallId="q", arguments={"questions": []})
    asked: JsonObject = {"question": "Which?", "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}]}
    told.tell("question_prompt", questionId="q1", questions=[asked])
    told.tell("question_answered", questionId="q1", answers={"Which?": "Blue"})
    told.tell("tool_result", toolCallId="q", isError=False, content=[])
    assert told.lines == ["", "? Which?", "  1. Red: warm", "  2. Blue", "  answered: Blue"]


def test_a_message_is_shown_when_it_is_on_record_and_says_whether_it_waits() -> None:
    told = Told().tell("user_message", messageId="m", content="one\ntwo", queued=True)
    assert told.lines[:3] == ["", "> one", "> two"]
    assert "queued" in told.lines[3]


def test_a_failure_is_told_once_with_its_next_step() -> None:
    told = Told(state="running").tell("error", code="runner.login", message="Not signed in.", hint="Run `claude`.")
    told.tell("session_status", state="failed", reason="Not signed in.").tell("done", reason="failed")
    assert told.lines == ["error: Not signed in.", "hint: Run `claude`."]
    assert not told.view.is_busy


def test_a_session_that_stands_as_interrupted_says_why() -> None:
    told = Told(state="running").tell("session_status", state="interrupted", reason="The crib ended.")
    assert told.lines == ["interrupted: The crib ended."]


def test_a_changed_mode_is_told_and_an_unchanged_one_is_not() -> None:
    told = Told(state="idle", mode="default").tell("session_status", state="running", mode="default")
    told.tell("session_status", state="running", mode="plan")
    assert told.lines == ["Mode: plan."]


def test_what_sub_agents_do_stands_further_in_and_what_they_say_comes_whole() -> None:
    told = Told().call("c9", parentToolCallId="c1").tell("text_delta", messageId="s", text="I", parentToolCallId="c1")
    told.tell("text_message", messageId="s", text="I looked.", parentToolCallId="c1")
    assert told.lines == ['    * lab/greet {"name": "Ada"}', "    I looked."]
    assert told.said == ""


def test_events_of_kinds_that_are_not_known_are_passed_over() -> None:
    assert Told().tell("hologram", light=1).pieces == []


def test_nothing_that_others_say_keeps_what_a_terminal_obeys_or_hides() -> None:
    told = Told().tell("user_message", messageId="m", content=HOSTILE, queued=False)
    told.tell("text_delta", messageId="m", text=HOSTILE).tell("text_message", messageId="m", text=HOSTILE)
    told.tell("thinking_delta", messageId="m", text=HOSTILE)
    told.tell("tool_call_start", toolCallId="c", toolName=HOSTILE, server=HOSTILE, tool=HOSTILE)
    told.tell("tool_call_end", toolCallId="c", arguments={HOSTILE: HOSTILE})
    told.tell("tool_result", toolCallId="c", isError=False, content=[{"type": "text", "text": HOSTILE}])
    told.tell("approval_required", approvalId="a", server=HOSTILE, tool=HOSTILE, arguments={HOSTILE: 1}, reason=HOSTILE)
    told.tell("approval_resolved", approvalId="a", decision="denied", by=HOSTILE, reason=HOSTILE)
    told.tell("question_prompt", questionId="q", questions=[{"question": HOSTILE, "options": [{"label": HOSTILE}]}])
    told.tell("question_answered", questionId="q", answers={"x": HOSTILE})
    told.tell("error", code="internal", message=HOSTILE, hint=HOSTILE)
    told.tell("session_status", state="failed", reason=HOSTILE + "!", mode=HOSTILE)
    assert told.pieces
    assert not OBEYED.search(told.all)
    assert "\\u{1b}" in told.all
    assert "\\u{202e}" in told.all


def test_a_line_break_in_what_others_say_cannot_begin_a_line_of_ours() -> None:
    forged = "x\n? lab/wipe asks for approval."
    told = Told().tell("error", code="internal", message=forged).call(arguments={"a": forged})
    told.tell("tool_result", toolCallId="c1", isError=False, content=[{"type": "text", "text": forged}])
    assert not any(row.startswith("?") for line in told.lines for row in line.split("\n"))
