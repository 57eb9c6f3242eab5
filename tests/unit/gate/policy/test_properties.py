"""What holds for every catalog, asker, grant and set of rules."""

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
from unit.gate.policy.world import (
    ARGUMENTS,
    PATTERNS,
    grants_given,
    own_grants,
    principals,
    questions,
    rule_sets,
    tools,
)

QUESTIONS = questions()
ORDER: list[Verdict] = ["allow", "ask", "deny", "hidden"]


def tool_of(question: ExplainQuery) -> Tool:
    assert question.tool is not None
    return question.tool


@given(QUESTIONS, ARGUMENTS)
@settings(deadline=None, max_examples=300)
def test_what_can_be_called_is_listed_and_what_is_listed_was_granted(
    question: ExplainQuery, arguments: JsonObject
) -> None:
    listed = replace(question, arguments=None, paths=None).decide().visible
    called = replace(question, arguments=arguments).decide()
    assert called.visible == listed
    assert sees(tool_of(question), question.principal, question.grants, question.rules) == listed
    if called.verdict in ("allow", "ask"):
        assert listed
    if listed:
        assert sight(tool_of(question), question.principal, question.grants)[-1].effect == "include"


@given(QUESTIONS, ARGUMENTS)
@settings(deadline=None, max_examples=300)
def test_a_verdict_that_needs_no_arguments_is_the_same_for_all_of_them(
    question: ExplainQuery, arguments: JsonObject
) -> None:
    decision = replace(question, arguments=None, paths=None).decide()
    with_arguments = replace(question, arguments=arguments).decide()
    if not decision.needs_arguments:
        # What is hidden by whoever started the session may still have been judged by paths on the way there.
        assert (with_arguments.verdict, with_arguments.rules) == (decision.verdict, decision.rules)
        assert with_arguments == decision or not decision.visible
    else:
        assert decision.visible


@given(questions(), st.lists(st.tuples(principals(), tools()), max_size=6))
@settings(deadline=None, max_examples=300)
def test_what_was_decided_for_others_before_changes_nothing(
    question: ExplainQuery, others: list[tuple[Principal, Tool]]
) -> None:
    fresh = replace(question, rules=Rules(1, question.rules.rules))
    for principal, tool in others:
        replace(question, ref=tool.ref, tool=tool, principal=principal).decide()
    assert question.decide() == question.decide() == fresh.decide()


@given(QUESTIONS, PATTERNS)
@settings(deadline=None)
def test_another_grant_or_bundle_never_takes_a_tool_away(question: ExplainQuery, pattern: str) -> None:
    grants = question.grants
    before = question.decide()
    bundled = replace(question, grants=replace(grants, bundles=(*grants.bundles, pattern))).decide()
    assert ORDER.index(bundled.verdict) <= ORDER.index(before.verdict)
    if grants.permissions is not None:
        granted = replace(question, grants=replace(grants, permissions=(*grants.permissions, pattern))).decide()
        assert ORDER.index(granted.verdict) <= ORDER.index(before.verdict)


@given(QUESTIONS)
@settings(deadline=None, max_examples=300)
def test_a_deny_rule_that_counts_always_wins(question: ExplainQuery) -> None:
    tool = tool_of(question)
    denials = [
        rule
        for rule in question.rules.rules
        if rule.effect == "deny"
        and names(rule.pattern, tool.ref)
        and obstacle(rule, tool, question.principal) is None
        and (not rule.conditions or (question.arguments is not None and unmet(rule, question.arguments) is None))
    ]
    if denials:
        assert question.decide().verdict in ("deny", "hidden")
    if any(not rule.conditions for rule in denials):
        assert question.decide().verdict == "hidden"


@given(QUESTIONS)
@settings(deadline=None)
def test_a_scheduled_run_is_never_asked_and_never_gets_a_blocked_tool(question: ExplainQuery) -> None:
    question = replace(question, principal=replace(question.principal, source="scheduler"))
    decision = question.decide()
    assert decision.verdict != "ask"
    assert not (tool_of(question).marks.scheduler_blocked and decision.visible)


@given(QUESTIONS, principals(), own_grants())
@settings(deadline=None)
def test_a_session_never_has_more_than_the_one_that_started_it(
    question: ExplainQuery, creator: Principal, given_to_creator: Grants
) -> None:
    limited = replace(question.grants, creator=Creator(creator, given_to_creator))
    child = replace(question, grants=limited).decide()
    parent = replace(question, principal=creator, grants=given_to_creator).decide()
    alone = replace(question, grants=replace(limited, creator=None)).decide()
    stricter = ORDER[max(ORDER.index(parent.verdict), ORDER.index(alone.verdict))]
    if stricter == "ask" and question.principal.source == "scheduler":
        stricter = "deny"  # nobody is there who could be asked
    assert child.verdict == stricter
    if creator.source == "scheduler" and tool_of(question).marks.scheduler_blocked:
        assert child.verdict == "hidden"


@given(QUESTIONS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_rules_are_written_in_does_not_matter(question: ExplainQuery, random: Random) -> None:
    mixed = list(question.rules.rules)
    random.shuffle(mixed)
    other = replace(question, rules=replace(question.rules, rules=tuple(mixed)))
    assert other.decide().verdict == question.decide().verdict


@given(QUESTIONS, PATTERNS)
@settings(deadline=None)
def test_an_allow_rule_never_gives_sight(question: ExplainQuery, pattern: str) -> None:
    allowed = replace(question, rules=question.rules.with_rules(Rule("new", "allow", pattern, RuleOrigin("user"))))
    assert allowed.decide().visible == question.decide().visible


@given(QUESTIONS)
@settings(deadline=None, max_examples=300)
def test_an_explanation_agrees_with_the_decision_and_names_the_step_that_decided(question: ExplainQuery) -> None:
    decision = question.decide()
    explanation = explain(question)
    assert explanation.verdict == decision.verdict
    assert explanation.decided_by == decision.decided_by
    assert explanation.decided_by in explanation.steps
    assert [step for step in explanation.steps if step.matched][-1] == explanation.decided_by
    if sight(tool_of(question), question.principal, question.grants)[-1].effect == "include":
        told = {step.rule for step in explanation.steps}
        assert all(ranked.rule.id in told for ranked in question.rules.matching(question.ref))


@given(QUESTIONS)
@settings(deadline=None, max_examples=500)
def test_a_flip_really_flips_and_nothing_in_it_is_for_nothing(question: ExplainQuery) -> None:
    verdict = question.decide().verdict
    flip = explain(question).flip
    assert flip is not None
    after = flip.after.decide().verdict
    assert after == flip.verdict
    assert (after in ("hidden", "deny")) == (verdict == "allow")
    assert after != verdict
    removed = [change.rule for change in flip.changes if change.kind == "remove_rule"]
    assert set(removed) <= {rule.id for rule in question.rules.rules}
    for rule in question.rules.rules:
        if rule.id in removed:
            put_back = replace(flip.after, rules=flip.after.rules.with_rules(rule))
            assert put_back.decide().verdict not in ({"allow"} if verdict == "ask" else {"allow", "ask"})


@given(tools(), principals(), grants_given(), rule_sets())
@settings(deadline=None)
def test_every_step_says_why(tool: Tool, asker: Principal, grants: Grants, rules: Rules) -> None:
    decision = decide(tool.ref, tool, asker, grants, rules)
    assert all(step.reason for step in decision.steps)
    assert decision.decided_by is decision.steps[-1]
