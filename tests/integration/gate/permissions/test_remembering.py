"""Remembered answers: the rule is shown first and applies only to the principal that asked."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call
from toolcrib.model.errors import Denied, InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Condition, Rule, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

TEA: JsonObject = {"what": "tea"}


async def token_id(lab: ShopLab, name: str) -> str:
    """Return the id of a token; a later token of the same name has another one."""
    (found,) = [each["id"] for each in await lab.owner.permissions.tokens() if each["name"] == name]
    return str(found)


async def test_remembered_answer_applies_only_to_the_token_that_asked(lab: ShopLab) -> None:
    robot_secret, other_secret = await lab.token("robot", source="api"), await lab.token("other", source="api")
    async with lab.rest(robot_secret) as robot, lab.rest(other_secret) as other:
        async with background_call(lambda: robot.call(SELL, TEA)):
            approval = await lab.pending_approval()
            proposed = approval["rememberAs"]["always"]["approve"]
            assert "the token robot" in proposed["sentence"]
            answered = await lab.answer(approval["id"], "approve", scope="always")
            assert answered["rule"] == answered["rule"] | proposed["rule"]
        bound = {"kind": "token", "name": "robot", "source": "api", "tokenId": await token_id(lab, "robot")}
        assert answered["rule"]["principal"] == bound
        assert not (await robot.call(SELL, {"what": "milk"}))["isError"]
        async with background_call(lambda: other.call(SELL, TEA)) as denied:
            await lab.answer((await lab.pending_approval())["id"], "deny")
        assert isinstance(denied.raised, Denied)
    assert lab.shop.sold == [("tea", 1), ("milk", 1)]
    explained = await lab.owner.permissions.explain("shop/sell", source="api", mode="default")
    step = next(each for each in explained["steps"] if each.get("rule") == answered["rule"]["id"])
    assert (step["matched"], step["reason"]) == (False, "It was remembered for the token robot (source api).")


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("scope", ["always", "session"])
async def test_token_that_may_approve_cannot_remember_answers(lab: ShopLab, decision: str, scope: str) -> None:
    secret = await lab.token("helper", source="api", mayApprove=True)
    async with lab.rest(secret) as helper, background_call(lambda: helper.call(SELL, TEA)):
        id = (await lab.pending_approval())["id"]
        with pytest.raises(ToolcribError) as raised:
            await helper.permissions.answer(id, {"decision": decision, "scope": scope})
        assert raised.value.code == "approval.once_only"
        assert isinstance(raised.value, Denied)
        assert (await lab.owner.permissions.approval(id))["status"] == "pending"
        await helper.permissions.answer(id, {"decision": "approve"})
    assert await lab.owner.permissions.rules() == []


async def test_token_that_may_remember_creates_rules_for_the_asking_principal(lab: ShopLab) -> None:
    secret = await lab.token("helper", source="api", mayApprove=True, mayRemember=True)
    async with lab.rest(secret) as helper:
        async with background_call(lambda: helper.call(SELL, TEA)):
            id = (await lab.pending_approval())["id"]
            await helper.permissions.answer(id, {"decision": "approve", "scope": "always"})
        assert not (await helper.call(SELL, TEA))["isError"]
    (rule,) = await lab.owner.permissions.rules()
    assert (rule["principal"]["name"], rule["createdBy"]) == ("helper", "helper")
    with pytest.raises(InvalidRequest):
        await lab.token("odd", mayRemember=True)


async def test_changing_a_remembered_rule_keeps_its_principal(lab: ShopLab) -> None:
    async with (
        lab.rest(await lab.token("robot", source="api")) as robot,
        background_call(lambda: robot.call(SELL, TEA)),
    ):
        await lab.answer((await lab.pending_approval())["id"], "approve", scope="always")
    (rule,) = await lab.owner.permissions.rules()
    changed = await lab.owner.permissions.change_rule(rule["id"], {"reason": "Tea is fine."})
    assert (changed["principal"], changed["reason"]) == (rule["principal"], "Tea is fine.")
    assert (await lab.owner.permissions.check()) == []


async def test_wide_remembered_rules_are_reported_with_a_narrower_proposal(lab: ShopLab) -> None:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, TEA)):
            asked = await lab.pending_approval()
            await lab.answer(asked["id"], "approve")
        remembered = Rule(
            f"answer-{asked['id']}", "allow", "shop/sell", RuleOrigin("remembered"), created_at=datetime.now(UTC)
        )
        await lab.crib.permissions.remember(remembered)
        await lab.crib.permissions.remember(Rule("answer-0", "allow", "claude_code/Bash", RuleOrigin("remembered")))
        assert not (await robot.call(SELL, TEA))["isError"]
    wide, bash = await lab.owner.permissions.check()
    assert (wide["rule"], wide["code"], bash["rule"]) == (remembered.id, "rule.too_wide", "answer-0")
    bound = {"kind": "token", "name": "robot", "source": "api", "tokenId": await token_id(lab, "robot")}
    assert wide["proposal"]["principal"] == bound
    assert "every agent, app, source and mode" in bash["message"]
    assert "every command" in bash["message"]
    members = {key: wide["proposal"].get(key) for key in ("conditions", "where", "principal")}
    await lab.owner.permissions.change_rule(remembered.id, members)
    assert [each["rule"] for each in await lab.owner.permissions.check()] == ["answer-0"]


async def test_condition_that_compares_a_path_as_text_is_reported(lab: ShopLab) -> None:
    added = await lab.owner.permissions.add_rule(
        {
            "effect": "deny",
            "pattern": "*",
            "conditions": [{"pointer": "/path", "test": "glob", "value": "/etc/*"}],
        }
    )
    (found,) = await lab.owner.permissions.check()
    assert (found["rule"], found["code"]) == (added["id"], "rule.path_as_text")
    assert found["proposal"]["conditions"] == [{"pointer": "/path", "test": "path", "value": "/etc/*"}]


async def test_regex_on_a_path_is_reported_with_a_safe_fix(lab: ShopLab) -> None:
    condition = {"pointer": "/path", "test": "regex", "value": "/etc/.*"}
    await lab.owner.permissions.add_rule({"effect": "deny", "pattern": "*", "conditions": [condition]})
    (found,) = await lab.owner.permissions.check()
    assert found["fix"].startswith("Add a rule with the test `path` instead, then ")


async def test_relative_path_matches_deny_but_not_allow_rules(lab: ShopLab, tmp_path: Path) -> None:
    @tool
    async def look(path: str) -> str:
        """Look at a file."""
        return path

    lab.crib.register(ToolServer("files", tools=[look]))
    principal = lab.crib.principals.owner("api", mode="bypassPermissions", cwd=str(tmp_path))
    asking = lab.crib.principals.owner("api", mode="default", cwd=str(tmp_path))
    deny = (Condition("/path", "path", "/etc"),)
    await lab.crib.permissions.remember(Rule("deny", "deny", "files/*", RuleOrigin("user"), conditions=deny))
    allow = (Condition("/path", "path", str(tmp_path)),)
    await lab.crib.permissions.remember(Rule("allow", "allow", "files/*", RuleOrigin("user"), conditions=allow))

    async def verdict(principal: Principal, path: str) -> str:
        return (await lab.crib.why("files/look", principal=principal, arguments={"path": path})).verdict

    assert await verdict(principal, "etc/passwd") == "deny"
    assert await verdict(principal, str(tmp_path / "etc" / "passwd")) == "allow"
    await lab.crib.permissions.remove("deny")
    assert await verdict(asking, "etc/passwd") == "ask"
    assert await verdict(asking, str(tmp_path / "a")) == "allow"


async def test_omitted_argument_does_not_bypass_a_deny_rule(lab: ShopLab) -> None:
    bought: list[int | None] = []

    @tool
    async def buy(days: int = 5) -> str:
        """Buy for some days."""
        bought.append(days)
        return "bought"

    @tool
    async def rent(days: int | None = None) -> str:
        """Rent for some days."""
        bought.append(days)
        return "rented"

    lab.crib.register(ToolServer("agency", tools=[buy, rent]))
    rule = Rule("r", "deny", "agency/*", RuleOrigin("user"), conditions=(Condition("/days", "range", {"min": 3}),))
    await lab.crib.permissions.remember(rule)
    principal = lab.crib.principals.owner("api", mode="bypassPermissions")
    for name, arguments in (("buy", {}), ("buy", {"days": 3}), ("rent", {}), ("rent", {"days": None})):
        with pytest.raises(Denied):
            await lab.crib.call(f"agency/{name}", arguments, principal=principal)
    assert not (await lab.crib.call("agency/buy", {"days": 2}, principal=principal)).is_error
    assert bought == [2]


async def test_approval_shows_arguments_with_their_defaults(lab: ShopLab) -> None:
    async with (
        lab.rest(await lab.token("robot", source="api")) as robot,
        background_call(lambda: robot.call(SELL, TEA)),
    ):
        approval = await lab.pending_approval()
        assert approval["arguments"] == {"what": "tea", "amount": 1}
        await lab.answer(approval["id"], "approve", arguments={"what": "milk"})
    intent, _ = await lab.records()
    assert intent["arguments"] == {"what": "milk", "amount": 1}
    assert lab.shop.sold == [("milk", 1)]
