"""Rules, explanations, approvals, tokens, bundles and projects over REST."""

import os
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from integration.web.crib import Running
from toolcrib.gate.audit.export import follow
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ANY = [{"pointer": "/x", "test": "present", "value": False}]
DENY: JsonObject = {"effect": "deny", "pattern": "bench/broken", "reason": "It breaks."}


async def test_rule_is_created_changed_and_deleted_with_immediate_effect(running: Running) -> None:
    async with running.client() as client:
        made = await client.post("/api/policy/rules", json=DENY)
        assert made.status_code == 201, made.text
        rule = made.json()
        assert set(rule) == {"id", "effect", "pattern", "origin", "reason", "createdBy", "createdAt"}
        assert rule["origin"] == {"kind": "user"}
        refused = await client.post("/api/tools/bench/broken/call", json={"arguments": {}})
        assert (refused.status_code, refused.json()["code"]) == (403, "policy.denied")
        path = f"/api/policy/rules/{rule['id']}"
        changed = await client.patch(path, json={"expiresAt": "2000-01-01T00:00:00Z", "reason": None})
        assert changed.json()["expiresAt"].startswith("2000-01-01")
        assert "reason" not in changed.json()
        allowed = await client.post("/api/tools/bench/broken/call", json={"arguments": {}})
        assert allowed.json()["isError"] is True
        assert (await client.get("/api/policy/rules")).json() == [changed.json()]
        assert (await client.get(path)).json() == changed.json()
        assert (await client.delete(path)).json() == changed.json()
        assert (await client.delete(path)).json()["code"] == "rule.unknown"


