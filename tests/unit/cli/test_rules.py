"""How the command line parses conditions and describes rules."""

import pytest

from toolcrib.cli.rules import describe_origin, describe_rule, parse_condition
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject


@pytest.mark.parametrize(
    ("text", "test", "value"),
    [
        ("/path glob /etc/*", "glob", "/etc/*"),
        ("/path glob 5", "glob", "5"),
        ('/n range {"max": 10}', "range", {"max": 10}),
        ("/force equals true", "equals", True),
        ("/who equals anna and bob", "equals", "anna and bob"),
        ("/sql regex DROP .*", "regex", "DROP .*"),
    ],
)
def test_condition_has_pointer_test_and_value(text: str, test: str, value: Json) -> None:
    assert parse_condition(text) == {"pointer": text.split()[0], "test": test, "value": value}


@pytest.mark.parametrize("text", ["", "/a", "/a equals", "/a like b"])
def test_other_text_is_not_a_condition(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_condition(text)


def test_description_of_a_rule_includes_all_that_narrows_it() -> None:
    rule: JsonObject = {
        "effect": "deny",
        "pattern": "a/*",
        "conditions": [{"pointer": "/n", "test": "range", "value": {"min": 1}}],
        "where": {"readOnly": False, "destructive": True, "sources": ["ide", "api"], "agents": ["x"]},
        "session": "s1",
        "definitionHash": "0123456789",
    }
    description = describe_rule(rule)
    assert description == (
        'deny a/* if /n range {"min": 1}, not read-only, destructive, source ide or api, agent x, session s1, '
        "defined as 01234567"
    )
    assert describe_rule({"effect": "allow", "pattern": "*"}) == "allow *"


def test_origin_is_described_by_file_and_line_or_by_kind() -> None:
    assert describe_origin({"kind": "user"}) == "user"
    assert describe_origin({"kind": "managed", "file": "/f"}) == "/f"
    assert describe_origin({"kind": "managed", "file": "/f", "line": 3}) == "/f:3"
