"""Rules, reasons, approvals, tokens, bundles and projects over REST, on a crib that runs."""

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


async def test_a_rule_is_added_read_changed_and_removed_and_counts_at_once(running: Running) -> None:
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
async def test_a_wrong_rule_is_refused_with_every_place(
    running: Running, body: JsonObject, status: int, code: str, paths: list[str]
) -> None:
    async with running.client() as client:
        answer = await client.post("/api/policy/rules", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert [each["path"] for each in answer.json()["errors"]] == paths


async def test_a_rule_of_the_settings_file_is_listed_with_its_line_and_not_removed_here(running: Running) -> None:
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


async def test_reach_lists_who_can_call_a_tool_without_being_asked_and_why(running: Running) -> None:
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
            asked = {"agent": "reviewer", "mode": "acceptEdits"}
            await client.post(f"/api/tools/bench/{tool}/call", params=asked, json={"arguments": arguments})
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


async def explained(client: httpx2.AsyncClient, **asked: Any) -> JsonObject:
    """The answer to why."""
    answer = await client.get("/api/policy/explain", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_why_names_the_deciding_rule_and_a_change_that_flips_it(running: Running) -> None:
    async with running.client() as client:
        rule = (await client.post("/api/policy/rules", json=DENY)).json()
        found = await explained(client, tool="bench/broken", source="ide")
        assert (found["verdict"], found["decidedBy"]["rule"]) == ("hidden", rule["id"])
        assert found["principal"]["source"] == "ide"
        assert found["flip"]["changes"][0]["rule"] == rule["id"]
        assert found["decidedBy"] in found["steps"]


async def test_why_looks_at_arguments_and_at_hypothetical_askers(running: Running) -> None:
    condition = {"pointer": "/times", "test": "range", "value": {"min": 3}}
    async with running.client() as client:
        body = {"effect": "deny", "pattern": "bench/echo", "conditions": [condition]}
        await client.post("/api/policy/rules", json=body)
        verdicts = [
            (await explained(client, tool="bench/echo", **asked))["verdict"]
            for asked in (
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


async def test_why_an_unknown_tool_is_told_with_names_that_are_near(running: Running) -> None:
    async with running.client() as client:
        found = await explained(client, tool="bench/ehco")
        assert (found["verdict"], found["nearest"][0]) == ("unknown", "bench/echo")
        found = await explained(client, tool="nowhere/echo")
        assert "Server 'nowhere' does not exist" in found["decidedBy"]["reason"]
        assert "bench/echo" in found["nearest"]
        found = await explained(client, tool="mcp__bench__echo")
        assert (found["ref"], found["verdict"]) == ("bench/echo", "allow")


async def test_why_says_that_a_server_is_not_trusted(running: Running) -> None:
    cursor = running.holding.crib.settings.home.parent / ".cursor"
    cursor.mkdir()
    (cursor / "mcp.json").write_text('{"mcpServers": {"far": {"command": "far-server"}}}', encoding="utf-8")
    async with running.client() as client:
        reason = (await explained(client, tool="far/away"))["decidedBy"]["reason"]
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
async def test_a_question_that_cannot_be_answered_is_refused(
    running: Running, params: dict[str, str], status: int, code: str
) -> None:
    async with running.client() as client:
        answer = await client.get("/api/policy/explain", params=params)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_why_of_a_record_says_what_was_decided_then_and_would_be_now(running: Running) -> None:
    async with running.client() as client:
        called = (await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "x"}})).json()
        rule = (await client.post("/api/policy/rules", json={"effect": "deny", "pattern": "bench/*"})).json()
        found = await explained(client, record=called["auditId"])
        assert (found["verdict"], found["decidedBy"]["rule"]) == ("hidden", rule["id"])
        assert found["recorded"]["decision"] == "allow"
        assert found["recorded"]["uncertain"] is False


async def test_a_simulation_tells_which_calls_would_be_decided_otherwise_and_changes_nothing(running: Running) -> None:
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


class Waiting:
    """A call over the API, in mode `default`, that a person has to approve."""

    answer: httpx2.Response

    def __init__(self, running: Running) -> None:
        self._running = running

    async def call(self, arguments: JsonObject) -> None:
        """Make it, and keep what it came to."""
        async with self._running.client() as client:
            self.answer = await client.post(
                "/api/tools/bench/echo/call", params={"mode": "default"}, json={"arguments": arguments}
            )

    async def question(self, client: httpx2.AsyncClient) -> JsonObject:
        """The question that it put."""
        while True:
            found = (await client.get("/api/approvals", params={"status": "pending"})).json()
            if found:
                return found[0]
            await anyio.sleep(0.01)


async def test_a_call_waits_for_a_persons_yes_and_the_second_answer_is_too_late(running: Running) -> None:
    waiting = Waiting(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.call, {"text": "a\u202eb"})
            question = await waiting.question(client)
            path = f"/api/approvals/{question['id']}"
            assert (await client.get(path)).json() == question
            assert (question["server"], question["tool"], question["arguments"]) == (
                "bench",
                "echo",
                {"text": "a\u202eb", "times": 1},
            )
            assert "\\u{202e}" in question["shown"]["text"]
            assert question["shown"]["remarks"][0]["pointer"] == "/text"
            answered = await client.post(path, json={"decision": "approve"})
            assert (answered.status_code, answered.json()["status"]) == (200, "approved")
            late = await client.post(path, json={"decision": "deny"})
            assert (late.status_code, late.json()["code"]) == (409, "approval.decided")
        assert waiting.answer.json()["content"][0]["text"] == "a\u202eb"
        async with running.client() as client:
            assert (await client.get("/api/approvals", params={"status": "pending"})).json() == []


async def test_a_no_reaches_whoever_asked_and_for_ever_writes_a_rule(running: Running) -> None:
    waiting = Waiting(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.call, {"text": "x"})
            question = await waiting.question(client)
            body = {"decision": "deny", "scope": "always", "reason": "Not today."}
            answered = (await client.post(f"/api/approvals/{question['id']}", json=body)).json()
            assert answered["rule"]["pattern"] == "bench/echo"
            assert (await client.get("/api/policy/rules")).json() == [answered["rule"]]
        assert "Not today." in waiting.answer.text


async def test_a_person_may_edit_the_arguments_and_what_does_not_fit_leaves_the_question_open(running: Running) -> None:
    waiting = Waiting(running)
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.call, {"text": "x"})
            path = f"/api/approvals/{(await waiting.question(client))['id']}"
            for body, status in (
                ({"decision": "approve", "arguments": {"text": 5}}, 422),
                ({"decision": "approve", "scope": "session"}, 422),
                ({"decision": "maybe"}, 422),
                ({"decision": "approve", "arguments": {"text": "y"}}, 200),
            ):
                assert (await client.post(path, json=body)).status_code == status
        assert waiting.answer.json()["content"][0]["text"] == "y"