@pytest.mark.parametrize(
    ("body", "status", "code", "paths"),
    [
        ({"pattern": "a/b"}, 422, "request.invalid", ["body.effect"]),
        ({"effect": "deny", "pattern": "a/b", "if": 1}, 422, "request.invalid", ["body.if"]),
        ({"effect": "deny", "pattern": "nothing"}, 422, "rule.invalid", ["body.pattern"]),
        (
            {"effect": "deny", "pattern": "a/b", "conditions": [{"pointer": "x", "test": "regex", "value": 1}]},
            422,
            "rule.invalid",
            ["body.conditions.0.pointer"],
        ),
    ],
)
async def test_invalid_rule_is_refused_with_each_field(
    running: Running, body: JsonObject, status: int, code: str, paths: list[str]
) -> None:
    async with running.client() as client:
        answer = await client.post("/api/policy/rules", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert [each["path"] for each in answer.json()["errors"]] == paths


async def test_rule_in_the_settings_file_is_listed_and_not_deleted(running: Running) -> None:
    file = running.holding.crib.settings.home / "toolcrib.toml"
    file.write_text('[[rules]]\neffect = "deny"\npattern = "bench/*"\n\n[[rules]]\neffect = "x"\n', encoding="utf-8")
    await running.holding.crib.permissions.look()
    async with running.client() as client:
        (rule,) = (await client.get("/api/policy/rules")).json()
        assert rule["origin"] == {"kind": "user", "file": str(file), "line": 1}
        refused = await client.delete(f"/api/policy/rules/{rule['id']}")
        assert (refused.status_code, refused.json()["code"]) == (409, "rule.in_file")
        assert f"{file}, line 1" in refused.json()["hint"]
        (problem,) = (await client.get("/api/policy/problems")).json()
        assert (problem["code"], problem["line"]) == ("rule.invalid", 5)


async def test_rule_that_matches_nothing_is_added_with_a_problem_and_found_by_check(running: Running) -> None:
    async with running.client() as client:
        misspelt = (await client.post("/api/policy/rules", json={"effect": "deny", "pattern": "bnech/*"})).json()
        assert [each["code"] for each in misspelt["problems"]] == ["rule.matches_nothing"]
        await client.post("/api/policy/rules", json=DENY)
        narrow = (await client.post("/api/policy/rules", json={"effect": "allow", "pattern": "bench/broken"})).json()
        found = {each["rule"]: each["code"] for each in (await client.get("/api/policy/check")).json()}
        assert found == {misspelt["id"]: "rule.matches_nothing", narrow["id"]: "rule.shadowed"}


async def test_reach_lists_principals_that_can_call_a_tool_with_the_reason(running: Running) -> None:
    condition = {"pointer": "/times", "test": "range", "value": {"max": 3}}
    async with running.client() as client:
        token = (await client.post("/api/tokens", json={"name": "laptop", "mode": "default"})).json()
        assert token["name"] == "laptop"
        body = {"effect": "allow", "pattern": "bench/echo", "conditions": [condition], "reason": "Cheap."}
        rule = (await client.post("/api/policy/rules", json=body)).json()
        answer = await client.get("/api/policy/reach", params={"pattern": "bench/ech*"})
        found = {each["who"]: each for each in answer.json()}
        (group,) = found["token laptop"]["groups"]
        assert (group["access"], group["verdicts"], group["tools"]) == ("may", ["allow", "ask"], ["bench/echo"])
        assert (group["rule"], group["reason"]) == (rule["id"], "Cheap.")
        assert found["owner (ide)"]["counts"] == {"allow": 1, "may": 0, "ask": 0, "deny": 0, "hidden": 0}
        wrong = await client.get("/api/policy/reach", params={"pattern": "bench"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "request.invalid")


async def test_suggested_permissions_cover_exactly_the_calls_that_ran(running: Running) -> None:
    async with running.client() as client:
        await client.post("/api/policy/rules", json={"effect": "deny", "pattern": "bench/broken", "conditions": ANY})
        for tool, arguments in (("echo", {"text": "x"}), ("echo", {"text": "y"}), ("broken", {})):
            query = {"agent": "reviewer", "mode": "acceptEdits"}
            await client.post(f"/api/tools/bench/{tool}/call", params=query, json={"arguments": arguments})
        (found,) = (await client.get("/api/policy/suggestions", params={"days": 7})).json()
        assert (found["agent"], found["toolPermissions"]) == ("reviewer", ["bench/echo"])
        assert found["used"] == [{"tool": "bench/echo", "calls": 2}]
        assert "bench/broken" in found["lost"]
        refused = found["simulation"]["differences"]
        assert [(each["ref"], each["before"], each["after"]) for each in refused] == [
            ("bench/broken", "deny", "hidden")
        ]
        unknown = await client.get("/api/policy/suggestions", params={"agent": "nobody"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "agent.unknown")


async def explain(client: httpx2.AsyncClient, **query: Any) -> JsonObject:
    """Return an explanation."""
    answer = await client.get("/api/policy/explain", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_explanation_names_the_deciding_rule_and_a_change(running: Running) -> None:
    async with running.client() as client:
        rule = (await client.post("/api/policy/rules", json=DENY)).json()
        found = await explain(client, tool="bench/broken", source="ide")
        assert (found["verdict"], found["decidedBy"]["rule"]) == ("hidden", rule["id"])
        assert found["principal"]["source"] == "ide"
        assert found["flip"]["changes"][0]["rule"] == rule["id"]
        assert found["decidedBy"] in found["steps"]


async def test_explanation_considers_arguments_and_other_principals(running: Running) -> None:
    condition = {"pointer": "/times", "test": "range", "value": {"min": 3}}
    async with running.client() as client:
        body = {"effect": "deny", "pattern": "bench/echo", "conditions": [condition]}
        await client.post("/api/policy/rules", json=body)
        verdicts = [
            (await explain(client, tool="bench/echo", **query))["verdict"]
            for query in (
                {},
                {"args": '{"times": 5}'},
                {"args": '{"times": 1}'},
                {"mode": "default"},
                {"mode": "dontAsk"},
                {"mode": "plan"},
                {"source": "scheduler"},
            )
        ]
        assert verdicts == ["allow", "deny", "allow", "ask", "deny", "allow", "deny"]


async def test_explanation_of_an_unknown_tool_lists_similar_names(running: Running) -> None:
    async with running.client() as client:
        found = await explain(client, tool="bench/ehco")
        assert (found["verdict"], found["nearest"][0]) == ("unknown", "bench/echo")
        found = await explain(client, tool="nowhere/echo")
        assert "Server 'nowhere' does not exist" in found["decidedBy"]["reason"]
        assert "bench/echo" in found["nearest"]
        found = await explain(client, tool="mcp__bench__echo")
        assert (found["ref"], found["verdict"]) == ("bench/echo", "allow")


async def test_explanation_reports_that_a_server_is_untrusted(running: Running) -> None:
    cursor = running.holding.crib.settings.home.parent / ".cursor"
    cursor.mkdir()
    (cursor / "mcp.json").write_text('{"mcpServers": {"far": {"command": "far-server"}}}', encoding="utf-8")
    async with running.client() as client:
        reason = (await explain(client, tool="far/away"))["decidedBy"]["reason"]
        assert "Not trusted yet." in reason
        assert "toolcrib mcp trust far" in reason


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({}, 422, "request.invalid"),
        ({"tool": "noslash"}, 422, "request.invalid"),
        ({"tool": "a/b", "args": "[1]"}, 422, "request.invalid"),
        ({"tool": "a/b", "args": "{"}, 422, "request.invalid"),
        ({"tool": "a/b", "agent": "nobody"}, 404, "agent.unknown"),
        ({"tool": "a/b", "session": "nowhere"}, 404, "session.unknown"),
        ({"record": "77"}, 404, "audit.unknown"),
    ],
)
async def test_invalid_explanation_request_is_refused(
    running: Running, params: dict[str, str], status: int, code: str
) -> None:
    async with running.client() as client:
        answer = await client.get("/api/policy/explain", params=params)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_explanation_of_a_record_has_the_recorded_and_the_current_decision(running: Running) -> None:
    async with running.client() as client:
        called = (await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "x"}})).json()
        rule = (await client.post("/api/policy/rules", json={"effect": "deny", "pattern": "bench/*"})).json()
        found = await explain(client, record=called["auditId"])
        assert (found["verdict"], found["decidedBy"]["rule"]) == ("hidden", rule["id"])
        assert found["recorded"]["decision"] == "allow"
        assert found["recorded"]["uncertain"] is False


