"""Explanations of decisions: their steps, their reasons and the smallest change that flips them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from toolcrib.gate.policy.decide import Creator, Grants
from toolcrib.gate.policy.explain import ExplainQuery, explain
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.policy import Condition, Rule, RuleOrigin, Where
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Marks, Tool, ToolRef

REF = ToolRef("github", "search")
TOOL = Tool(REF, "", {})
CALLER = Principal("owner", "owner", "ide", "default", "reviewer", cwd="/p")
PLAIN = ExplainQuery(REF, TOOL, CALLER, Grants(), Rules())


def with_rules(*rules: Rule) -> ExplainQuery:
    return replace(PLAIN, rules=Rules(1, rules))


def flipped_by(query: ExplainQuery) -> list[str]:
    flip = explain(query).flip
    assert flip is not None
    return [change.change for change in flip.changes]


def test_each_rule_is_listed_with_its_origin_and_why_it_did_not_match() -> None:
    rules = (
        Rule("deny-other", "deny", "gitlab/*", RuleOrigin("user", "/h/toolcrib.toml", 4)),
        Rule("deny-web", "deny", "github/*", RuleOrigin("user"), where=Where(sources=("web",))),
        Rule(
            "ask-n", "ask", "github/*", RuleOrigin("managed", "/m.toml", 2), conditions=(Condition("/n", "equals", 1),)
        ),
        Rule("allow", "allow", "github/search", RuleOrigin("user", "/h/toolcrib.toml", 9), "trusted"),
        Rule("allow-too", "allow", "*", RuleOrigin("user")),
    )
    explanation = explain(with_rules(*rules))
    steps = {step.rule: (step.matched, step.reason) for step in explanation.steps if step.rule is not None}
    assert steps == {
        "deny-other": (False, "Its pattern gitlab/* does not name the tool."),
        "deny-web": (False, "It does not apply to source ide."),
        "ask-n": (False, "It depends on the arguments."),
        "allow": (True, "trusted"),
        "allow-too": (False, "Rule allow decided first."),
    }
    assert explanation.decided_by.origin == RuleOrigin("user", "/h/toolcrib.toml", 9)
    with_arguments = explain(replace(with_rules(*rules), arguments={"n": 2}))
    reasons = {step.rule: step.reason for step in with_arguments.steps}
    assert reasons["ask-n"] == "The argument `/n` does not match."


def test_expired_rule_is_listed() -> None:
    ended = Rule("old", "allow", "*", RuleOrigin("user"), expires_at=datetime(2029, 1, 1, tzinfo=UTC))
    explanation = explain(replace(PLAIN, rules=Rules.at(datetime(2030, 1, 1, tzinfo=UTC), 1, [ended])))
    assert explanation.verdict == "ask"
    assert [step.reason for step in explanation.steps if step.rule == "old"] == [
        "It expired at 2029-01-01T00:00:00+00:00."
    ]


def test_number_of_listed_rules_for_other_tools_is_limited() -> None:
    others = tuple(Rule(f"r{number}", "deny", "other/*", RuleOrigin("user")) for number in range(200))
    explanation = explain(with_rules(*others, Rule("mine", "deny", "github/*", RuleOrigin("user"))))
    assert 40 < len(explanation.steps) < 70
    assert explanation.decided_by.rule == "mine"


def test_json_form_has_decision_origin_and_flip() -> None:
    shape = explain(with_rules(Rule("r", "ask", "*", RuleOrigin("managed", "/m.toml", 2), "careful"))).to_json()
    assert shape["verdict"] == "ask"
    assert shape["ref"] == "github/search"
    assert shape["principal"]["agent"] == "reviewer"
    assert shape["decidedBy"] == {
        "step": "managed",
        "matched": True,
        "effect": "ask",
        "reason": "careful",
        "rule": "r",
        "origin": {"kind": "managed", "file": "/m.toml", "line": 2},
    }
    assert shape["decidedBy"] in shape["steps"]
    assert shape["flip"]["verdict"] == "allow"
    assert shape["flip"]["changes"][0] == {
        "kind": "remove_rule",
        "change": "Remove rule r in /m.toml, line 2.",
        "rule": "r",
    }
    assert "nearest" not in shape


def test_unknown_tool_lists_similar_names_and_the_state_of_its_server() -> None:
    known = [ToolRef("github", "search_code"), ToolRef("gitlab", "serach"), ToolRef("mail", "send")]
    query = replace(PLAIN, ref=ToolRef("github", "serach"), tool=None)
    explanation = explain(query, known, "Server github is not trusted yet.")
    assert explanation.verdict == "unknown"
    assert explanation.nearest == ("gitlab/serach", "github/search_code")
    assert explanation.decided_by.reason.endswith("Server github is not trusted yet.")
    assert explanation.flip is None
    assert explanation.to_json()["nearest"] == ["gitlab/serach", "github/search_code"]


def test_flip_fits_the_kind_of_decision() -> None:
    assert flipped_by(PLAIN) == ["Add the rule `allow github/search`: toolcrib rules allow 'github/search'."]
    allowed = replace(PLAIN, principal=replace(CALLER, mode="acceptEdits"))
    assert flipped_by(allowed) == ["Add the rule `deny github/search`: toolcrib rules deny 'github/search'."]
    assert flipped_by(replace(PLAIN, grants=Grants(()))) == [
        "Add github/search to the tool permissions of agent reviewer."
    ]
    privileged = replace(PLAIN, tool=Tool(REF, "", {}, marks=Marks(privileged=True)))
    assert flipped_by(privileged) == ["Give the agent a bundle with github/search."]
    asking = with_rules(Rule("r", "ask", "*", RuleOrigin("user")))
    assert flipped_by(asking) == ["Answer the next approval of this tool with `always`."]
    assert flipped_by(replace(asking, principal=replace(CALLER, mode="acceptEdits"))) == ["Remove rule r."]
    twice = with_rules(Rule("d1", "deny", "*", RuleOrigin("user")), Rule("d2", "deny", "github/*", RuleOrigin("user")))
    assert flipped_by(twice) == ["Remove rule d1.", "Remove rule d2."]


@pytest.mark.parametrize("blocked", [True, False])
def test_flip_of_a_scheduled_run_depends_on_the_tools_mark(blocked: bool) -> None:
    tool = Tool(REF, "", {}, marks=Marks(scheduler_blocked=blocked))
    query = replace(PLAIN, tool=tool, principal=replace(CALLER, source="scheduler"))
    expected = (
        "Call the tool from another source than the scheduler."
        if blocked
        else "Add the rule `allow github/search`: toolcrib rules allow 'github/search'."
    )
    assert flipped_by(query) == [expected]


def test_flip_of_a_creators_limit_names_the_creator() -> None:
    creator = Creator(Principal("session", "lead", "ide", "bypassPermissions"), Grants(()))
    child = replace(PLAIN, principal=replace(CALLER, mode="bypassPermissions"), grants=Grants(creator=creator))
    assert explain(child).decided_by.step == "creator"
    assert flipped_by(child) == [
        "For lead, the creator of the session: Add github/search to the tool permissions of the caller."
    ]
