"""Reach and proofs about rules, compared with all principals, tools and outcomes of conditions."""

import time
from dataclasses import replace
from itertools import chain, combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.reach import Subject, ToolClasses, reach
from toolcrib.gate.policy.rule_proofs import KnownPrincipals, RuleProof, RuleProver
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.policy import Binding, Condition, Rule, RuleEffect, RuleOrigin, Verdict, Where
from toolcrib.model.principals import MODES, Mode, Principal, Source
from toolcrib.model.tools import Marks, Tool, ToolRef
from unit.gate.policy.strategies import ARGUMENTS, REFS, TOUCHED, any_grants, principals, rule_sets, tools

_PATHS = (
    *TOUCHED,
    (TouchedPath(None),),
    (TouchedPath("/q/.git/x"),),
    (TouchedPath("/q/x"),),
    (TouchedPath("/p/sub/x"),),
    (TouchedPath("/p/sub/.git/x"),),
)
_SOURCES: tuple[Source, ...] = ("ide", "web", "cli")
_MODES: tuple[Mode, ...] = ("default", "acceptEdits")
_KNOWN = KnownPrincipals(frozenset({"reviewer"}), (), frozenset({"s1"}))
_CATALOGS = st.lists(tools(), min_size=1, max_size=6, unique_by=lambda tool: tool.ref)


def _subsets(rules: Rules) -> list[frozenset[str]]:
    ids = [rule.id for rule in rules.rules if rule.conditions]
    sizes = (combinations(ids, size) for size in range(len(ids) + 1))
    return [frozenset(each) for each in chain.from_iterable(sizes)]


def _verdicts(tool: Tool, principal: Principal, grants: Grants, rules: Rules) -> set[Verdict]:
    paths = _PATHS if tool.ref.server == "claude_code" else (None,)
    return {
        decide(
            tool.ref, tool, principal, grants, rules, paths=touched, assume=lambda rule, ids=ids: rule.id in ids
        ).verdict
        for ids, touched in product(_subsets(rules), paths)
    }


@settings(deadline=None, max_examples=40)
@given(_CATALOGS, principals(), any_grants(), rule_sets(4))
def test_reach_equals_the_verdicts_that_decide_can_return(
    catalog: list[Tool], principal: Principal, grants: Grants, rules: Rules
) -> None:
    principal = replace(principal, by_hand=False)
    groups = reach(Subject("x", principal, grants), ToolClasses(catalog, rules))
    found = {ref: set(group.outcome.verdicts) for group in groups for ref in group.tools}
    assert found == {tool.ref: _verdicts(tool, principal, grants, rules) for tool in catalog}


@settings(deadline=None, max_examples=40)
@given(tools(), principals(), any_grants(), rule_sets(4), ARGUMENTS)
def test_verdict_of_any_call_is_found_by_reach(
    tool: Tool, principal: Principal, grants: Grants, rules: Rules, arguments: dict[str, object]
) -> None:
    (group,) = reach(Subject("x", principal, grants), ToolClasses([tool], rules))
    for paths in _PATHS if tool.ref.server == "claude_code" else (None,):
        decision = decide(tool.ref, tool, principal, grants, rules, arguments, paths)
        assert decision.verdict in group.outcome.verdicts


def _decides(rule: Rule, rules: Rules, catalog: list[Tool]) -> bool:
    """Return whether a rule decides any call of any existing principal."""
    all_principals = (
        Principal(kind, "x", source, mode, agent, session, cwd)
        for kind, source, mode, agent, session, cwd in product(
            ("owner", "session"), _SOURCES, _MODES, (None, "reviewer", "y"), (None, "s1"), (None, "/p")
        )
    )
    only = Grants(permissions=("*",))
    return any(
        rule.id in decide(tool.ref, tool, principal, only, rules, paths=paths, assume=lambda each: each is rule).rules
        for principal in all_principals
        for tool in catalog
        for paths in ((TOUCHED[0], TOUCHED[2]) if tool.ref.server == "claude_code" else (None,))
    )


@settings(deadline=None, max_examples=40)
@given(_CATALOGS, rule_sets(4))
def test_reported_rules_are_exactly_those_that_never_decide_a_call(catalog: list[Tool], rules: Rules) -> None:
    catalog = [replace(tool, marks=replace(tool.marks, scheduler_blocked=False)) for tool in catalog]
    proofs = RuleProver(ToolClasses(catalog, rules), _KNOWN).prove()
    reported = {proof.rule.id for proof in proofs if proof.kind != "conflict"}
    assert reported == {rule.id for rule in rules.rules if not _decides(rule, rules, catalog)}