async def test_simulation_lists_changed_decisions_and_changes_nothing(running: Running) -> None:
    async with running.client() as client:
        for tool, arguments in (("echo", {"text": "x"}), ("echo", {"text": "y"}), ("broken", {})):
            await client.post(f"/api/tools/bench/{tool}/call", json={"arguments": arguments})
        found = (await client.post("/api/policy/simulate", json={"add": ["deny bench/echo"]})).json()
        assert (found["compared"], found["skipped"]) == (3, 0)
        assert [(each["ref"], each["before"], each["after"]) for each in found["differences"]] == [
            ("bench/echo", "allow", "hidden")
        ] * 2
        text = '[[rules]]\neffect = "deny"\npattern = "bench/broken"\n'
        found = (await client.post("/api/policy/simulate", json={"file": text})).json()
        assert [each["ref"] for each in found["differences"]] == ["bench/broken"]
        rule = (await client.post("/api/policy/rules", json=DENY)).json()
        found = (await client.post("/api/policy/simulate", json={"remove": [rule["id"]]})).json()
        assert [(each["before"], each["after"]) for each in found["differences"]] == [("hidden", "allow")]
        assert (await client.get("/api/policy/rules")).json() == [rule]
        wrong = await client.post("/api/policy/simulate", json={"add": ["deny a/b", "dney a/b"]})
        assert [each["path"] for each in wrong.json()["errors"]] == ["body.add.1.effect"]
        wrong = await client.post("/api/policy/simulate", json={"file": "[[rules]]\neffect = 1\n"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "rule.invalid")


class PendingCall:
    """A call in mode `default`, which requires approval."""

    answer: httpx2.Response

    def __init__(self, running: Running) -> None:
        self._running = running

    async def call(self, arguments: JsonObject) -> None:
        """Call the tool and keep the response."""
        async with self._running.client() as client:
            self.answer = await client.post(
                "/api/tools/bench/echo/call", params={"mode": "default"}, json={"arguments": arguments}
            )

    async def approval(self, client: httpx2.AsyncClient) -> JsonObject:
        """Return its pending approval."""
        while True:
            found = (await client.get("/api/approvals", params={"status": "pending"})).json()
            if found:
                return found[0]
            await anyio.sleep(0.01)


async def test_call_waits_for_approval_and_a_second_answer_is_refused(running: Running) -> None:
    pending_call = PendingCall(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call, {"text": "a\u202eb"})
            approval = await pending_call.approval(client)
            path = f"/api/approvals/{approval['id']}"
            assert (await client.get(path)).json() == approval
            assert (approval["server"], approval["tool"], approval["arguments"]) == (
                "bench",
                "echo",
                {"text": "a\u202eb", "times": 1},
            )
            assert "\\u{202e}" in approval["shown"]["text"]
            assert approval["shown"]["remarks"][0]["pointer"] == "/text"
            answered = await client.post(path, json={"decision": "approve"})
            assert (answered.status_code, answered.json()["status"]) == (200, "approved")
            late = await client.post(path, json={"decision": "deny"})
            assert (late.status_code, late.json()["code"]) == (409, "approval.decided")
        assert pending_call.answer.json()["content"][0]["text"] == "a\u202eb"
        async with running.client() as client:
            assert (await client.get("/api/approvals", params={"status": "pending"})).json() == []


async def test_denial_reaches_the_caller_and_a_lasting_one_adds_a_rule(running: Running) -> None:
    pending_call = PendingCall(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call, {"text": "x"})
            approval = await pending_call.approval(client)
            body = {"decision": "deny", "scope": "always", "reason": "Not today."}
            answered = (await client.post(f"/api/approvals/{approval['id']}", json=body)).json()
            assert answered["rule"]["pattern"] == "bench/echo"
            assert (await client.get("/api/policy/rules")).json() == [answered["rule"]]
        assert "Not today." in pending_call.answer.text


async def test_approver_can_edit_arguments_and_invalid_ones_leave_it_pending(running: Running) -> None:
    pending_call = PendingCall(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call, {"text": "x"})
            path = f"/api/approvals/{(await pending_call.approval(client))['id']}"
            for body, status in (
                ({"decision": "approve", "arguments": {"text": 5}}, 422),
                ({"decision": "approve", "scope": "session"}, 422),
                ({"decision": "maybe"}, 422),
                ({"decision": "approve", "arguments": {"text": "y"}}, 200),
            ):
                assert (await client.post(path, json=body)).status_code == status
        assert pending_call.answer.json()["content"][0]["text"] == "y"


async def test_only_the_owner_or_a_permitted_token_answers_an_approval(running: Running) -> None:
    pending_call = PendingCall(running)
    async with running.client() as client:
        secrets = {
            name: (await client.post("/api/tokens", json={"name": name, "source": "api", **more})).json()["secret"]
            for name, more in (("program", {}), ("helper", {"mayApprove": True}))
        }
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(pending_call.call, {"text": "x"})
            path = f"/api/approvals/{(await pending_call.approval(client))['id']}"
            yes = {"decision": "approve"}
            refused = await client.post(path, params={"source": "scheduler"}, json=yes)
            assert (refused.status_code, refused.json()["code"]) == (403, "approval.not_a_person")
            headers = {"authorization": f"Bearer {secrets['program']}"}
            assert (await client.post(path, json=yes, headers=headers)).status_code in (403, 404)
            headers = {"authorization": f"Bearer {secrets['helper']}"}
            assert (await client.post(path, json=yes, headers=headers)).status_code == 200
        assert pending_call.answer.json()["isError"] is False


async def test_token_works_until_revoked_and_its_secret_is_shown_once(running: Running) -> None:
    async with running.client() as client:
        made = await client.post("/api/tokens", json={"name": "ci", "source": "api"})
        assert made.status_code == 201, made.text
        secret = made.json()["secret"]
        (listed,) = (await client.get("/api/tokens")).json()
        assert listed == {key: value for key, value in made.json().items() if key != "secret"}
        assert (listed["mode"], listed["mayApprove"]) == ("default", False)
        headers = {"authorization": f"Bearer {secret}"}
        assert (await client.get("/api/tools", headers=headers)).status_code == 200
        for path in ("/api/tokens", "/api/policy/rules", "/api/policy/explain", "/api/audit", "/api/bundles"):
            assert (await client.get(path, headers=headers)).status_code in (403, 404)
        assert (await client.post("/api/tokens", json={"name": "ci"})).json()["code"] == "token.exists"
        assert (await client.post("/api/tokens", json={"name": "a", "agent": "nobody"})).json()[
            "code"
        ] == "agent.unknown"
        assert (await client.delete("/api/tokens/ci")).json() == {"id": "ci"}
        assert (await client.get("/api/tools", headers=headers)).status_code == 401
        assert (await client.delete("/api/tokens/ci")).json()["code"] == "token.unknown"
        assert "revokedAt" in (await client.get("/api/tokens")).json()[0]


async def test_bundles_are_created_changed_and_deleted(running: Running) -> None:
    fields = {"name": "Mine", "tools": ["bench/*", "mcp__bench__echo"], "prompt": "Be brief."}
    async with running.client() as client:
        made = await client.post("/api/bundles", json={"id": "mine", **fields})
        assert (made.status_code, made.json()["tools"]) == (201, ["bench/*", "bench/echo"])
        assert [each["id"] for each in (await client.get("/api/bundles")).json()][-1] == "mine"
        changed = await client.put("/api/bundles/mine", json={**fields, "tools": []})
        assert (await client.get("/api/bundles/mine")).json() == changed.json()
        preset = await client.delete("/api/bundles/reviewer")
        assert (preset.status_code, preset.json()["code"]) == (409, "bundle.preset")
        wrong = await client.put("/api/bundles/mine", json={**fields, "tools": ["a/b", "huh"]})
        assert [each["path"] for each in wrong.json()["errors"]] == ["body.tools.1"]
        assert (await client.delete("/api/bundles/mine")).status_code == 200
        assert (await client.get("/api/bundles/mine")).json()["code"] == "bundle.unknown"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A directory, as a resolved path."""
    return os.path.realpath(tmp_path)


async def test_project_is_addressed_by_its_path(running: Running, folder: str) -> None:
    path = folder
    async with running.client() as client:
        made = await client.post("/api/projects", json={"path": path, "bundles": ["reviewer"]})
        assert (made.status_code, made.json()) == (201, {"path": path, "trusted": False, "bundles": ["reviewer"]})
        address = f"/api/projects/{path.replace('/', '%2F')}"
        assert (await client.get(address)).json() == made.json()
        assert (await client.put(address, json={"bundles": []})).json()["bundles"] == []
        assert [each["path"] for each in (await client.get("/api/projects")).json()] == [path]
        assert (await client.put(address, json={"bundles": ["nope"]})).json()["code"] == "bundle.unknown"
        assert (await client.post("/api/projects", json={"path": "here"})).status_code == 422
        assert (await client.delete(address)).status_code == 200
        assert (await client.get(address)).json()["code"] == "project.unknown"


async def test_exported_audit_chain_can_be_verified(running: Running) -> None:
    async with running.client() as client:
        for _ in range(3):
            await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "x"}})
        answer = await client.get("/api/audit/export")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = answer.content.splitlines(keepends=True)
        assert (len(lines), follow(lines).number) == (6, 6)
        part = (await client.get("/api/audit/export", params={"after": 2, "upto": 4})).content.splitlines()
        assert len(part) == 2


async def test_python_tools_need_no_acceptance(running: Running) -> None:
    async with running.client() as client:
        assert (await client.get("/api/tools/changes")).json() == []
        answer = await client.post("/api/tools/bench/echo/accept", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "pin.unknown")
