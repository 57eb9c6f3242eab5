"""Rules, permissions and limits hold for a definition under every name; a claimed one only makes them stricter."""

from datetime import UTC, datetime

import pytest

from toolcrib.gate.policy.decide import Grants, decide, sees
from toolcrib.gate.policy.explain import ExplainQuery, explain
from toolcrib.gate.policy.limits import Limit, Limits
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.policy import Rule, RuleEffect, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.model.servers import OtherName, ServerNames
from toolcrib.model.tools import Tool, ToolRef

NAMES = ServerNames("id", (OtherName("work", "/h/own.json"),), (OtherName("harmless", "/r/.mcp.json"),))
WIPE = Tool(ToolRef("prod", "wipe"), "", {"type": "object"}, "upstream", names=NAMES)
SEEN = Principal("token", "ide", "ide", "default")


def ruled(effect: RuleEffect, pattern: str) -> Rules:
    return Rules.at(datetime.now(UTC), 1, [Rule("r", effect, pattern, RuleOrigin("user"))])


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_what_denies_holds_under_every_name(name: str) -> None:
    rules = ruled("deny", f"{name}/*")
    assert decide(WIPE.ref, WIPE, SEEN, Grants(), rules).verdict == "hidden"
    assert not sees(WIPE, SEEN, Grants(), rules)


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_what_asks_holds_under_every_name(name: str) -> None:
    free = Principal("token", "ide", "ide", "bypassPermissions")
    assert decide(WIPE.ref, WIPE, free, Grants(), ruled("ask", f"{name}/wipe")).verdict == "ask"


@pytest.mark.parametrize(("name", "verdict"), [("prod", "allow"), ("work", "allow"), ("harmless", "ask")])
def test_what_allows_holds_under_names_that_the_owner_agreed_to(name: str, verdict: str) -> None:
    assert decide(WIPE.ref, WIPE, SEEN, Grants(), ruled("allow", f"{name}/*")).verdict == verdict


@pytest.mark.parametrize(("name", "is_seen"), [("prod", True), ("work", True), ("harmless", False)])
def test_permissions_and_bundles_hold_under_names_that_the_owner_agreed_to(name: str, is_seen: bool) -> None:
    assert sees(WIPE, SEEN, Grants(permissions=(f"{name}/*",)), Rules()) is is_seen
    assert sees(WIPE, SEEN, Grants(permissions=(), bundles=(f"{name}/*",)), Rules()) is is_seen


def test_an_explanation_says_by_which_name_a_rule_matches() -> None:
    explained = explain(ExplainQuery(WIPE.ref, WIPE, SEEN, Grants(), ruled("deny", "harmless/*")))
    assert explained.verdict == "hidden"
    assert "matches through the name harmless in /r/.mcp.json" in explained.decided_by.reason
    assert explained.naming == {"r"}


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_a_limit_counts_one_definition_whatever_it_is_called(name: str) -> None:
    limits = Limits([Limit(f"{name}/*", "server", calls=1)])
    limits.count(SEEN, WIPE.ref, NAMES)
    elsewhere = ServerNames("id", (), (OtherName("prod", ""), OtherName("work", ""), OtherName("harmless", "")))
    assert limits.check(SEEN, ToolRef("other", "wipe"), elsewhere) is not None
    assert limits.check(SEEN, ToolRef("other", "wipe"), ServerNames("another")) is None


def test_a_remembered_answer_is_not_inherited_by_another_server_of_the_same_name() -> None:
    """The same words under the same name from another program are another tool."""
    stranger = Tool(WIPE.ref, "", {"type": "object"}, "upstream", names=ServerNames("stranger"))
    kept = Rule("r", "allow", "prod/wipe", RuleOrigin("remembered"), definition_hash=WIPE.definition_hash)
    rules = Rules.at(datetime.now(UTC), 1, [kept])
    assert decide(WIPE.ref, WIPE, SEEN, Grants(), rules).verdict == "allow"
    assert decide(WIPE.ref, stranger, SEEN, Grants(), rules).verdict == "ask"
