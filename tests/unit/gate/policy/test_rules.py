"""Rules: to whom they apply, in which order, and until when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toolcrib.gate.policy.decide import Creator, Grants, decide
from toolcrib.gate.policy.permissions import RuleBook
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.policy import Binding, Condition, OriginKind, Rule, RuleEffect, RuleOrigin, Verdict, Where
from toolcrib.model.principals import Principal
from toolcrib.model.servers import OtherName, ServerNames
from toolcrib.model.tools import Marks, Tool, ToolRef

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TOOL = Tool(ToolRef("a", "one"), "", {}, marks=Marks(destructive=True))
CALLER = Principal("session", "x", "ide", "default", "reviewer", "s1", "/p/sub")


def make_rule(effect: RuleEffect, kind: OriginKind = "user", *, id: str = "r", where: Where = Where()) -> Rule:  # noqa: B008 a frozen value
    return Rule(id, effect, "a/*", RuleOrigin(kind), where=where, session="s1" if kind == "session" else None)


def verdict(*rules: Rule, tool: Tool = TOOL, principal: Principal = CALLER) -> Verdict:
    return decide(tool.ref, tool, principal, Grants(), Rules(1, rules)).verdict


IN_ORDER = [
    (make_rule("deny"), "hidden"),
    (make_rule("ask", "managed"), "ask"),
    (make_rule("allow", "remembered"), "allow"),
    (make_rule("ask"), "ask"),
    (make_rule("allow"), "allow"),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_first_rule_in_the_order_of_decision_counts(first: int) -> None:
    rules = [rule for rule, _ in IN_ORDER[first:]]
    assert verdict(*rules) == verdict(*reversed(rules)) == IN_ORDER[first][1]


def test_answer_for_the_session_counts_only_in_that_session() -> None:
    ask, answer = make_rule("ask"), make_rule("allow", "session")
    assert verdict(ask, answer) == "allow"
    assert verdict(ask, answer, principal=Principal("session", "x", "ide", session="s2")) == "ask"
    assert verdict(ask, answer, principal=Principal("token", "x", "ide")) == "ask"
    assert verdict(ask, Rule("r", "allow", "a/*", RuleOrigin("session"))) == "ask"


def test_answer_for_a_token_does_not_count_for_another_token_of_the_same_name() -> None:
    first, later = (Principal("token", "laptop", "ide", "default", token_id=id) for id in ("1", "2"))
    answer = replace(make_rule("allow", "remembered"), principal=Binding.of(first))
    rules = Rules(1, (answer,))  # the same object for both, as in a running crib
    verdicts = [decide(TOOL.ref, TOOL, each, Grants(), rules).verdict for each in (first, later)]
    assert verdicts == ["allow", "ask"]


def test_rule_bound_to_a_definition_does_not_count_for_another() -> None:
    bound = Rule("r", "allow", "a/*", RuleOrigin("remembered"), definition_hash=TOOL.definition_hash)
    assert verdict(bound) == "allow"
    assert verdict(bound, tool=Tool(TOOL.ref, "Another description.", {})) == "ask"


@pytest.mark.parametrize(
    ("where", "counts"),
    [
        (Where(), True),
        (Where(destructive=True), True),
        (Where(destructive=False), False),
        (Where(read_only=True), False),
        (Where(open_world=False), True),
        (Where(sources=("ide", "api")), True),
        (Where(sources=("api",)), False),
        (Where(agents=("reviewer",)), True),
        (Where(agents=("other",)), False),
        (Where(modes=("default",)), True),
        (Where(modes=("plan",)), False),
        (Where(projects=("/p",)), True),
        (Where(projects=("/q", "/p/su")), False),
    ],
)
def test_rule_counts_where_its_where_clause_matches(where: Where, counts: bool) -> None:
    assert verdict(make_rule("allow", where=where)) == ("allow" if counts else "ask")


def test_deny_rule_with_conditions_lists_the_tool_and_denies_the_call() -> None:
    rules = Rules(1, (Rule("r", "deny", "a/*", RuleOrigin("user"), conditions=(Condition("/n", "equals", 1),)),))
    principal = Principal("session", "x", "ide", "acceptEdits")
    listed = decide(TOOL.ref, TOOL, principal, Grants(), rules)
    assert (listed.verdict, listed.needs_arguments) == ("allow", True)
    refused = decide(TOOL.ref, TOOL, principal, Grants(), rules, {"n": 1})
    assert (refused.verdict, refused.rules, refused.visible) == ("deny", ("r",), True)
    assert decide(TOOL.ref, TOOL, principal, Grants(), rules, {"n": 2}).verdict == "allow"


def test_all_conditions_of_a_rule_must_hold() -> None:
    both = (Condition("/n", "equals", 1), Condition("/m", "glob", "x*"))
    rules = Rules(1, (Rule("r", "allow", "a/*", RuleOrigin("user"), conditions=both),))
    assert decide(TOOL.ref, TOOL, CALLER, Grants(), rules, {"n": 1, "m": "xy"}).verdict == "allow"
    assert decide(TOOL.ref, TOOL, CALLER, Grants(), rules, {"n": 1, "m": "y"}).verdict == "ask"


def test_blocked_tool_stays_blocked_for_sessions_started_by_a_scheduled_run() -> None:
    tool = Tool(TOOL.ref, "", {}, marks=Marks(scheduler_blocked=True))
    scheduled = Principal("session", "nightly", "scheduler", "bypassPermissions", session="s0")
    child = Principal("session", "x", "agent", "bypassPermissions", session="s1")
    grants = Grants(("*",), creator=Creator(scheduled, Grants(("*",))))
    decision = decide(tool.ref, tool, child, grants, Rules())
    assert (decision.verdict, decision.decided_by.step) == ("hidden", "creator")
    assert decide(tool.ref, tool, child, Grants(("*",)), Rules()).verdict == "allow"


def test_book_returns_the_same_value_until_a_place_changes() -> None:
    book = RuleBook()
    empty = book()
    book.set("file", [make_rule("ask")])
    with_rule = book()
    assert with_rule.version > empty.version
    book.set("file", [make_rule("ask")])
    assert book() is with_rule
    book.set("database", [make_rule("deny", id="d")])
    assert {rule.id for rule in book().rules} == {"r", "d"}
    book.set("file", [])
    assert [rule.id for rule in book().rules] == ["d"]
    assert book.places == {"file": (), "database": (make_rule("deny", id="d"),)}


def test_rule_expires_at_its_moment_and_the_version_increases() -> None:
    now = NOW
    book = RuleBook(lambda: now)
    expiring = Rule("r", "allow", "a/*", RuleOrigin("user"), expires_at=NOW + timedelta(minutes=1))
    book.set("database", [expiring, Rule("old", "allow", "*", RuleOrigin("user"), expires_at=NOW)])
    before = book()
    assert [rule.id for rule in before.rules] == ["r"]
    now = NOW + timedelta(seconds=59)
    assert book() is before
    now = NOW + timedelta(minutes=1)
    after = book()
    assert after.rules == ()
    assert {rule.id for rule in after.expired} == {"r", "old"}
    assert after.version > before.version
    assert after.next_expiry is None


def test_fingerprint_of_equal_rules_does_not_depend_on_the_version() -> None:
    one, other = Rules(1, (make_rule("ask"),)), Rules(7, (make_rule("ask"),))
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != Rules(1, (make_rule("deny"),)).fingerprint


def test_json_form_of_a_rule_omits_unset_members() -> None:
    assert make_rule("ask").to_json() == {
        "id": "r",
        "effect": "ask",
        "pattern": "a/*",
        "origin": {"kind": "user"},
        "createdBy": "owner",
    }
    full = Rule(
        "r", "deny", "*", RuleOrigin("managed", "/etc/x", 3), "why", "root", NOW, NOW, (Condition("/n", "equals", 1),),
        Where(True, sources=("ide",)), "abc", "s1",
    )  # fmt: skip
    assert full.to_json() == {
        "id": "r",
        "effect": "deny",
        "pattern": "*",
        "conditions": [{"pointer": "/n", "test": "equals", "value": 1}],
        "where": {"readOnly": True, "sources": ["ide"]},
        "origin": {"kind": "managed", "file": "/etc/x", "line": 3},
        "reason": "why",
        "createdBy": "root",
        "createdAt": "2030-01-01T00:00:00.000+00:00",
        "expiresAt": "2030-01-01T00:00:00.000+00:00",
        "definitionHash": "abc",
        "session": "s1",
    }


def test_rule_does_not_apply_to_excepted_tools() -> None:
    deny = make_rule("deny", where=Where(excepted=("a/on*", "b/*")))
    assert verdict(deny) == "ask"
    assert verdict(deny, tool=Tool(ToolRef("a", "two"), "", {})) == "hidden"


def test_exception_applies_to_trusted_names_of_a_server_and_not_to_claimed_ones() -> None:
    deny = make_rule("deny", where=Where(excepted=("b/*",)))
    trusted = replace(TOOL, names=ServerNames(trusted=(OtherName("b", "file"),)))
    claimed = replace(TOOL, names=ServerNames(claimed=(OtherName("b", "file"),)))
    assert (verdict(deny, tool=trusted), verdict(deny, tool=claimed)) == ("ask", "hidden")