async def test_only_a_person_answers(running: Running) -> None:
    waiting = Waiting(running)
    async with running.client() as client:
        secrets = {
            name: (await client.post("/api/tokens", json={"name": name, "source": "api", **more})).json()["secret"]
            for name, more in (("program", {}), ("helper", {"mayApprove": True}))
        }
    with anyio.fail_after(20):
        async with running.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.call, {"text": "x"})
            path = f"/api/approvals/{(await waiting.question(client))['id']}"
            yes = {"decision": "approve"}
            refused = await client.post(path, params={"source": "scheduler"}, json=yes)
            assert (refused.status_code, refused.json()["code"]) == (403, "approval.not_a_person")
            headers = {"authorization": f"Bearer {secrets['program']}"}
            assert (await client.post(path, json=yes, headers=headers)).status_code in (403, 404)
            headers = {"authorization": f"Bearer {secrets['helper']}"}
            assert (await client.post(path, json=yes, headers=headers)).status_code == 200
        assert waiting.answer.json()["isError"] is False


async def test_a_token_works_until_it_is_revoked_and_its_secret_is_told_once(running: Running) -> None:
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


async def test_bundles_are_made_changed_and_removed(running: Running) -> None:
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
    """A directory by its real path."""
    return os.path.realpath(tmp_path)


async def test_a_project_is_named_by_its_path(running: Running, folder: str) -> None:
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


async def test_the_exported_chain_proves_itself(running: Running) -> None:
    async with running.client() as client:
        for _ in range(3):
            await client.post("/api/tools/bench/echo/call", json={"arguments": {"text": "x"}})
        answer = await client.get("/api/audit/export")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = answer.content.splitlines(keepends=True)
        assert (len(lines), follow(lines).number) == (6, 6)
        part = (await client.get("/api/audit/export", params={"after": 2, "upto": 4})).content.splitlines()
        assert len(part) == 2


async def test_no_tool_of_ours_needs_to_be_accepted(running: Running) -> None:
    async with running.client() as client:
        assert (await client.get("/api/tools/changes")).json() == []
        answer = await client.post("/api/tools/bench/echo/accept", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "pin.unknown")
