"""Changes of what is allowed are on record: who, through which door, what, and which rules were in force after it."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from e2e.shell import Shell
from integration.gate.permissions.answering import SELL, Desk, calling, open_desk, upstream
from toolcrib.base.home import owner_token
from toolcrib.gate.policy import permissions
from toolcrib.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.store.engine import Store
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

DENY: JsonObject = {"effect": "deny", "pattern": "shop/close", "reason": "Open all night."}


async def told(desk: Desk, kind: str) -> list[JsonObject]:
    """The records of changes of this kind, oldest first."""
    return [*reversed(await desk.owner.audit(server="toolcrib", tool=kind))]


async def test_a_rule_leaves_a_record_when_it_is_added_changed_and_removed(desk: Desk) -> None:
    rule = await desk.owner.permissions.add_rule(DENY)
    async with desk.http() as http:
        assert (await http.patch(f"/api/policy/rules/{rule['id']}", json={"reason": "Always."})).status_code == 200
    await desk.owner.permissions.remove_rule(rule["id"])
    for kind, arguments in (
        ("rules.add", rule),
        ("rules.change", {"id": rule["id"], "changes": {"reason": "Always."}}),
        ("rules.remove", {**rule, "reason": "Always."}),
    ):
        intent, outcome = await told(desk, kind)
        assert (intent["phase"], outcome["phase"], outcome["isError"]) == ("intent", "outcome", False)
        assert (intent["arguments"], outcome["arguments"]) == (arguments, arguments)
        assert intent["call"] == outcome["call"]
        assert (outcome["door"], outcome["principal"]["name"], outcome["decision"]) == ("api", "owner", "allow")
        assert intent["rulesVersion"] != outcome["rulesVersion"]
    assert (await desk.owner.verify_audit())["ok"]


async def test_every_call_says_which_rules_were_in_force(desk: Desk) -> None:
    await desk.owner.call(SELL, {"what": "tea"})
    rule = await desk.owner.permissions.add_rule(DENY)
    await desk.owner.call(SELL, {"what": "tea"})
    await desk.owner.permissions.remove_rule(rule["id"])
    await desk.owner.call(SELL, {"what": "tea"})
    first, _, second, _, third, _ = [record["rulesVersion"] for record in await desk.records()]
    [_, added] = await told(desk, "rules.add")
    assert (first, second) == (third, added["rulesVersion"])
    assert first != second


async def test_the_door_is_the_one_that_was_used(desk: Desk) -> None:
    async with ApiClient(desk.holding.info.url, owner_token(desk.crib.home), source="cli") as person:
        await person.permissions.add_rule(DENY)
    [intent, _] = await told(desk, "rules.add")
    assert (intent["door"], intent["principal"]["source"]) == ("cli", "cli")


async def test_tokens_bundles_projects_and_answers_leave_records_and_no_secret(desk: Desk, tmp_path: Path) -> None:
    secret = await desk.token("robot", source="api")
    async with desk.http() as http:
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
    async with desk.rest(secret) as robot, calling(lambda: robot.call(SELL, {"what": "tea"})):
        id = (await desk.question())["id"]
        await desk.answer(id, "approve", scope="always", reason="Tea is fine.")
    await desk.owner.permissions.revoke_token("robot")
    shown: dict[str, JsonObject] = {}
    for kind in ("tokens.create", "tokens.revoke", "bundles.create", "bundles.change", "bundles.remove",
                 "projects.change", "projects.remove", "approvals.answer"):  # fmt: skip
        intent, outcome = await told(desk, kind)
        assert (intent["phase"], outcome["isError"]) == ("intent", False), kind
        shown[kind] = outcome["arguments"]
    assert shown["tokens.create"] == {"name": "robot", "source": "api", "mayApprove": False, "mayRemember": False}
    assert shown["bundles.change"]["prompt"] == "Sell."
    assert shown["approvals.answer"] == {"id": id, "decision": "approve", "scope": "always", "reason": "Tea is fine."}
    [rule] = await desk.owner.permissions.rules()
    assert rule["id"] == f"answer-{id}"
    assert secret not in json.dumps(await desk.owner.audit())


async def test_trust_and_a_word_on_a_changed_definition_leave_records(tmp_path: Path) -> None:
    foreign = {"mcpServers": {"found": upstream("upstreams.well_behaved")}}
    (tmp_path / ".claude.json").write_text(json.dumps(foreign), encoding="utf-8")
    async with open_desk(tmp_path, changing_tools=upstream("upstreams.changing_tools")) as desk:
        async with desk.http() as http:
            for path in ("servers/found/trust", "servers/found/untrust", "tools/changing_tools/tool/accept"):
                answer = await http.post(f"/api/{path}", json={})
                assert answer.is_success, answer.text
        for kind, name, value in (
            ("servers.trust", "name", "found"),
            ("servers.untrust", "name", "found"),
            ("tools.accept", "ref", "changing_tools/tool"),
        ):
            _, outcome = await told(desk, kind)
            assert (outcome["arguments"][name], outcome["isError"]) == (value, False)


async def test_what_is_refused_or_fails_is_told_as_such(desk: Desk) -> None:
    with pytest.raises(InvalidRequest):
        await desk.owner.permissions.add_rule({"effect": "deny", "pattern": "nothing"})
    with pytest.raises(NotFound):
        await desk.owner.permissions.remove_rule("nobody")
    assert [*await told(desk, "rules.add"), *await told(desk, "rules.remove")] == []
    await desk.token("robot")
    with pytest.raises(Conflict):
        await desk.token("robot")
    assert [record.get("isError") for record in await told(desk, "tokens.create")] == [None, False, None, True]


async def test_what_cannot_be_recorded_is_not_changed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise Unavailable("database.unavailable", "The disk is full.")

    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: desk.owner.permissions.add_rule(DENY),
        lambda: desk.token("robot"),
    ]
    with monkeypatch.context() as broken:
        broken.setattr(Store, "append", refuse)
        for attempt in attempts:
            with pytest.raises(Unavailable, match="Nothing was changed") as raised:
                await attempt()
            assert raised.value.code == "audit.unavailable"
    assert await desk.owner.permissions.rules() == []
    assert await desk.owner.permissions.tokens() == []


async def test_rules_of_a_file_leave_a_record_when_they_change_also_while_nobody_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "LOOK_SECONDS", 0.01)
    file = tmp_path / "home" / "toolcrib.toml"
    rule = '[[rules]]\neffect = "{}"\npattern = "shop/close"\n'

    async def changes(desk: Desk, number: int) -> list[tuple[list[str], list[str]]]:
        records = await told(desk, "rules.file")
        while len(records) < number:
            await desk.crib.permissions.look()
            records = await told(desk, "rules.file")
        shapes = [record["arguments"] for record in records]
        assert {shape["file"] for shape in shapes} == {str(file)}
        return [
            ([each["effect"] for each in shape["added"]], [each["effect"] for each in shape["removed"]])
            for shape in shapes
        ]

    async with open_desk(tmp_path) as desk:
        file.write_text(rule.format("deny"), encoding="utf-8")
        assert await changes(desk, 1) == [(["deny"], [])]
    async with open_desk(tmp_path) as desk:
        assert await changes(desk, 1) == [(["deny"], [])], "what is the same after a restart is no change"
    file.write_text(rule.format("ask"), encoding="utf-8")
    async with open_desk(tmp_path) as desk:
        assert (await changes(desk, 2))[1:] == [(["ask"], ["deny"])]
        [record] = (await told(desk, "rules.file"))[1:]
        assert (record["door"], record["principal"]["name"], record["phase"]) == ("library", "owner", "outcome")
    file.unlink()
    async with open_desk(tmp_path) as desk:
        assert (await changes(desk, 3))[2:] == [([], ["ask"])]


async def test_changes_are_no_calls_to_whoever_replays_calls(desk: Desk) -> None:
    await desk.owner.permissions.add_rule(DENY)
    found = await desk.owner.permissions.simulate({"add": ["deny toolcrib/*"]})
    assert found["differences"] == []
    [record, _] = await told(desk, "rules.add")
    with pytest.raises(InvalidRequest, match="not about a call"):
        await desk.owner.permissions.explain(None, record=record["id"])


def test_a_person_sees_changes_among_the_calls(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert shell.run("rules", "deny", "lab/fail").returncode == 0
    shown = shell.run("audit", "--tool", "toolcrib/rules.add").stdout
    assert "toolcrib/rules.add" in shown
    [outcome, intent] = shell.json("audit", "--tool", "toolcrib/rules.add")
    assert (outcome["door"], intent["arguments"]["pattern"]) == ("cli", "lab/fail")
