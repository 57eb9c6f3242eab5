"""Invariants of decisions for any catalog, principal, grants and rules."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.decide import Creator, Grants, decide, sees, sight
from toolcrib.gate.policy.explain import ExplainQuery, explain
from toolcrib.gate.policy.patterns import names
from toolcrib.gate.policy.rules import Rules, obstacle, unmet
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Rule, RuleOrigin, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool
from unit.gate.policy.strategies import (
    ARGUMENTS,
    PATTERNS,
    any_grants,
    own_grants,
    principals,
    queries,
    rule_sets,
    tools,
)

QUERIES = queries()
ORDER: list[Verdict] = ["allow", "ask", "deny", "hidden"]


def tool_of(query: ExplainQuery) -> Tool:
    assert query.tool is not None
    return query.tool


@given(QUERIES, ARGUMENTS)
@settings(deadline=None, max_examples=300)
def test_callable_tools_are_listed_and_listed_tools_are_granted(query: ExplainQuery, arguments: JsonObject) -> None:
    listed = replace(query, arguments=None, paths=None).decide().visible
    called = replace(query, arguments=arguments).decide()
    assert called.visible == listed
    assert sees(tool_of(query), query.principal, query.grants, query.rules) == listed
    if called.verdict in ("allow", "ask"):
        assert listed
    if listed:
        assert sight(tool_of(query), query.principal, query.grants)[-1].effect == "include"


@given(QUERIES, ARGUMENTS)
@settings(deadline=None, max_examples=300)
def test_verdict_that_needs_no_arguments_is_the_same_for_any_arguments(
    query: ExplainQuery, arguments: JsonObject
) -> None:
    decision = replace(query, arguments=None, paths=None).decide()
    with_arguments = replace(query, arguments=arguments).decide()
    if not decision.needs_arguments:
        # A call that the session's creator may not see can still have had its paths checked.
        assert (with_arguments.verdict, with_arguments.rules) == (decision.verdict, decision.rules)
        assert with_arguments == decision or not decision.visible
    else:
        assert decision.visible


@given(queries(), st.lists(st.tuples(principals(), tools()), max_size=6))
@settings(deadline=None, max_examples=300)
def test_decision_does_not_depend_on_earlier_decisions(
    query: ExplainQuery, others: list[tuple[Principal, Tool]]
) -> None:
    fresh = replace(query, rules=Rules(1, query.rules.rules))
    for principal, tool in others:
        replace(query, ref=tool.ref, tool=tool, principal=principal).decide()
    assert query.decide() == query.decide() == fresh.decide()


@given(QUERIES, PATTERNS)
@settings(deadline=None)
def test_additional_grant_or_bundle_never_makes_a_verdict_stricter(query: ExplainQuery, pattern: str) -> None:
    grants = query.grants
    before = query.decide()
    bundled = replace(query, grants=replace(grants, bundles=(*grants.bundles, pattern))).decide()
    assert ORDER.index(bundled.verdict) <= ORDER.index(before.verdict)
    if grants.permissions is not None:
        granted = replace(query, grants=replace(grants, permissions=(*grants.permissions, pattern))).decide()
        assert ORDER.index(granted.verdict) <= ORDER.index(before.verdict)


@given(QUERIES)
@settings(deadline=None, max_examples=300)
def test_matching_deny_rule_always_wins(query: ExplainQuery) -> None:
    tool = tool_of(query)
    denials = [
        rule
        for rule in query.rules.rules
        if rule.effect == "deny"
        and names(rule.pattern, tool.ref)
        and obstacle(rule, tool, query.principal) is None
        and (not rule.conditions or (query.arguments is not None and unmet(rule, query.arguments) is None))
    ]
    if denials:
        assert query.decide().verdict in ("deny", "hidden")
    if any(not rule.conditions for rule in denials):
        assert query.decide().verdict == "hidden"


@given(QUERIES)
@settings(deadline=None)
def test_scheduled_run_never_asks_and_never_gets_a_blocked_tool(query: ExplainQuery) -> None:
    query = replace(query, principal=replace(query.principal, source="scheduler"))
    decision = query.decide()
    assert decision.verdict != "ask"
    assert not (tool_of(query).marks.scheduler_blocked and decision.visible)


@given(QUERIES, principals(), own_grants())
@settings(deadline=None)
def test_session_never_has_more_rights_than_its_creator(
    query: ExplainQuery, creator: Principal, creator_grants: Grants
) -> None:
    limited = replace(query.grants, creator=Creator(creator, creator_grants))
    child = replace(query, grants=limited).decide()
    parent = replace(query, principal=creator, grants=creator_grants).decide()
    alone = replace(query, grants=replace(limited, creator=None)).decide()
    stricter = ORDER[max(ORDER.index(parent.verdict), ORDER.index(alone.verdict))]
    if stricter == "ask" and query.principal.source == "scheduler":
        stricter = "deny"  # a scheduled run cannot ask
    assert child.verdict == stricter
    if creator.source == "scheduler" and tool_of(query).marks.scheduler_blocked:
        assert child.verdict == "hidden"


@given(QUERIES, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_of_rules_does_not_matter(query: ExplainQuery, random: Random) -> None:
    mixed = list(query.rules.rules)
    random.shuffle(mixed)
    other = replace(query, rules=replace(query.rules, rules=tuple(mixed)))
    assert other.decide().verdict == query.decide().verdict


@given(QUERIES, PATTERNS)
@settings(deadline=None)
def test_allow_rule_does_not_change_visibility(query: ExplainQuery, pattern: str) -> None:
    allowed = replace(query, rules=query.rules.with_rules(Rule("new", "allow", pattern, RuleOrigin("user"))))
    assert allowed.decide().visible == query.decide().visible


@given(QUERIES)
@settings(deadline=None, max_examples=300)
def test_explanation_agrees_with_the_decision_and_lists_the_deciding_step(query: ExplainQuery) -> None:
    decision = query.decide()
    explanation = explain(query)
    assert explanation.verdict == decision.verdict
    assert explanation.decided_by == decision.decided_by
    assert explanation.decided_by in explanation.steps
    assert [step for step in explanation.steps if step.matched][-1] == explanation.decided_by
    if sight(tool_of(query), query.principal, query.grants)[-1].effect == "include":
        listed = {step.rule for step in explanation.steps}
        assert all(ranked.rule.id in listed for ranked in query.rules.matching(query.ref))


@given(QUERIES)
@settings(deadline=None, max_examples=500)
def test_flip_changes_the_verdict_with_only_necessary_changes(query: ExplainQuery) -> None:
    verdict = query.decide().verdict
    flip = explain(query).flip
    assert flip is not None
    after = flip.after.decide().verdict
    assert after == flip.verdict
    assert (after in ("hidden", "deny")) == (verdict == "allow")
    assert after != verdict
    removed = [change.rule for change in flip.changes if change.kind == "remove_rule"]
    assert set(removed) <= {rule.id for rule in query.rules.rules}
    for rule in query.rules.rules:
        if rule.id in removed:
            put_back = replace(flip.after, rules=flip.after.rules.with_rules(rule))
            assert put_back.decide().verdict not in ({"allow"} if verdict == "ask" else {"allow", "ask"})


@given(tools(), principals(), any_grants(), rule_sets())
@settings(deadline=None)
def test_each_step_has_a_reason_and_the_last_one_decides(
    tool: Tool, principal: Principal, grants: Grants, rules: Rules
) -> None:
    decision = decide(tool.ref, tool, principal, grants, rules)
    assert all(step.reason for step in decision.steps)
    assert decision.decided_by is decision.steps[-1]
