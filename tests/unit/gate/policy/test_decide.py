"""`decide`: who sees what, what a call does, and that the reasons are true."""

from fnmatch import fnmatchcase

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
def grants_given(draw: st.DrawFn) -> Grants:
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


TOOLS, PRINCIPALS, GRANTS, RULES = tools(), principals(), grants_given(), rule_sets()


def an_asker(source: Source = "ide", mode: Mode = "default", *, by_hand: bool = False) -> Principal:
    return Principal("session", "x", source, mode, by_hand=by_hand)


def a_tool(**marks: bool) -> Tool:
    return Tool(ToolRef("a", "one"), "", {"type": "object"}, marks=Marks(**marks))


def verdict(tool: Tool, asker: Principal, grants: Grants = NO_GRANTS, rules: Rules = NO_RULES) -> Verdict:
    return decide(tool.ref, tool, asker, grants, rules).verdict


@given(TOOLS, PRINCIPALS, GRANTS, RULES)
def test_the_step_that_decided_agrees_with_the_verdict(
    tool: Tool, asker: Principal, grants: Grants, rules: Rules
) -> None:
    decision = decide(tool.ref, tool, asker, grants, rules)
    expected = {"exclude": "hidden", "deny": "deny", "allow": "allow", "ask": "ask"}
    by_rule = decision.decided_by.step == "deny"
    assert decision.verdict == ("hidden" if by_rule else expected[decision.decided_by.effect])


@given(TOOLS, PRINCIPALS, GRANTS, RULES)
def test_a_deny_rule_always_wins(tool: Tool, asker: Principal, grants: Grants, rules: Rules) -> None:
    denied = any(rule.effect == "deny" and fnmatchcase(str(tool.ref), rule.pattern) for rule in rules.rules)
    assert not (denied and decide(tool.ref, tool, asker, grants, rules).visible)


@given(TOOLS, PRINCIPALS, GRANTS, RULES, PATTERNS)
def test_another_grant_or_bundle_never_takes_a_tool_away(
    tool: Tool, asker: Principal, grants: Grants, rules: Rules, pattern: str
) -> None:
    if not decide(tool.ref, tool, asker, grants, rules).visible:
        return
    bundled = Grants(grants.permissions, (*grants.bundles, pattern))
    assert decide(tool.ref, tool, asker, bundled, rules).visible
    if grants.permissions is not None:
        granted = Grants((*grants.permissions, pattern), grants.bundles)
        assert decide(tool.ref, tool, asker, granted, rules).visible


@given(TOOLS, GRANTS, RULES, st.sampled_from(MODES))
def test_a_scheduled_run_is_never_asked_and_never_gets_a_blocked_tool(
    tool: Tool, grants: Grants, rules: Rules, mode: Mode
) -> None:
    decision = decide(tool.ref, tool, an_asker("scheduler", mode), grants, rules)
    assert decision.verdict != "ask"
    assert not (tool.marks.scheduler_blocked and decision.visible)


def test_a_scheduled_run_whose_creator_would_be_asked_is_refused_since_nobody_is_there() -> None:
    tool = a_tool()
    grants = Grants(creator=Creator(an_asker("web", "default"), NO_GRANTS))
    decision = decide(tool.ref, tool, an_asker("scheduler", "acceptEdits"), grants, NO_RULES)
    assert decision.verdict == "deny"
    assert [step.step for step in decision.steps[-2:]] == ["creator", "scheduler"]
    assert verdict(tool, an_asker("agent", "acceptEdits"), grants) == "ask"


@given(TOOLS, PRINCIPALS, GRANTS, RULES)
def test_the_order_of_rules_does_not_matter(tool: Tool, asker: Principal, grants: Grants, rules: Rules) -> None:
    turned = Rules(1, rules.rules[::-1])
    one, other = (decide(tool.ref, tool, asker, grants, each).verdict for each in (rules, turned))
    assert one == other


def test_a_tool_that_is_not_registered_is_unknown_with_a_reason() -> None:
    decision = decide(ToolRef("a", "none"), None, an_asker(), Grants(), Rules())
    assert (decision.verdict, decision.visible) == ("unknown", False)
    assert decision.decided_by.reason


def test_the_default_set_is_every_tool_that_is_not_privileged() -> None:
    assert verdict(a_tool(), an_asker(mode="acceptEdits")) == "allow"
    assert verdict(a_tool(privileged=True), an_asker(mode="acceptEdits")) == "hidden"


def test_an_empty_list_of_permissions_means_none() -> None:
    assert verdict(a_tool(), an_asker(), Grants(permissions=())) == "hidden"


def test_explicit_permissions_may_name_a_privileged_tool() -> None:
    assert verdict(a_tool(privileged=True), an_asker(mode="acceptEdits"), Grants(("a/one",))) == "allow"


def test_the_console_sees_all_tools() -> None:
    assert verdict(a_tool(privileged=True), an_asker("web"), Grants(())) == "ask"


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
def test_what_a_mode_does_when_no_rule_speaks(mode: Mode, read_only: bool, expected: Verdict) -> None:
    assert verdict(a_tool(read_only=read_only), an_asker(mode=mode)) == expected


def test_a_call_by_the_owners_own_hand_is_its_own_approval_but_not_against_a_deny_rule() -> None:
    by_hand = an_asker("cli", by_hand=True)
    assert verdict(a_tool(), by_hand) == "allow"
    assert verdict(a_tool(), by_hand, rules=Rules(1, (Rule("r", "deny", "a/*", RuleOrigin("user")),))) == "hidden"


def test_an_ask_rule_comes_before_an_allow_rule_and_both_before_the_mode() -> None:
    allow, ask = Rule("1", "allow", "a/*", RuleOrigin("user")), Rule("2", "ask", "*", RuleOrigin("user"))
    assert verdict(a_tool(), an_asker(mode="dontAsk"), rules=Rules(1, (allow,))) == "allow"
    assert verdict(a_tool(), an_asker(mode="acceptEdits"), rules=Rules(1, (allow, ask))) == "ask"


def test_an_allow_rule_skips_asking_but_never_gives_sight() -> None:
    rules = Rules(1, (Rule("1", "allow", "*", RuleOrigin("user")),))
    assert verdict(a_tool(privileged=True), an_asker(), rules=rules) == "hidden"
