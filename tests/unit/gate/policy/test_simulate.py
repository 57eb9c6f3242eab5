"""Simulation: recorded calls are decided again under other rules."""

from collections.abc import Sequence

from toolcrib.gate.policy.decide import Grants
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.simulate import Simulation, recorded_principal, simulate
from toolcrib.model.json import Json, JsonObject, digest
from toolcrib.model.policy import Condition, Rule, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

TOOLS = {ref: Tool(ref, "", {}) for ref in (ToolRef("github", "search"), ToolRef("mail", "send"))}
CALLER = Principal("token", "laptop", "ide", "acceptEdits", "reviewer", "s1", "/p")


def record(number: int, ref: str = "github/search", **more: Json) -> JsonObject:
    server, _, tool = ref.partition("/")
    arguments: JsonObject = more.pop("arguments", {"q": "x"})
    return {
        "id": number,
        "at": "2030-01-01T00:00:00.000+00:00",
        "call": f"call-{number}",
        "phase": "intent",
        "principal": CALLER.to_json(),
        "server": server,
        "tool": tool,
        "arguments": arguments,
        "argumentsDigest": digest(arguments),
        "decision": "allow",
        "rules": [],
        **more,
    }


def replay(records: Sequence[JsonObject], *rules: Rule, before: Rules = Rules()) -> Simulation:  # noqa: B008 a frozen value
    return simulate(records, before, before.with_rules(*rules), tool=TOOLS.get, grants=lambda _: Grants())


DENY = Rule("new", "deny", "github/*", RuleOrigin("user"))


def test_calls_with_another_verdict_are_reported() -> None:
    found = replay([record(1), record(2, "mail/send")], DENY)
    assert (found.compared, found.skipped, len(found.differences)) == (2, 0, 1)
    difference = found.differences[0]
    assert (difference.record, difference.before, difference.after) == (1, "allow", "hidden")
    assert difference.principal == CALLER
    assert difference.decided_by.rule == "new"
    shape = found.to_json()["differences"][0]
    assert (shape["auditId"], shape["ref"], shape["recorded"], shape["uncertain"]) == (
        1,
        "github/search",
        "allow",
        False,
    )


def test_both_records_of_a_call_count_once() -> None:
    both = [record(2, phase="outcome", call="c"), record(1, call="c")]
    assert replay(both, DENY).compared == 1


def test_calls_of_removed_tools_and_damaged_records_are_skipped() -> None:
    records: list[JsonObject] = [
        record(1, "gone/tool"),
        {"id": 2, "damaged": True},
        record(3, principal={"kind": "owner", "name": "x", "source": "moon", "mode": "default"}),
        record(4, principal=None),
    ]
    found = replay(records, DENY)
    assert (found.compared, found.skipped, found.differences) == (0, 4, ())


def test_unasked_call_of_the_owner_counts_as_made_by_hand() -> None:
    owner = Principal("owner", "owner", "cli").to_json()
    by_hand = replay([record(1, principal=owner)], Rule("new", "ask", "*", RuleOrigin("user")))
    assert by_hand.differences == ()
    approved = replay([record(1, principal=owner, approvalId="a1")], Rule("new", "allow", "*", RuleOrigin("user")))
    assert [(each.before, each.after) for each in approved.differences] == [("ask", "allow")]


def test_removing_a_deny_rule_allows_the_owners_own_call() -> None:
    owner_runs_again = record(1, principal=Principal("owner", "owner", "cli").to_json())
    found = simulate([owner_runs_again], Rules(rules=(DENY,)), Rules(), tool=TOOLS.get, grants=lambda _: Grants())
    assert [(each.before, each.after) for each in found.differences] == [("hidden", "allow")]


def test_difference_that_depends_on_incomplete_arguments_is_uncertain() -> None:
    rule = Rule("new", "deny", "*", RuleOrigin("user"), conditions=(Condition("/q", "glob", "x*"),))
    (whole,) = replay([record(1)], rule).differences
    (cut,) = replay([record(1, argumentsDigest="other")], rule).differences
    assert (whole.uncertain, cut.uncertain) == (False, True)
    assert replay([record(1, arguments={"q": "y"})], rule).differences == ()


def test_recorded_principal_is_read_back() -> None:
    assert recorded_principal(CALLER.to_json()) == CALLER
    assert recorded_principal("unknown") is None
