"""Answers that are remembered: the rule is shown first, bound to the principal that asked, and written by few."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration.gate.permissions.answering import SELL, Desk, calling
from toolcrib.model.errors import Denied, InvalidRequest, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Condition, Rule, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

TEA: JsonObject = {"what": "tea"}


async def token_id(desk: Desk, name: str) -> str:
    """The id of a token, which a later token of its name does not have."""
    (found,) = [each["id"] for each in await desk.owner.permissions.tokens() if each["name"] == name]
    return str(found)


async def test_always_holds_for_the_token_that_asked_and_no_other(desk: Desk) -> None:
    robot_secret, other_secret = await desk.token("robot", source="api"), await desk.token("other", source="api")
    async with desk.rest(robot_secret) as robot, desk.rest(other_secret) as other:
        async with calling(lambda: robot.call(SELL, TEA)):
            question = await desk.question()
            proposed = question["rememberAs"]["always"]["approve"]
            assert "the token robot" in proposed["sentence"]
            answered = await desk.answer(question["id"], "approve", scope="always")
            assert answered["rule"] == answered["rule"] | proposed["rule"]
        bound = {"kind": "token", "name": "robot", "source": "api", "tokenId": await token_id(desk, "robot")}
        assert answered["rule"]["principal"] == bound
        assert not (await robot.call(SELL, {"what": "milk"}))["isError"]
        async with calling(lambda: other.call(SELL, TEA)) as waits:
            await desk.answer((await desk.question())["id"], "deny")
        assert isinstance(waits.raised, Denied)
    assert desk.shop.sold == [("tea", 1), ("milk", 1)]
    explained = await desk.owner.permissions.explain("shop/sell", source="api", mode="default")
    step = next(each for each in explained["steps"] if each.get("rule") == answered["rule"]["id"])
    assert (step["matched"], step["reason"]) == (False, "It was remembered for the token robot (source api).")


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("scope", ["always", "session"])
async def test_token_that_may_approve_answers_once_only(desk: Desk, decision: str, scope: str) -> None:
    secret = await desk.token("helper", source="api", mayApprove=True)
    async with desk.rest(secret) as helper, calling(lambda: helper.call(SELL, TEA)):
        id = (await desk.question())["id"]
        with pytest.raises(ToolcribError) as raised:
            await helper.permissions.answer(id, {"decision": decision, "scope": scope})
        assert raised.value.code == "approval.once_only"
        assert isinstance(raised.value, Denied)
        assert (await desk.owner.permissions.approval(id))["status"] == "pending"
        await helper.permissions.answer(id, {"decision": "approve"})
    assert await desk.owner.permissions.rules() == []


async def test_token_that_may_remember_writes_rules_for_the_principal_that_asked(desk: Desk) -> None:
    secret = await desk.token("helper", source="api", mayApprove=True, mayRemember=True)
    async with desk.rest(secret) as helper:
        async with calling(lambda: helper.call(SELL, TEA)):
            id = (await desk.question())["id"]
            await helper.permissions.answer(id, {"decision": "approve", "scope": "always"})
        assert not (await helper.call(SELL, TEA))["isError"]
    (rule,) = await desk.owner.permissions.rules()
    assert (rule["principal"]["name"], rule["createdBy"]) == ("helper", "helper")
    with pytest.raises(InvalidRequest):
        await desk.token("odd", mayRemember=True)


async def test_changing_a_remembered_rule_keeps_its_principal(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot, calling(lambda: robot.call(SELL, TEA)):
        await desk.answer((await desk.question())["id"], "approve", scope="always")
    (rule,) = await desk.owner.permissions.rules()
    changed = await desk.owner.permissions.change_rule(rule["id"], {"reason": "Tea is fine."})
    assert (changed["principal"], changed["reason"]) == (rule["principal"], "Tea is fine.")
    assert (await desk.owner.permissions.check()) == []


async def test_remembered_rules_of_earlier_versions_are_reported_with_a_narrower_proposal(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot:
        async with calling(lambda: robot.call(SELL, TEA)):
            asked = await desk.question()
            await desk.answer(asked["id"], "approve")
        kept = Rule(
            f"answer-{asked['id']}", "allow", "shop/sell", RuleOrigin("remembered"), created_at=datetime.now(UTC)
        )
        await desk.crib.permissions.remember(kept)
        await desk.crib.permissions.remember(Rule("answer-0", "allow", "claude_code/Bash", RuleOrigin("remembered")))
        assert not (await robot.call(SELL, TEA))["isError"]
    wide, bash = await desk.owner.permissions.check()
    assert (wide["rule"], wide["code"], bash["rule"]) == (kept.id, "rule.too_wide", "answer-0")
    bound = {"kind": "token", "name": "robot", "source": "api", "tokenId": await token_id(desk, "robot")}
    assert wide["proposal"]["principal"] == bound
    assert "every agent, app, source and mode" in bash["message"]
    assert "every command" in bash["message"]
    members = {key: wide["proposal"].get(key) for key in ("conditions", "where", "principal")}
    await desk.owner.permissions.change_rule(kept.id, members)
    assert [each["rule"] for each in await desk.owner.permissions.check()] == ["answer-0"]


async def test_condition_that_compares_a_path_as_text_is_reported(desk: Desk) -> None:
    added = await desk.owner.permissions.add_rule(
        {
            "effect": "deny",
            "pattern": "*",
            "conditions": [{"pointer": "/path", "test": "glob", "value": "/etc/*"}],
        }
    )
    (found,) = await desk.owner.permissions.check()
    assert (found["rule"], found["code"]) == (added["id"], "rule.path_as_text")
    assert found["proposal"]["conditions"] == [{"pointer": "/path", "test": "path", "value": "/etc/*"}]


async def test_expression_on_a_path_is_not_answered_with_removing_its_deny_rule(desk: Desk) -> None:
    condition = {"pointer": "/path", "test": "regex", "value": "/etc/.*"}
    await desk.owner.permissions.add_rule({"effect": "deny", "pattern": "*", "conditions": [condition]})
    (found,) = await desk.owner.permissions.check()
    assert found["fix"].startswith("Add a rule with the test `path` instead, then ")


async def test_relative_path_counts_against_callers_of_a_server_with_its_own_directory(
    desk: Desk, tmp_path: Path
) -> None:
    @tool
    async def look(path: str) -> str:
        """Look at a file."""
        return path

    desk.crib.register(ToolServer("files", tools=[look]))
    asker = desk.crib.principals.owner("api", mode="bypassPermissions", cwd=str(tmp_path))
    careful = desk.crib.principals.owner("api", mode="default", cwd=str(tmp_path))
    deny = (Condition("/path", "path", "/etc"),)
    await desk.crib.permissions.remember(Rule("deny", "deny", "files/*", RuleOrigin("user"), conditions=deny))
    allow = (Condition("/path", "path", str(tmp_path)),)
    await desk.crib.permissions.remember(Rule("allow", "allow", "files/*", RuleOrigin("user"), conditions=allow))

    async def verdict(principal: Principal, path: str) -> str:
        return (await desk.crib.why("files/look", principal=principal, arguments={"path": path})).verdict

    assert await verdict(asker, "etc/passwd") == "deny"
    assert await verdict(asker, str(tmp_path / "etc" / "passwd")) == "allow"
    await desk.crib.permissions.remove("deny")
    assert await verdict(careful, "etc/passwd") == "ask"
    assert await verdict(careful, str(tmp_path / "a")) == "allow"


async def test_leaving_an_argument_out_does_not_pass_a_deny_rule(desk: Desk) -> None:
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

    desk.crib.register(ToolServer("agency", tools=[buy, rent]))
    rule = Rule("r", "deny", "agency/*", RuleOrigin("user"), conditions=(Condition("/days", "range", {"min": 3}),))
    await desk.crib.permissions.remember(rule)
    asker = desk.crib.principals.owner("api", mode="bypassPermissions")
    for name, arguments in (("buy", {}), ("buy", {"days": 3}), ("rent", {}), ("rent", {"days": None})):
        with pytest.raises(Denied):
            await desk.crib.call(f"agency/{name}", arguments, principal=asker)
    assert not (await desk.crib.call("agency/buy", {"days": 2}, principal=asker)).is_error
    assert bought == [2]


async def test_person_judges_and_approves_arguments_with_defaults_filled_in(desk: Desk) -> None:
    async with desk.rest(await desk.token("robot", source="api")) as robot, calling(lambda: robot.call(SELL, TEA)):
        question = await desk.question()
        assert question["arguments"] == {"what": "tea", "amount": 1}
        await desk.answer(question["id"], "approve", arguments={"what": "milk"})
    intent, _ = await desk.records()
    assert intent["arguments"] == {"what": "milk", "amount": 1}
    assert desk.shop.sold == [("milk", 1)]
