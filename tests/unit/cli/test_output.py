"""Output on a terminal: no control sequences, nothing hidden, and equivalent JSON."""

import io
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli import output
from toolcrib.cli.output import one_line, safe
from toolcrib.model.errors import NotFound, Unavailable
from toolcrib.model.times import relative_time

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_safe_text_has_no_control_or_hidden_characters(text: str) -> None:
    assert not HIDDEN.search(safe(text))
    assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs") for each in safe(text) if each not in "\n\t")


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u3164\uffa0\u2800")))
def test_plain_text_of_any_script_is_unchanged(text: str) -> None:
    assert safe(text) == text


@given(ANY_TEXT)
def test_safe_is_idempotent(text: str) -> None:
    assert safe(safe(text)) == safe(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\u{1b}[31mred\u{1b}[0m"),
        ("\x1b]52;c;cm0gLXJmIH4=\x07", r"\u{1b}]52;c;cm0gLXJmIH4=\u{7}"),
        ("\x9b31m", r"\u{9b}31m"),
        ("safe\rrun", r"safe\u{d}run"),
        ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
        ("\u202egpj.exe", r"\u{202e}gpj.exe"),
        ("r\u200bm", r"r\u{200b}m"),
        ("\U000e0069", r"\u{e0069}"),
        ("A\ufe01", r"A\u{fe01}"),
        ("\ud800", r"\u{d800}"),
        ("Grüße, 你好, שלום, 👍🏽 ❤️", "Grüße, 你好, שלום, 👍🏽 ❤️"),
    ],
)
def test_hidden_characters_are_escaped(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_combining_marks_are_limited_and_counted() -> None:
    shown = safe("a" + "\u0301" * 1000 + "b")
    assert shown == "a" + "\u0301" * 8 + "[+992 marks]" + "b"


def test_strings_of_the_corpus_hide_nothing_on_a_terminal() -> None:
    corpus = os.environ.get("TOOLCRIB_CORPUS")
    if not corpus:
        pytest.skip("TOOLCRIB_CORPUS is not set")
    path = Path(corpus) / "own-vectors" / "terminal-and-display.jsonl"
    vectors = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(vectors) >= 39
    for vector in vectors:
        shown = safe(vector["text"])
        assert not HIDDEN.search(shown), vector["id"]
        assert not re.search(r"[\u0300-\u036f]{9}", shown), vector["id"]
        assert "\n" not in one_line(vector["text"]), vector["id"]
        assert len(one_line(vector["text"])) <= 160, vector["id"]


def test_one_line_folds_white_space_and_marks_a_cut() -> None:
    assert one_line("ls" + " " * 4000 + "; rm\n\n\nnow") == "ls ; rm now"
    assert one_line("word " * 100, limit=20) == "word word word word…"


@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.lists(ANY_TEXT), max_size=3))
def test_json_on_a_terminal_is_equivalent_and_hides_nothing(value: dict[str, object]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    before, sys.stdout = sys.stdout, stream
    try:
        output.document(value)
    finally:
        sys.stdout = before
    stream.seek(0)
    written = stream.read()
    assert json.loads(written) == json.loads(json.dumps(value))
    assert not HIDDEN.search(written)


def test_json_is_ascii_if_the_terminal_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", newline="\n")
    monkeypatch.setattr(sys, "stdout", stream)
    output.record({"city": "Zürich €"})
    stream.seek(0)
    assert json.loads(stream.read()) == {"city": "Zürich €"}


def test_table_without_a_terminal_is_aligned_for_wide_letters(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("name", "what"), [("你好", "two\nlines"), ("a\x1b[2J", "x"), ("e\u0301", "y")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME        WHAT",
        "你好        two lines",
        r"a\u{1b}[2J  x",
        "e\u0301           y",
    ]


def test_failure_is_a_message_a_blank_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    output.failure(NotFound("tool.unknown", "There is no tool 'x/y'."), as_json=False)
    printed = capsys.readouterr()
    assert printed.err == "error: There is no tool 'x/y'.\n\nhint: Run `toolcrib tools list`.\n"
    assert printed.out == ""


def test_failure_is_printed_as_json_if_requested(capsys: pytest.CaptureFixture[str]) -> None:
    output.failure(Unavailable("crib.closed", "Gone.", "Start it."), as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": {"code": "crib.closed", "message": "Gone.", "hint": "Start it."}}
    assert printed.err == "error: Gone.\n\nhint: Start it.\n"


def test_quoted_text_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.failure(NotFound("tool.unknown", "There is no tool 'x\nhint: run rm -rf'."), as_json=False)
    output.warn_all([{"message": "Bad name 'a\nwarning: all is well'", "file": "/f.py", "line": 3}])
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("hint:")] == ["hint: Run `toolcrib tools list`."]
    assert [line for line in lines if line.startswith("warning:")] == ["warning: /f.py:3: Bad name 'a"]


def test_widest_columns_shrink_first() -> None:
    assert output.fit_widths([5, 30, 60], 80) == [5, 30, 41]
    assert output.fit_widths([5, 30, 60], 60) == [5, 25, 26]
    assert output.fit_widths([5, 3], 80) == [5, 3]
    assert output.fit_widths([12, 12, 12], 20) is None


def test_states_have_a_symbol_and_a_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "connected"), ("b", "setup problem"), ("connected", "not checked")]
    for is_terminal, variables in ((True, {"FORCE_COLOR": "1"}), (True, {"NO_COLOR": "1"}), (False, {})):
        with monkeypatch.context() as patch:
            stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
            patch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
            patch.setattr("sys.stdout", stream)
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv("TERM", "xterm")
            for name, value in variables.items():
                patch.setenv(name, value)
            output.table(("name", "state"), rows)
            stream.flush()
            text = stream.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]
        assert ("✓ connected" in text, "✗ setup problem" in text) == (is_terminal, is_terminal)
        assert ("\x1b[32m" in text) == ("FORCE_COLOR" in variables)
        assert ("\x1b" in text) == ("FORCE_COLOR" in variables)
        assert "✓ connected  not" not in text


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [(0.4, "now"), (59, "59 s ago"), (3_700, "1 h ago"), (200_000, "2 d ago"), (-0.4, "now"), (-150, "in 2 min")],
)
def test_times_are_relative_to_now_in_both_directions(elapsed: float, words: str) -> None:
    assert relative_time(elapsed) == words
