"""The expressions of conditions: they say what `re` says, and never run away."""

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.policy.regular import LONGEST_TEXT, NotRegular, Regular

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\S", r"\.", "1", r"[\d_-]", "[]a]"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{1,}", "*?", "{0}"])
    return (
        st.tuples(inner, repeats).map(lambda drawn: f"(?:{drawn[0]}){drawn[1]}")
        | st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda drawn: f"({drawn[0]}|{drawn[1]})")
    )


EXPRESSIONS = st.recursive(ATOMS, grown, max_leaves=6)
TEXTS = st.text("abcA1_. -\n", max_size=10)


@given(EXPRESSIONS, TEXTS)
@settings(deadline=None, max_examples=400)
def test_it_agrees_with_the_expressions_of_python(expression: str, text: str) -> None:
    assert Regular(expression).matches(text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(EXPRESSIONS, TEXTS)
@settings(deadline=None)
def test_it_agrees_with_python_where_case_does_not_matter(expression: str, text: str) -> None:
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
def test_the_whole_text_must_match(expression: str, text: str, matches: bool) -> None:
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
def test_what_is_not_known_or_too_large_is_refused(expression: str) -> None:
    with pytest.raises(NotRegular) as raised:
        Regular(expression)
    assert str(raised.value)


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*b", "(a|aa)+c", ".*.*.*.*.*x", "a*a*a*a*b", "(.*b){12}"])
def test_a_text_made_to_take_for_ever_does_not(expression: str) -> None:
    compiled = Regular(expression)
    started = time.thread_time()
    assert compiled.matches("a" * LONGEST_TEXT) is False
    assert time.thread_time() - started < 2  # where `re` takes hours at best


def test_what_cannot_be_said_within_the_limits_has_no_answer() -> None:
    assert Regular("a*").matches("a" * (LONGEST_TEXT + 1)) is None
    hard = Regular("(?:a|b)*a" + "(?:a|b)" * 60)  # its automaton doubles with every letter
    text = "".join(random.Random(1).choices("ab", k=LONGEST_TEXT))
    assert hard.matches(text) is None


def test_known_steps_are_forgotten_before_they_fill_the_memory() -> None:
    anything = Regular(".*")
    for plane in range(3):
        assert anything.matches("".join(map(chr, range(0x10000 * plane, 0x10000 * plane + 9000)))) is True
