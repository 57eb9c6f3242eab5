"""Audit records of permission changes: principal, door, arguments, and the version of the rules."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from e2e.shell import Shell
from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call, open_shop_lab, upstream
from toolcrib.base.home import owner_token
from toolcrib.gate.policy import permissions
from toolcrib.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.store.engine import Store
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

DENY: JsonObject = {"effect": "deny", "pattern": "shop/close", "reason": "Open all night."}


async def records_of(lab: ShopLab, kind: str) -> list[JsonObject]:
    """Return the records of changes of this kind, oldest first."""
    return [*reversed(await lab.owner.audit(server="toolcrib", tool=kind))]


async def test_rule_changes_leave_an_intent_and_an_outcome(lab: ShopLab) -> None:
    rule = await lab.owner.permissions.add_rule(DENY)
    async with lab.http() as http:
        assert (await http.patch(f"/api/policy/rules/{rule['id']}", json={"reason": "Always."})).status_code == 200
    await lab.owner.permissions.remove_rule(rule["id"])
    for kind, arguments in (
        ("rules.add", rule),
        ("rules.change", {"id": rule["id"], "changes": {"reason": "Always."}}),
        ("rules.remove", {**rule, "reason": "Always."}),
    ):
        intent, outcome = await records_of(lab, kind)
        assert (intent["phase"], outcome["phase"], outcome["isError"]) == ("intent", "outcome", False)
        assert (intent["arguments"], outcome["arguments"]) == (arguments, arguments)
        assert intent["call"] == outcome["call"]
        assert (outcome["door"], outcome["principal"]["name"], outcome["decision"]) == ("api", "owner", "allow")
        assert intent["rulesVersion"] != outcome["rulesVersion"]
    assert (await lab.owner.verify_audit())["ok"]


async def test_every_call_record_has_the_version_of_the_rules(lab: ShopLab) -> None:
    await lab.owner.call(SELL, {"what": "tea"})
    rule = await lab.owner.permissions.add_rule(DENY)
    await lab.owner.call(SELL, {"what": "tea"})
    await lab.owner.permissions.remove_rule(rule["id"])
    await lab.owner.call(SELL, {"what": "tea"})
    first, _, second, _, third, _ = [record["rulesVersion"] for record in await lab.records()]
    [_, added] = await records_of(lab, "rules.add")
    assert (first, second) == (third, added["rulesVersion"])
    assert first != second


async def test_record_of_a_change_has_the_door_of_the_request(lab: ShopLab) -> None:
    async with ApiClient(lab.holding.info.url, owner_token(lab.crib.home), source="cli") as person:
        await person.permissions.add_rule(DENY)
    [intent, _] = await records_of(lab, "rules.add")
    assert (intent["door"], intent["principal"]["source"]) == ("cli", "cli")


async def test_tokens_bundles_projects_and_answers_are_recorded_without_secrets(lab: ShopLab, tmp_path: Path) -> None:
    secret = await lab.token("robot", source="api")
    async with lab.http() as http:
        bundle = {"name": "Sales", "tools": ["shop/*"]}
        project = {"path": str(tmp_path), "bundles": ["sales"]}
        for method, path, body in (
            ("POST", "/api/bundles", {"id": "sales", **bundle}),
            ("PUT", "/api/bundles/sales", {**bundle, "prompt": "Sell."}),
            ("POST", "/api/projects", project),
            ("DELETE", f"/api/projects/{tmp_path}", None),
            ("DELETE", "/api/bundles/sales", None),
        ):
            answer = await http.request(method, path, json=body)
            assert answer.is_success, answer.text
    async with lab.rest(secret) as robot, background_call(lambda: robot.call(SELL, {"what": "tea"})):
        id = (await lab.pending_approval())["id"]
        await lab.answer(id, "approve", scope="always", reason="Tea is fine.")
    await lab.owner.permissions.revoke_token("robot")
    shown: dict[str, JsonObject] = {}
    for kind in ("tokens.create", "tokens.revoke", "bundles.create", "bundles.change", "bundles.remove",
                 "projects.change", "projects.remove", "approvals.answer"):  # fmt: skip
        intent, outcome = await records_of(lab, kind)
        assert (intent["phase"], outcome["isError"]) == ("intent", False), kind
        shown[kind] = outcome["arguments"]
    assert shown["tokens.create"] == {"name": "robot", "source": "api", "mayApprove": False, "mayRemember": False}
    assert shown["bundles.change"]["prompt"] == "Sell."
    assert shown["approvals.answer"] == {"id": id, "decision": "approve", "scope": "always", "reason": "Tea is fine."}
    [rule] = await lab.owner.permissions.rules()
    assert rule["id"] == f"answer-{id}"
    assert secret not in json.dumps(await lab.owner.audit())


async def test_trust_and_accepted_definitions_are_recorded(tmp_path: Path) -> None:
    foreign = {"mcpServers": {"found": upstream("upstreams.well_behaved")}}
    (tmp_path / ".claude.json").write_text(json.dumps(foreign), encoding="utf-8")
    async with open_shop_lab(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as lab:
        async with lab.http() as http:
            for path in ("servers/found/trust", "servers/found/untrust", "tools/changing_tools/tool/accept"):
                answer = await http.post(f"/api/{path}", json={})
                assert answer.is_success, answer.text
        for kind, name, value in (
            ("servers.trust", "name", "found"),
            ("servers.untrust", "name", "found"),
            ("tools.accept", "ref", "changing_tools/tool"),
        ):
            _, outcome = await records_of(lab, kind)
            assert (outcome["arguments"][name], outcome["isError"]) == (value, False)


async def test_invalid_changes_leave_no_record_and_failed_ones_an_error(lab: ShopLab) -> None:
    with pytest.raises(InvalidRequest):
        await lab.owner.permissions.add_rule({"effect": "deny", "pattern": "nothing"})
    with pytest.raises(NotFound):
        await lab.owner.permissions.remove_rule("unknown")
    assert [*await records_of(lab, "rules.add"), *await records_of(lab, "rules.remove")] == []
    await lab.token("robot")
    with pytest.raises(Conflict):
        await lab.token("robot")
    assert [record.get("isError") for record in await records_of(lab, "tokens.create")] == [None, False, None, True]


async def test_changes_are_refused_when_they_cannot_be_recorded(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise Unavailable("database.unavailable", "The disk is full.")

    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: lab.owner.permissions.add_rule(DENY),
        lambda: lab.token("robot"),
    ]
    with monkeypatch.context() as broken:
        broken.setattr(Store, "append", refuse)
        for attempt in attempts:
            with pytest.raises(Unavailable, match="Nothing was changed") as raised:
                await attempt()
            assert raised.value.code == "audit.unavailable"
    assert await lab.owner.permissions.rules() == []
    assert await lab.owner.permissions.tokens() == []


async def test_rules_of_a_file_are_recorded_when_they_change_also_between_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "LOOK_SECONDS", 0.01)
    file = tmp_path / "home" / "toolcrib.toml"
    rule = '[[rules]]\neffect = "{}"\npattern = "shop/close"\n'

    async def changes(lab: ShopLab, number: int) -> list[tuple[list[str], list[str]]]:
        records = await records_of(lab, "rules.file")
        while len(records) < number:
            await lab.crib.permissions.look()
            records = await records_of(lab, "rules.file")
        shapes = [record["arguments"] for record in records]
        assert {shape["file"] for shape in shapes} == {str(file)}
        return [
            ([each["effect"] for each in shape["added"]], [each["effect"] for each in shape["removed"]])
            for shape in shapes
        ]

    async with open_shop_lab(tmp_path) as lab:
        file.write_text(rule.format("deny"), encoding="utf-8")
        assert await changes(lab, 1) == [(["deny"], [])]
    async with open_shop_lab(tmp_path) as lab:
        assert await changes(lab, 1) == [(["deny"], [])], "unchanged rules were recorded after a restart"
    file.write_text(rule.format("ask"), encoding="utf-8")
    async with open_shop_lab(tmp_path) as lab:
        assert (await changes(lab, 2))[1:] == [(["ask"], ["deny"])]
        [record] = (await records_of(lab, "rules.file"))[1:]
        assert (record["door"], record["principal"]["name"], record["phase"]) == ("library", "owner", "outcome")
    file.unlink()
    async with open_shop_lab(tmp_path) as lab:
        assert (await changes(lab, 3))[2:] == [([], ["ask"])]


async def test_changes_are_not_calls_in_simulations_and_explanations(lab: ShopLab) -> None:
    await lab.owner.permissions.add_rule(DENY)
    found = await lab.owner.permissions.simulate({"add": ["deny toolcrib/*"]})
    assert found["differences"] == []
    [record, _] = await records_of(lab, "rules.add")
    with pytest.raises(InvalidRequest, match="not about a call"):
        await lab.owner.permissions.explain(None, record=record["id"])


def test_audit_command_lists_changes(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("rules", "deny", "lab/fail").returncode == 0
    shown = shell.run("audit", "--tool", "toolcrib/rules.add").stdout
    assert "toolcrib/rules.add" in shown
    [outcome, intent] = shell.json("audit", "--tool", "toolcrib/rules.add")
    assert (outcome["door"], intent["arguments"]["pattern"]) == ("cli", "lab/fail")
