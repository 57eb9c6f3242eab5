"""Conditions on arguments: what holds, what does not, and what nobody can say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.model.json import Json
from toolcrib.model.policy import Condition, ConditionTest, Origin, Rule
from toolcrib.policy.conditions import ABSENT, holds, pointed
from toolcrib.policy.rules import unmet

ARGUMENTS = {"repo": "acme/x", "n": 3, "yes": True, "list": ["a", {"b/c~d": 1}], "none": None, "": {"": 0}}


@pytest.mark.parametrize(
    ("pointer", "test", "value", "expected"),
    [
        ("/repo", "equals", "acme/x", True),
        ("/n", "equals", 3.0, True),
        ("/yes", "equals", 1, False),
        ("/list", "equals", ["a", {"b/c~d": 1}], True),
        ("/list", "equals", ["a", {"b/c~d": True}], False),
        ("/none", "equals", None, True),
        ("/absent", "equals", None, False),
        ("", "equals", {}, False),
        ("/repo", "glob", "acme/*", True),
        ("/repo", "glob", "acme", False),
        ("/n", "glob", "*", False),
        ("/repo", "regex", "(acme|our)/.*", True),
        ("/repo", "regex", "acme", False),
        ("/repo", "regex", "(?=a)", None),
        ("/n", "range", {"min": 3}, True),
        ("/n", "range", {"min": 1, "max": 2}, False),
        ("/n", "range", {"max": 3}, True),
        ("/yes", "range", {"min": 0}, False),
        ("/repo", "range", {"min": 0}, False),
        ("/n", "range", {"min": "0"}, None),
        ("/n", "range", 3, None),
        ("/list/0", "equals", "a", True),
        ("/list/1/b~1c~0d", "equals", 1, True),
        ("/list/00", "equals", "a", False),
        ("/list/9", "equals", "a", False),
        ("/list/-", "equals", "a", False),
        ("//", "equals", 0, True),
        ("repo", "equals", "acme/x", False),
        ("/repo/0", "equals", "a", False),
    ],
)
def test_what_a_condition_says(pointer: str, test: ConditionTest, value: Json, expected: bool | None) -> None:
    assert holds(Condition(pointer, test, value), ARGUMENTS) is expected


@pytest.mark.parametrize("test", ["glob", "regex"])
def test_what_cannot_be_tested_counts_against_allowing_and_for_restricting(test: ConditionTest) -> None:
    long = {"text": "x" * 100_000}
    condition = (Condition("/text", test, "y*"),)
    assert unmet(Rule("r", "deny", "*", Origin("user"), conditions=condition), long) is None
    assert unmet(Rule("r", "ask", "*", Origin("user"), conditions=condition), long) is None
    assert unmet(Rule("r", "allow", "*", Origin("user"), conditions=condition), long) is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~0", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.text("a/~01", max_size=6), st.sampled_from(["equals", "glob", "regex", "range"]), VALUES)
@settings(deadline=None)
def test_no_value_and_no_condition_makes_it_fail(value: Json, pointer: str, test: ConditionTest, wanted: Json) -> None:
    assert holds(Condition(pointer, test, wanted), value) in (True, False, None)


@given(st.dictionaries(st.text("a/~01", max_size=4), st.integers(), min_size=1))
@settings(deadline=None)
def test_every_member_can_be_pointed_at(members: dict[str, int]) -> None:
    for key, value in members.items():
        assert pointed("/" + key.replace("~", "~0").replace("/", "~1"), members) == value
    assert pointed("/nothing", members) is ABSENT
