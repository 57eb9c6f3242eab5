"""Parsing of rules: completely understood, or rejected with the place of each fault."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.gate.policy.patterns import Names
from toolcrib.gate.policy.rule_parser import Read, read_line, read_rule, read_rules_file
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import Condition, OriginKind, Rule, RuleOrigin, Where
from toolcrib.model.tools import ToolRef
from unit.gate.policy.strategies import rule

KNOWN = Names({"Bash": ToolRef("claude_code", "Bash")}, {"mcp__hub": "hub"})
AT = datetime(2030, 1, 1, tzinfo=UTC)


def read(raw: Json, kind: OriginKind = "user") -> Read:
    return read_rule(raw, KNOWN, id="r", origin=RuleOrigin(kind), created_by="owner", created_at=AT)


def test_rule_with_all_members_is_read() -> None:
    raw = {
        "effect": "deny",
        "pattern": "mcp__hub__*",
        "conditions": [
            {"pointer": "/n", "test": "range", "value": {"max": 3}},
            {"pointer": "", "test": "equals", "value": None},
        ],
        "where": {"destructive": True, "sources": ["ide"], "modes": ["plan"], "projects": ["/p"], "agents": ["x"]},
        "reason": "why",
        "expiresAt": "2031-01-01T00:00:00Z",
        "definitionHash": "abc",
        "session": "s1",
    }
    expected = Rule(
        "r", "deny", "hub/*", RuleOrigin("user"), "why", "owner", AT, datetime(2031, 1, 1, tzinfo=UTC),
        (Condition("/n", "range", {"max": 3}), Condition("", "equals", None)),
        Where(destructive=True, sources=("ide",), modes=("plan",), projects=("/p",), agents=("x",)), "abc", "s1",
    )  # fmt: skip
    assert read(raw) == Read(expected)


@given(rule("r"))
@settings(deadline=None)
def test_json_form_of_a_rule_is_read_back(one: Rule) -> None:
    if not one.pattern:
        return
    shown = {key: value for key, value in one.to_json().items() if key not in ("id", "origin", "createdBy")}
    again = read_rule(shown, Names(), id="r", origin=one.origin, created_by=one.created_by, created_at=None)
    assert again == Read(one)


FAULTS: list[tuple[JsonObject, str]] = [
    ({"effect": "permit"}, "effect"),
    ({"effect": None}, "effect"),
    ({"pattern": "github"}, "pattern"),
    ({"pattern": 3}, "pattern"),
    ({"patern": "x"}, "patern"),
    ({"reason": ""}, "reason"),
    ({"expiresAt": "tomorrow"}, "expiresAt"),
    ({"expiresAt": 3}, "expiresAt"),
    ({"where": []}, "where"),
    ({"where": {"sources": ["moon"]}}, "where/sources"),
    ({"where": {"sources": []}}, "where/sources"),
    ({"where": {"readOnly": 1}}, "where/readOnly"),
    ({"where": {"colour": "red"}}, "where/colour"),
    ({"where": {"projects": ["here"]}}, "where/projects"),
    ({"conditions": {}}, "conditions"),
    ({"conditions": [3]}, "conditions/0"),
    ({"conditions": [{"test": "glob", "value": "x"}]}, "conditions/0/pointer"),
    ({"conditions": [{"pointer": "n", "test": "glob", "value": "x"}]}, "conditions/0/pointer"),
    ({"conditions": [{"pointer": "/n", "test": "like", "value": "x"}]}, "conditions/0/test"),
    ({"conditions": [{"pointer": "/n", "test": "glob"}]}, "conditions/0/value"),
    ({"conditions": [{"pointer": "/n", "test": "glob", "value": 1}]}, "conditions/0/value"),
    ({"conditions": [{"pointer": "/n", "test": "regex", "value": "(a"}]}, "conditions/0/value"),
    ({"conditions": [{"pointer": "/n", "test": "range", "value": {}}]}, "conditions/0/value"),
    ({"conditions": [{"pointer": "/n", "test": "range", "value": {"min": True}}]}, "conditions/0/value"),
    ({"conditions": [{"pointer": "/n", "test": "equals", "value": 1, "not": True}]}, "conditions/0/not"),
]


@pytest.mark.parametrize(("change", "path"), FAULTS)
def test_each_fault_names_its_member(change: JsonObject, path: str) -> None:
    found = read({"effect": "ask", "pattern": "a/*"} | change)
    assert found.rule is None
    assert [fault.path for fault in found.faults] == [path]
    assert path in found.faults[0].message


def test_misspelt_member_is_reported_with_a_suggestion() -> None:
    found = read({"effect": "ask", "patern": "a/*"})
    assert {fault.path for fault in found.faults} == {"patern", "pattern"}
    assert "did you mean `pattern`?" in found.faults[0].message


def test_rule_of_a_session_must_name_the_session() -> None:
    assert read({"effect": "allow", "pattern": "a/*"}, "session").rule is None
    assert read({"effect": "allow", "pattern": "a/*", "session": "s1"}, "session").rule is not None


@pytest.mark.parametrize("raw", [None, [], "deny a/*", 3])
def test_other_json_than_an_object_is_rejected(raw: Json) -> None:
    assert read(raw).rule is None


def test_rule_on_one_line_is_read() -> None:
    assert read_line(" deny  github/* ") == {"effect": "deny", "pattern": "github/*"}
    assert read(read_line("deny")).rule is None


FILE = """\
port = 4242

