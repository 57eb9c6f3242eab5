"""Rules, permissions and limits apply to a definition under each of its names; a claimed name only restricts."""

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
CALLER = Principal("token", "ide", "ide", "default")


def rules_with(effect: RuleEffect, pattern: str) -> Rules:
    return Rules.at(datetime.now(UTC), 1, [Rule("r", effect, pattern, RuleOrigin("user"))])


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_deny_rule_applies_under_each_name(name: str) -> None:
    rules = rules_with("deny", f"{name}/*")
    assert decide(WIPE.ref, WIPE, CALLER, Grants(), rules).verdict == "hidden"
    assert not sees(WIPE, CALLER, Grants(), rules)


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_ask_rule_applies_under_each_name(name: str) -> None:
    free = Principal("token", "ide", "ide", "bypassPermissions")
    assert decide(WIPE.ref, WIPE, free, Grants(), rules_with("ask", f"{name}/wipe")).verdict == "ask"


@pytest.mark.parametrize(("name", "verdict"), [("prod", "allow"), ("work", "allow"), ("harmless", "ask")])
def test_allow_rule_applies_only_under_accepted_names(name: str, verdict: str) -> None:
    assert decide(WIPE.ref, WIPE, CALLER, Grants(), rules_with("allow", f"{name}/*")).verdict == verdict


@pytest.mark.parametrize(("name", "is_seen"), [("prod", True), ("work", True), ("harmless", False)])
def test_permissions_and_bundles_apply_only_under_accepted_names(name: str, is_seen: bool) -> None:
    assert sees(WIPE, CALLER, Grants(permissions=(f"{name}/*",)), Rules()) is is_seen
    assert sees(WIPE, CALLER, Grants(permissions=(), bundles=(f"{name}/*",)), Rules()) is is_seen


def test_explanation_states_the_name_by_which_a_rule_matches() -> None:
    explained = explain(ExplainQuery(WIPE.ref, WIPE, CALLER, Grants(), rules_with("deny", "harmless/*")))
    assert explained.verdict == "hidden"
    assert "matches through the name harmless in /r/.mcp.json" in explained.decided_by.reason
    assert explained.naming == {"r"}


@pytest.mark.parametrize("name", ["prod", "work", "harmless"])
def test_limit_counts_one_definition_under_all_names(name: str) -> None:
    limits = Limits([Limit(f"{name}/*", "server", calls=1)])
    limits.count(CALLER, WIPE.ref, NAMES)
    elsewhere = ServerNames("id", (), (OtherName("prod", ""), OtherName("work", ""), OtherName("harmless", "")))
    assert limits.check(CALLER, ToolRef("other", "wipe"), elsewhere) is not None
    assert limits.check(CALLER, ToolRef("other", "wipe"), ServerNames("another")) is None


def test_remembered_answer_does_not_apply_to_another_server_with_the_same_name() -> None:
    """An equal definition under the same name from another program is another tool."""
    other = Tool(WIPE.ref, "", {"type": "object"}, "upstream", names=ServerNames("other"))
    kept = Rule("r", "allow", "prod/wipe", RuleOrigin("remembered"), definition_hash=WIPE.definition_hash)
    rules = Rules.at(datetime.now(UTC), 1, [kept])
    assert decide(WIPE.ref, WIPE, CALLER, Grants(), rules).verdict == "allow"
    assert decide(WIPE.ref, other, CALLER, Grants(), rules).verdict == "ask"
