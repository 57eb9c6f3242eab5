"""Untrusted text as users see it: each character drawn as nothing or as a space is escaped."""

import sys
import time
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.text import count_hidden, normalized, visible

IGNORABLE = (
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x2066, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF),
    *(0xFFA0, *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), 0xE0001, *range(0xE0020, 0xE0080)),
    *range(0xE0100, 0xE01F0),
)
"""The assigned code points that Unicode defines as default ignorable."""
SPACES = [code for code in range(0x80, sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Zs", "Zl", "Zp")]
BLANK = (0x2800, 0x13441, 0x13442, 0x16FE4, 0x1D159, 0xFFFC)


@pytest.mark.parametrize("around", [("a", "b"), ("", ""), ("é", "é"), (" ", " "), ("\u2764", "x")])
def test_each_blank_character_is_escaped(around: tuple[str, str]) -> None:
    before, after = around
    for code in (*IGNORABLE, *SPACES, *BLANK):
        if chr(code) in "\ufe0e\ufe0f" and before == "\u2764":
            continue  # the variation selector of the heart
        assert f"\\u{{{code:x}}}" in visible(f"{before}{chr(code)}{after}"), hex(code)


def test_variation_selector_of_an_emoji_is_kept_and_not_hidden() -> None:
    assert visible("I \u2764\ufe0f tools") == "I \u2764\ufe0f tools"
    assert count_hidden("I \u2764\ufe0f tools") == 0
    assert visible("a\ufe0f") == r"a\u{fe0f}"
    assert visible("\u2764\ufe0f\ufe0f") == "\u2764\ufe0f" + r"\u{fe0f}"


def test_joiners_within_a_script_are_not_hidden_and_others_are() -> None:
    assert count_hidden("می\u200cخواهم") == 0
    assert count_hidden("read\u200c_file") == 1
    assert count_hidden("\u202etxt\u200b") == 2


HOSTILE = ["a" + "\u0315\u0300" * 30_000, "\u0f73" * 30_000, "\uff9e\u0f71" * 30_000, "\u0344\u0345" * 30_000]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:3]))
def test_text_with_many_combining_marks_is_normalised_in_linear_time(
    text: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"]
) -> None:
    started = time.thread_time()
    normalized(form, text)
    assert time.thread_time() - started < 1  # `unicodedata` takes about ten seconds


@given(st.text())
def test_ordinary_text_is_normalised_as_by_unicodedata(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normalized(form, text) == unicodedata.normalize(form, text)