def _tool(name: str, **marks: bool) -> Tool:
    server, _, tool = name.partition("/")
    return Tool(ToolRef(server, tool), "", {"type": "object"}, marks=Marks(**marks))


def _rule(id: str, effect: RuleEffect, pattern: str, where: Where | None = None, **more: object) -> Rule:
    return replace(Rule(id, effect, pattern, RuleOrigin("user"), where=where or Where()), **more)


def _proofs(*rules: Rule, known: KnownPrincipals = _KNOWN) -> list[RuleProof]:
    catalog = [_tool("shop/sell"), _tool("shop/list", read_only=True), _tool("files/list")]
    return list(RuleProver(ToolClasses(catalog, Rules(1, rules)), known).prove())


def test_pattern_without_a_tool_is_reported_as_unmatched() -> None:
    (proof,) = _proofs(_rule("r", "allow", "shpo/*"))
    assert proof.kind == "unmatched"


def test_rule_for_a_deleted_agent_or_revoked_token_is_reported_with_the_reason() -> None:
    bound = Binding("token", "ide", None, "laptop", "t1")
    gone = _proofs(_rule("a", "deny", "shop/*", Where(agents=("gone",))), _rule("t", "deny", "*", principal=bound))
    assert [(proof.kind, proof.reason) for proof in gone] == [
        ("unmet", "There is no agent gone."),
        ("unmet", "The token laptop does not exist any more."),
    ]
    token = Principal("token", "laptop", "ide", "acceptEdits", token_id="t1")
    assert _proofs(_rule("t", "deny", "*", principal=bound), known=replace(_KNOWN, tokens=(token,))) == []


def test_allow_rule_below_an_ask_rule_is_shadowed_by_it() -> None:
    (proof,) = _proofs(_rule("wide", "ask", "shop/*"), _rule("narrow", "allow", "shop/sell"))
    assert (proof.kind, proof.rule.id, [rule.id for rule in proof.others]) == ("shadowed", "narrow", ["wide"])


def test_rules_that_cover_all_modes_together_shadow_a_third() -> None:
    some, rest = MODES[:2], MODES[2:]
    rules = (_rule("one", "ask", "*", Where(modes=some)), _rule("two", "ask", "*", Where(modes=rest)))
    (proof,) = _proofs(*rules, _rule("allow", "allow", "shop/sell"))
    assert (proof.kind, proof.rule.id, {rule.id for rule in proof.others}) == ("shadowed", "allow", {"one", "two"})


def test_condition_on_arguments_never_shadows() -> None:
    asks = _rule("some", "ask", "shop/*", conditions=(Condition("/n", "equals", 1),))
    assert _proofs(asks, _rule("allow", "allow", "shop/sell")) == []


def test_partial_overlap_is_a_conflict_and_an_exception_is_not() -> None:
    (proof,) = _proofs(_rule("lists", "allow", "*/list"), _rule("shop", "deny", "shop/*"))
    assert (proof.kind, proof.rule.id, proof.others[0].id) == ("conflict", "lists", "shop")
    assert str(proof.tool) == "shop/list"
    assert _proofs(_rule("shop", "allow", "shop/*"), _rule("sell", "deny", "shop/sell")) == []


def test_reach_of_a_large_catalog_is_computed_in_time() -> None:
    catalog = [_tool(f"server{number // 100}/tool{number}", read_only=number % 3 == 0) for number in range(10_000)]
    rules = Rules(1, tuple(_rule(f"r{number}", "ask", f"server{number}/*1") for number in range(100)))
    only = [Grants(), *(Grants((f"server{number}/*", "server1/tool1*")) for number in range(49))]
    subjects = [Subject(str(at), Principal("session", "x", "ide"), grants) for at, grants in enumerate(only)]
    began = time.process_time()
    classes = ToolClasses(catalog, rules)
    sizes = [sum(len(group.tools) for group in reach(subject, classes)) for subject in subjects]
    assert set(sizes) == {10_000}
    assert time.process_time() - began < 20, "expected about one second on an idle machine"


def test_reason_of_reach_is_the_rule_that_allows() -> None:
    rules = Rules(1, (_rule("r", "allow", "a/*", conditions=(Condition("/n", "equals", 1),), reason="Cheap."),))
    (group,) = reach(Subject("x", Principal("session", "x", "ide"), Grants()), ToolClasses([_tool("a/one")], rules))
    assert (group.outcome.access, group.outcome.step.rule, group.outcome.step.reason) == ("may", "r", "Cheap.")
    assert group.to_json(5)["tools"] == [str(REFS[0])]
