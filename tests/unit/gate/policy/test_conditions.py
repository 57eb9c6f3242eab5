"""Conditions on arguments: which ones hold, which do not, and which cannot be tested."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.conditions import ABSENT, ConditionContext, holds, value_at
from toolcrib.gate.policy.rules import unmet
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import CONDITION_TESTS, Condition, ConditionTest, Rule, RuleOrigin
from toolcrib.model.tools import Tool, ToolRef

SLACK = 4
"""Allowance for a busy machine."""
ARGUMENTS = {
    "repo": "acme/x", "n": 3, "yes": True, "list": ["a", {"b/c~d": 1}], "none": None, "": {"": 0}, "text": "3",
    "paths": ["/etc/passwd", "/tmp/x"], "empty": [], "wide": "/\uff45tc/passwd", "command": "git status -s",
    "argv": ["npm", "test", "--", "x;y"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("pointer", "test", "value", "expected"),
    [
        ("/repo", "equals", "acme/x", True),
        ("/n", "equals", 3.0, True),
        ("/yes", "equals", 1, False),
        ("/list", "equals", ["a", {"b/c~d": 1}], True),
        ("/list", "equals", ["a", {"b/c~d": True}], False),
        ("/none", "equals", None, True),
        ("/absent", "equals", None, None),
        ("", "equals", {}, False),
        ("/repo", "glob", "acme/*", True),
        ("/repo", "glob", "acme", False),
        ("/n", "glob", "*", None),
        ("/repo", "regex", "(acme|our)/.*", True),
        ("/repo", "regex", "acme", False),
        ("/repo", "regex", "(?=a)", None),
        ("/n", "range", {"min": 3}, True),
        ("/n", "range", {"min": 1, "max": 2}, False),
        ("/n", "range", {"max": 3}, True),
        ("/yes", "range", {"min": 0}, None),
        ("/repo", "range", {"min": 0}, None),
        ("/n", "range", {"min": "0"}, None),
        ("/n", "range", 3, None),
        ("/list/0", "equals", "a", True),
        ("/list/1/b~1c~0d", "equals", 1, True),
        ("/list/00", "equals", "a", None),
        ("/list/9", "equals", "a", None),
        ("/list/-", "equals", "a", None),
        ("//", "equals", 0, True),
        ("repo", "equals", "acme/x", None),
        ("/repo/0", "equals", "a", None),
        ("/none", "equals", "main", None),
        ("/n", "equals", "3", None),
        ("/n", "equals", "4", False),
        ("/yes", "equals", "true", None),
        ("/repo", "equals", "ACME/X", None),
        ("/list", "equals", "a", None),
        ("/text", "range", {"min": 3}, None),
        ("/text", "range", {"min": 4}, False),
        ("/none", "range", {"min": 3}, None),
        ("/paths", "glob", "/etc/*", None),
        ("/paths", "glob", "/*", True),
        ("/paths", "glob", "x*", False),
        ("/empty", "glob", "*", None),
        ("/wide", "glob", "*etc*", None),
        ("/n", "present", True, True),
        ("/absent", "present", True, False),
        ("/absent", "present", False, True),
        ("/command", "command", "git status", True),
        ("/command", "command", "git log", False),
        ("/command", "command", "ls", False),
        ("/argv", "command", "npm test", True),
    ],
)
def test_condition_holds_fails_or_cannot_be_tested(
    pointer: str, test: ConditionTest, value: Json, expected: bool | None
) -> None:
    assert holds(Condition(pointer, test, value), ARGUMENTS) is expected


@pytest.mark.parametrize("test", ["glob", "regex"])
def test_untestable_condition_counts_for_deny_and_ask_but_not_for_allow(test: ConditionTest) -> None:
    long = {"text": "x" * 100_000}
    condition = (Condition("/text", test, "y*"),)
    assert unmet(Rule("r", "deny", "*", RuleOrigin("user"), conditions=condition), long) is None
    assert unmet(Rule("r", "ask", "*", RuleOrigin("user"), conditions=condition), long) is None
    assert unmet(Rule("r", "allow", "*", RuleOrigin("user"), conditions=condition), long) is not None


MARKS = "a" + "\u0315\u0300" * 30_000


@pytest.mark.parametrize(
    ("test", "value"), [("glob", "*a*a*b"), ("regex", "(.*a.{20}){5}b"), ("equals", "x"), ("path", "/etc/**")]
)
@pytest.mark.parametrize(
    "found",
    [
        ["".join(random.Random(seed).choices("ac", k=1_000)) for seed in range(900)],
        ["".join(random.Random(seed).choices("ac", k=60)) for seed in range(1_000)],
        ["".join(random.Random(seed).choices("aé", k=60)) for seed in range(1_000)],
        MARKS,
        [MARKS[:4_000]] * 16,
    ],
    ids=["long list", "list", "accents", "marks", "list of marks"],
)
def test_condition_is_tested_within_its_time_limit(found: Json, test: ConditionTest, value: Json) -> None:
    condition = Condition("/x", test, value)
    holds(condition, {"x": "a\u00e9"})
    started = time.thread_time()
    holds(condition, {"x": found})
    assert time.thread_time() - started < 0.05 * SLACK


@pytest.mark.parametrize("items", [1_001, 5_000])
def test_item_at_the_end_of_a_long_list_is_not_a_clear_mismatch(items: int) -> None:
    arguments: JsonObject = {"x": ["y"] * items + ["wanted"]}
    assert holds(Condition("/x", "equals", "wanted"), arguments) is None
    assert holds(Condition("/x", "glob", "wanted"), arguments) is None


def context_with(schema: JsonObject) -> ConditionContext:
    return ConditionContext(Tool(ToolRef("shop", "sell"), "", schema))


def test_absent_argument_is_a_mismatch_only_if_the_tool_does_not_take_it() -> None:
    condition = Condition("/days", "range", {"min": 3})
    taken = context_with({"type": "object", "properties": {"days": {"type": "integer"}}})
    assert holds(condition, {}, taken) is None
    assert holds(condition, {}, context_with({"type": "object"})) is None
    assert holds(condition, {}, context_with({"type": "object", "properties": {"city": {}}})) is False
    assert holds(condition, {}, context_with({"anyOf": [{"properties": {"days": {}}}]})) is None
    bash = ConditionContext(Tool(ToolRef("claude_code", "Bash"), "", {"type": "object", "properties": {}}))
    assert holds(Condition("/file_path", "path", "/etc"), {"command": "ls"}, bash) is False


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~0", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.text("a/~01", max_size=6), st.sampled_from(CONDITION_TESTS), VALUES)
@settings(deadline=None)
def test_any_value_can_be_tested_with_any_condition(
    value: Json, pointer: str, test: ConditionTest, wanted: Json
) -> None:
    assert holds(Condition(pointer, test, wanted), value) in (True, False, None)


@given(st.dictionaries(st.text("a/~01", max_size=4), st.integers(), min_size=1))
@settings(deadline=None)
def test_pointer_finds_each_member(members: dict[str, int]) -> None:
    for key, value in members.items():
        assert value_at("/" + key.replace("~", "~0").replace("/", "~1"), members) == value
    assert value_at("/nothing", members) is ABSENT
