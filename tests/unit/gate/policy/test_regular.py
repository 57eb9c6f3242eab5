"""The regular expressions of conditions: they agree with `re` and take bounded time."""

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.regular import LONGEST_TEXT, NotRegular, Regular

SLACK = 4
"""Allowance for a busy machine."""
ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\S", r"\.", "1", r"[\d_-]", "[]a]"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?", "{0}"])
    return (
        st.tuples(inner, repeats).map(lambda drawn: f"(?:{drawn[0]}){drawn[1]}")
        | st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda drawn: f"({drawn[0]}|{drawn[1]})")
    )


EXPRESSIONS = st.recursive(ATOMS, larger, max_leaves=6)
TEXTS = st.text("abcA1_. -\n", max_size=10)


@given(EXPRESSIONS, TEXTS)
@settings(deadline=None, max_examples=400)
def test_matches_agree_with_re(expression: str, text: str) -> None:
    assert Regular(expression).matches(text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(EXPRESSIONS, TEXTS)
@settings(deadline=None)
def test_matches_agree_with_re_ignoring_case(expression: str, text: str) -> None:
    plain = expression.replace("[^a]", "b")
    expected = re.fullmatch(plain, text, re.DOTALL | re.IGNORECASE) is not None
    assert Regular(f"(?i){plain}").matches(text) is expected


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("^acme/.*$", "acme/x", True),
        ("acme/", "evil/acme/x", False),
        ("a|b$", "b", True),
        (r"rm\s+-rf.*", "rm  -rf /\nls", True),
        (r"\{a\}", "{a}", True),
        ("(?i)ROOT", "rOoT", True),
        ("[a-]", "-", True),
        ("ü+", "üü", True),
    ],
)
def test_whole_text_must_match(expression: str, text: str, matches: bool) -> None:
    assert Regular(expression).matches(text) is matches


UNKNOWN = [
    r"(",
    r")",
    r"a)",
    r"[",
    r"[]",
    r"a**",
    r"*a",
    r"a{",
    r"a{2,1}",
    r"a{x}",
    r"(?=a)",
    r"(?P<n>a)",
    r"\1",
    r"\b",
    r"a^b",
    r"a$b",
    r"[b-a]",
    r"[\d-z]",
    r"[a-\d]",
    r"a{9999}",
    r"(a{400}){400}",
]


@pytest.mark.parametrize("expression", [*UNKNOWN, "\\", "x" * 2000, "(" * 400 + ")" * 400])
def test_unsupported_or_too_large_expression_is_rejected(expression: str) -> None:
    with pytest.raises(NotRegular) as raised:
        Regular(expression)
    assert str(raised.value)


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*b", "(a|aa)+c", ".*.*.*.*.*x", "a*a*a*a*b", "(.*b){12}"])
def test_catastrophic_backtracking_does_not_occur(expression: str) -> None:
    compiled = Regular(expression)
    started = time.thread_time()
    assert compiled.matches("a" * LONGEST_TEXT) is False
    assert time.thread_time() - started < 2  # `re` would take hours


HARD = [
    "(?:a|b)*a(?:a|b){200}",
    ".*a.{400}",
    ".*a.{18}",
    r"(.*\w){100}",
    ".*[ab].{240}.*[bc].{240}",
    r"(\w|\W)*a(\w|\W){40}",
    r".*\w.{40}",
    "(?:(?:.{0,20}){0,20}a){1,2}",
]


@pytest.mark.parametrize("letters", ["ab", "ab1_ ./\n", "a\u00e9", "ab\u00e9\u00df\u6f22 "])
@pytest.mark.parametrize("expression", HARD)
def test_condition_on_a_long_text_stays_within_its_time_limit(expression: str, letters: str) -> None:
    text = "".join(random.Random(1).choices(letters, k=60_000))
    compiled = Regular(expression)
    compiled.matches(text[:1])
    started = time.thread_time()
    compiled.matches(text)
    assert time.thread_time() - started < 0.05 * SLACK


def test_text_beyond_the_limits_has_no_answer() -> None:
    assert Regular("a*").matches("a" * (LONGEST_TEXT + 1)) is None
    text = "".join(random.Random(1).choices("ab", k=60_000))
    assert Regular("(?:a|b)*a(?:a|b){200}").matches(text) is None
    assert Regular("(?:a|b)*a(?:a|b){200}").matches(text[:1_000]) is not None
    assert Regular("a*").matches("\ud800") is None


def test_long_texts_of_any_script_are_matched() -> None:
    assert Regular("(?i).*SECRET.*").matches("\u6f22" * 60_000 + "secret") is True
    assert Regular(r"\w+").matches("\u6f22" * 10_000) is True
    assert Regular("[^/]*").matches("\u00e9" * 10_000) is True


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        (r"[a&&b]+", "a&b", True),
        (r"[[]x", "[x", True),
        (r"[a~~b]", "~", True),
        (r"a#b c", "a#b c", True),
        (r"[\W]", "\u00a0", True),
        (r"[^\W]", "\u00e9", True),
        (r"\S", "\u00a0", False),
        ("[\u00e4-\u00fc]", "a", False),
        ("[\u00e4-\u00fc]", "\u00f6", True),
        ("(?i)\u00c4", "\u00e4", True),
        ("(?i)[^a]", "A", False),
    ],
)
def test_classes_and_special_characters_are_read_as_in_re(expression: str, text: str, matches: bool) -> None:
    assert Regular(expression).matches(text) is matches
