"""Typed lines as answers to pending approvals and questions."""

import pytest

from toolcrib.cli.approvals import read_answers
from toolcrib.cli.chat.asks import Asks, Verdict, choice_lines, read_choice, read_verdict
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject

CALL: JsonObject = {"kind": "approval_required", "approvalId": "a1", "server": "lab", "tool": "greet", "arguments": {}}
COLOURS: JsonObject = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("a", Verdict()),
        (" YES ", Verdict()),
        ("approve", Verdict()),
        ("s", Verdict(scope="session")),
        ("w", Verdict(scope="always")),
        ("always", Verdict(scope="always")),
        ("e", Verdict(edit=True)),
        ("d", Verdict("deny")),
        ("deny not today, please", Verdict("deny", reason="not today, please")),
        ("n", Verdict("deny")),
        ("", None),
        ("ok", None),
        ("approve it", None),
        ("a file is missing", None),
    ],
)
def test_line_is_read_as_a_verdict(line: str, verdict: Verdict | None) -> None:
    assert read_verdict(line, needs_word=False) == verdict


@pytest.mark.parametrize("line", ["a", "y", "yes", "s", "w", ""])
def test_destructive_call_needs_a_whole_word_to_approve(line: str) -> None:
    assert read_verdict(line, needs_word=True) is None


def test_whole_words_and_a_short_denial_always_count() -> None:
    assert read_verdict("approve", needs_word=True) == Verdict()
    assert read_verdict("always", needs_word=True) == Verdict(scope="always")
    assert read_verdict("d no", needs_word=True) == Verdict("deny", reason="no")


def test_choices_show_the_exact_rule_of_each_scope() -> None:
    ask = Asks().note(CALL)
    assert ask is not None
    assert choice_lines(ask) == ["Type approve to approve it once, e to edit the arguments, d REASON to deny it."]
    proposed = {"sentence": "Allow this.", "prefixes": [{"prefix": "npm test", "sentence": "Allow more."}]}
    ask.remember_as = {"session": {"approve": {"sentence": "Allow here."}}, "always": {"approve": proposed}}
    assert choice_lines(ask) == [
        "Type approve to approve it once, session for this session, always for good, e to edit the arguments, "
        "d REASON to deny it.",
        "session writes the rule: Allow here.",
        "always writes the rule: Allow this.",
        "always npm test writes instead: Allow more.",
    ]
    ask.needs_word = False
    assert choice_lines(ask)[0].startswith("Type a to approve it once, s ")


def test_words_after_a_scope_choose_the_wider_rule() -> None:
    assert read_verdict("always npm test", needs_word=True) == Verdict(scope="always", prefix="npm test")
    assert read_verdict("w npm test", needs_word=True) is None
    assert read_verdict("approve npm test", needs_word=True) is None


@pytest.mark.parametrize(
    ("line", "answer"),
    [("2", "Blue"), (" red ", "Red"), ("Green, rather", "Green, rather"), ("3", None), ("0", None), ("", None)],
)
def test_answer_is_a_choice_by_number_or_name_or_free_text(line: str, answer: Json) -> None:
    assert read_choice(COLOURS, line) == answer


@pytest.mark.parametrize(
    ("line", "answer"), [("1, 2", ["Red", "Blue"]), ("blue", ["Blue"]), ("1,9", None), ("1, both", "1, both")]
)
def test_several_choices_are_separated_by_commas(line: str, answer: Json) -> None:
    assert read_choice({**COLOURS, "multiSelect": True}, line) == answer


def test_question_without_choices_accepts_any_text() -> None:
    assert read_choice({"question": "How many?"}, "5") == "5"


def test_pending_requests_are_answered_in_order_and_removed_when_resolved() -> None:
    asks = Asks()
    first, second = asks.note(CALL), asks.note({**CALL, "approvalId": "a2"})
    assert asks.first is first
    asks.note({"kind": "approval_resolved", "approvalId": "a1"})
    assert asks.first is second
    asks.note({"kind": "done"})
    assert asks.first is None


def test_command_line_answers_match_the_full_text_of_a_question() -> None:
    questions = ["a=b or c?", "Which?"]
    assert read_answers(questions, ["a=b or c?=c", "Which?=Red", "Which?=Blue"]) == {
        "a=b or c?": "c",
        "Which?": ["Red", "Blue"],
    }
    assert read_answers(["Which?"], ["Red = warm"]) == {"Which?": "Red = warm"}
    with pytest.raises(InvalidRequest):
        read_answers(questions, ["Red"])