[[rules]]
effect = "deny"
pattern = "github/*"
expires_at = 2031-01-01T00:00:00Z

# a comment
[[rules]]
effect = "ask"
pattern = "nothing"

[[rules]]
effect = "ask"
pattern = "Bash"
where = { read_only = false }
conditions = [{ pointer = "/command", test = "regex", value = "rm .*" }]

[[rules]]
effect = "deny"
pattern = "github/*"
expires_at = 2031-01-01T00:00:00Z
"""


def test_rules_of_a_file_have_lines_and_an_invalid_one_is_a_problem() -> None:
    found = read_rules_file(FILE, "/h/toolcrib.toml", "user", KNOWN, written_at=AT)
    lines = [(rule.effect, rule.pattern, rule.origin.line) for rule in found.rules]
    assert lines == [("deny", "github/*", 3), ("ask", "claude_code/Bash", 13), ("deny", "github/*", 19)]
    assert found.rules[0].expires_at == datetime(2031, 1, 1, tzinfo=UTC)
    assert found.rules[1].where == Where(read_only=False)
    assert [(problem.code, problem.file, problem.line) for problem in found.problems] == [
        ("rule.invalid", "/h/toolcrib.toml", 9)
    ]


def test_ids_are_distinct_and_do_not_depend_on_lines() -> None:
    one = read_rules_file(FILE, "f", "user", KNOWN)
    moved = read_rules_file("\n\n" + FILE, "f", "user", KNOWN)
    ids = [rule.id for rule in one.rules]
    assert ids == [rule.id for rule in moved.rules]
    assert len(set(ids)) == len(ids) == 3


def test_rules_in_an_array_have_the_line_of_the_array() -> None:
    found = read_rules_file('a = 1\nrules = [\n{effect = "ask", pattern = "*"}, 3]\n', "f", "user", KNOWN)
    assert [rule.origin.line for rule in found.rules] == [2]
    assert [problem.line for problem in found.problems] == [2]


@pytest.mark.parametrize("text", ["rules = 3", "this is = not [toml", '[[rules]]\neffect = "deny"\npattern = "a"\n'])
def test_unreadable_managed_file_makes_every_call_ask(text: str) -> None:
    managed = read_rules_file(text, "f", "managed", KNOWN)
    assert [(rule.effect, rule.pattern, rule.origin.kind) for rule in managed.rules] == [("ask", "*", "managed")]
    assert managed.problems
    user = read_rules_file(text, "f", "user", KNOWN)
    assert user.rules == ()
    assert user.problems == managed.problems


def test_file_without_rules_yields_none() -> None:
    assert read_rules_file("port = 1\n", "f", "managed", KNOWN).rules == ()
    assert read_rules_file("", "f", "managed", KNOWN).problems == ()


@given(st.text(max_size=60) | st.text("[]rules\n=\"'{},", max_size=40))
@settings(deadline=None)
def test_any_text_is_read_without_an_exception(text: str) -> None:
    read_rules_file(text, "f", "managed", KNOWN)
