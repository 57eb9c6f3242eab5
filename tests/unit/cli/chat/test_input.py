"""Editing of the input line by keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.chat.input import Action, Editor, Entered


def type_keys(*keys: str) -> tuple[Editor, list[Action]]:
    editor = Editor()
    return editor, [action for each in keys for action in editor.feed(each.encode())]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("hello", "hello"),
        ("hello\x7f\x7f", "hel"),
        ("held\x1b[D\x1b[Dl", "helld"),
        ("b\x01a\x05c", "abc"),
        ("b\x1bOHa\x1bOFc", "abc"),
        ("one two\x17", "one "),
        ("one two\x1bbx", "one xtwo"),
        ("one two\x01\x1bfx", "onex two"),
        ("abc\x1b[D\x0b", "ab"),
        ("abc\x1b[D\x15", "c"),
        ("abc\x01\x1b[3~", "bc"),
        ("abc\x01\x04", "bc"),
        ("a\x1b[15~b\x1b[200;5Rc", "abc"),
        ("über 漢字\x7f", "über 漢"),
        ("\x1b[200~a\rb\r\nc\x1b[201~d", "a\nb\ncd"),
        ("a\x07\x00b", "ab"),
        ("a\x1b\x1b[Db", "ba"),
        ("a\x1b[übel", "a[übel"),
    ],
)
def test_keys_edit_the_line(keys: str, text: str) -> None:
    editor, actions = type_keys(keys)
    assert (editor.text, actions) == (text, [])


def test_enter_sends_the_line_and_begins_a_new_one() -> None:
    editor, actions = type_keys("one\rtwo\nthree")
    assert actions == [Entered("one"), Entered("two")]
    assert editor.text == "three"


def test_history_returns_sent_lines_and_the_draft() -> None:
    editor, _ = type_keys("one\rtwo\rdraft", "\x1b[A", "\x1b[A", "\x1b[A")
    assert editor.text == "one"
    list(editor.feed(b"\x1b[B\x1b[B"))
    assert editor.text == "draft"


def test_control_keys_interrupt_leave_an_empty_line_or_suspend() -> None:
    assert type_keys("ab\x03")[1] == ["interrupt"]
    assert type_keys("a\x04")[1] == []
    assert type_keys("\x04")[1] == ["leave"]
    assert type_keys("\x1a")[1] == ["suspend"]


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=20), st.integers(1, 5))
def test_keys_may_arrive_in_any_pieces(text: str, size: int) -> None:
    keys = f"\x1b[200~{text}\x1b[201~x\x1b[D\x1b[1;5Cy".encode()
    editor = Editor()
    for start in range(0, len(keys), size):
        list(editor.feed(keys[start : start + size]))
    assert editor.text == f"{text}xy"


@given(st.binary(max_size=60))
def test_editor_accepts_any_bytes(keys: bytes) -> None:
    editor = Editor()
    list(editor.feed(keys))
    assert 0 <= editor.cursor <= len(editor.text)
