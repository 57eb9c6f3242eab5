"""`decide`: which tools a principal sees, the verdict on a call, and the reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.policy.decide import Creator, Grants, Rules, decide
from toolcrib.model.policy import Rule, RuleEffect, RuleOrigin, Verdict
from toolcrib.model.principals import MODES, SOURCES, Mode, Principal, Source
from toolcrib.model.tools import Marks, Tool, ToolRef

PATTERNS = st.sampled_from(["*", "a/*", "*/one", "a/one", "b/two", "c/*", ""])
NO_GRANTS, NO_RULES = Grants(), Rules()


@st.composite
def tools(draw: st.DrawFn) -> Tool:
    ref = ToolRef(draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(["one", "two"])))
    marks = Marks(*(draw(st.booleans()) for _ in range(4)))
    return Tool(ref, "", {"type": "object"}, marks=marks)


@st.composite
def principals(draw: st.DrawFn) -> Principal:
    source, mode = draw(st.sampled_from(SOURCES)), draw(st.sampled_from(MODES))
    return Principal("session", "x", source, mode, by_hand=draw(st.booleans()))


@st.composite
def any_grants(draw: st.DrawFn) -> Grants:
    some = st.lists(PATTERNS, max_size=2)
    permissions = draw(st.none() | some)
    return Grants(None if permissions is None else tuple(permissions), tuple(draw(some)))


@st.composite
def rule_sets(draw: st.DrawFn) -> Rules:
    effects: list[RuleEffect] = ["allow", "ask", "deny"]
    drawn = draw(st.lists(st.tuples(st.sampled_from(effects), PATTERNS), max_size=4))
    return Rules(
        1, tuple(Rule(f"r{i}", effect, pattern, RuleOrigin("user")) for i, (effect, pattern) in enumerate(drawn))
    )


TOOLS, PRINCIPALS, GRANTS, RULES = tools(), principals(), any_grants(), rule_sets()


def make_principal(source: Source = "ide", mode: Mode = "default", *, by_hand: bool = False) -> Principal:
    return Principal("session", "x", source, mode, by_hand=by_hand)


def make_tool(**marks: bool) -> Tool:
    return Tool(ToolRef("a", "one"), "", {"type": "object"}, marks=Marks(**marks))


def verdict(tool: Tool, principal: Principal, grants: Grants = NO_GRANTS, rules: Rules = NO_RULES) -> Verdict:
    return decide(tool.ref, tool, principal, grants, rules).verdict


@given(TOOLS, PRINCIPALS, GRANTS, RULES)
def test_deciding_step_agrees_with_the_verdict(tool: Tool, principal: Principal, grants: Grants, rules: Rules) -> None:
    decision = decide(tool.ref, tool, principal, grants, rules)
    expected = {"exclude": "hidden", "deny": "deny", "allow": "allow", "ask": "ask"}
    by_rule = decision.decided_by.step == "deny"
    assert decision.verdict == ("hidden" if by_rule else expected[decision.decided_by.effect])


def test_scheduled_run_is_denied_if_its_creator_would_be_asked() -> None:
    tool = make_tool()
    grants = Grants(creator=Creator(make_principal("web", "default"), NO_GRANTS))
    decision = decide(tool.ref, tool, make_principal("scheduler", "acceptEdits"), grants, NO_RULES)
    assert decision.verdict == "deny"
    assert [step.step for step in decision.steps[-2:]] == ["creator", "scheduler"]
    assert verdict(tool, make_principal("agent", "acceptEdits"), grants) == "ask"


def test_unregistered_tool_is_unknown_with_a_reason() -> None:
    decision = decide(ToolRef("a", "none"), None, make_principal(), Grants(), Rules())
    assert (decision.verdict, decision.visible) == ("unknown", False)
    assert decision.decided_by.reason


def test_default_tools_are_all_that_are_not_privileged() -> None:
    assert verdict(make_tool(), make_principal(mode="acceptEdits")) == "allow"
    assert verdict(make_tool(privileged=True), make_principal(mode="acceptEdits")) == "hidden"


def test_empty_list_of_permissions_hides_all_tools() -> None:
    assert verdict(make_tool(), make_principal(), Grants(permissions=())) == "hidden"


def test_explicit_permission_may_name_a_privileged_tool() -> None:
    assert verdict(make_tool(privileged=True), make_principal(mode="acceptEdits"), Grants(("a/one",))) == "allow"


def test_console_sees_all_tools() -> None:
    assert verdict(make_tool(privileged=True), make_principal("web"), Grants(())) == "ask"


@pytest.mark.parametrize(
    ("mode", "read_only", "expected"),
    [
        ("default", True, "ask"),
        ("default", False, "ask"),
        ("acceptEdits", False, "allow"),
        ("bypassPermissions", False, "allow"),
        ("plan", True, "allow"),
        ("plan", False, "deny"),
        ("dontAsk", True, "deny"),
    ],
)
def test_mode_decides_if_no_rule_matches(mode: Mode, read_only: bool, expected: Verdict) -> None:
    assert verdict(make_tool(read_only=read_only), make_principal(mode=mode)) == expected


def test_call_by_the_owner_needs_no_approval_but_obeys_deny_rules() -> None:
    by_hand = make_principal("cli", by_hand=True)
    assert verdict(make_tool(), by_hand) == "allow"
    assert verdict(make_tool(), by_hand, rules=Rules(1, (Rule("r", "deny", "a/*", RuleOrigin("user")),))) == "hidden"


def test_ask_rule_precedes_an_allow_rule_and_both_precede_the_mode() -> None:
    allow, ask = Rule("1", "allow", "a/*", RuleOrigin("user")), Rule("2", "ask", "*", RuleOrigin("user"))
    assert verdict(make_tool(), make_principal(mode="dontAsk"), rules=Rules(1, (allow,))) == "allow"
    assert verdict(make_tool(), make_principal(mode="acceptEdits"), rules=Rules(1, (allow, ask))) == "ask"


def test_allow_rule_does_not_make_a_hidden_tool_visible() -> None:
    rules = Rules(1, (Rule("1", "allow", "*", RuleOrigin("user")),))
    assert verdict(make_tool(privileged=True), make_principal(), rules=rules) == "hidden"
