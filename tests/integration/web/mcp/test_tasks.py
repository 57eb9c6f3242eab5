"""Tasks: long calls and waiting approvals of clients that support them, and the tasks of upstream servers."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from http_clients import PLAIN
from integration.web.mcp.test_bad_input import HEADERS, META
from lab import Lab, make_lab
from toolcrib.model.json import JsonObject
from toolcrib.web.mcp import tasks
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
TASKS: JsonObject = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SLOW = '''
import anyio
from toolcrib import tool

@tool
async def wait(seconds: float) -> str:
    """Wait, then answer."""
    await anyio.sleep(seconds)
    return "waited"
'''


class McpClient:
    """A modern client over plain HTTP; supports tasks and elicitation by default."""

    def __init__(self, http: httpx2.AsyncClient, capabilities: JsonObject | None = None) -> None:
        self.http = http
        self.capabilities: JsonObject = {**TASKS, "elicitation": {}} if capabilities is None else capabilities

    async def request(self, method: str, **params: Any) -> JsonObject:
        """Return the result or the error of one request."""
        body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": method}
        body["params"] = {**params, "_meta": {**META, CAPABILITIES: self.capabilities}}
        name = str(params.get("name") or params.get("taskId") or "")
        answer = await self.http.post("/mcp", json=body, headers=HEADERS | {"mcp-method": method, "mcp-name": name})
        found = answer.json()
        return found.get("result") or found["error"]

    async def call(self, name: str, **arguments: Any) -> JsonObject:
        return await self.request("tools/call", name=name, arguments=arguments)

    async def until(self, task_id: str, *statuses: str) -> JsonObject:
        """Poll a task until it has one of these statuses."""
        task: JsonObject = {}
        with anyio.fail_after(20):
            while task.get("status") not in statuses:
                task = await self.request("tasks/get", taskId=task_id)
                assert "code" not in task, task
                await anyio.sleep(0.02)
        return task


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(tasks, "TASK_AFTER", 0.05)
    lab = make_lab(tmp_path)
    lab.add_module("slow", SLOW)
    arguments = ["-S", "-m", "upstreams.tasks", str(tmp_path / "tasks")]
    server: JsonObject = {"command": sys.executable, "args": arguments}
    server["env"] = {"PYTHONPATH": str(TESTS)}
    (lab.home / "mcp.json").write_text(json.dumps({"mcpServers": {"jobs": server}}), encoding="utf-8")
    return replace(lab, settings=replace(lab.settings, stop_grace=0))


@asynccontextmanager
async def running(lab: Lab, token: str | None = None) -> AsyncGenerator[McpClient]:
    headers = {"authorization": f"Bearer {token or lab.token}"}
    async with (
        hold(lab.settings, kind="serve") as holding,
        httpx2.AsyncClient(
            base_url=holding.info.url, headers=headers, timeout=30, trust_env=False, verify=PLAIN
        ) as http,
    ):
        assert (await http.post("/api/servers/jobs/test")).json()["state"] == "connected"
        yield McpClient(http)


@pytest.fixture
async def client(stopped: Lab) -> AsyncGenerator[McpClient]:
    async with running(stopped) as client:
        yield client


async def test_long_call_becomes_a_task_with_the_same_result(client: McpClient) -> None:
    created = await client.call("slow_wait", seconds=0.3)
    assert (created["resultType"], created["status"]) == ("task", "working")
    task = await client.until(created["taskId"], "completed")
    assert (task["resultType"], task["result"]["content"][0]["text"]) == ("complete", "waited")
    assert (await client.call("lab_echo", text="a"))["resultType"] == "complete"


async def test_client_without_tasks_gets_the_result(client: McpClient) -> None:
    plain = McpClient(client.http, {})
    assert (await plain.call("slow_wait", seconds=0.2))["content"][0]["text"] == "waited"
    assert (await plain.call("jobs_slow_compute", seconds=0.2, label="it"))["content"][0]["text"] == "computed it"
    assert (await plain.request("tasks/get", taskId="any"))["code"] == -32021


async def test_task_is_cancelled(client: McpClient) -> None:
    for tool, arguments in (("slow_wait", {"seconds": 60}), ("jobs_slow_compute", {"seconds": 60})):
        created = await client.call(tool, **arguments)
        assert (await client.request("tasks/cancel", taskId=created["taskId"]))["resultType"] == "complete"
        await client.until(created["taskId"], "cancelled")
    with anyio.fail_after(20):
        while not (await McpClient(client.http, {}).call("jobs_cancelled"))["content"][0]["text"]:
            pass


async def test_requests_of_an_upstream_task_are_answered_one_by_one(client: McpClient) -> None:
    created = await client.call("jobs_multi_input")
    assert created["resultType"] == "task"
    asked = await client.until(created["taskId"], "input_required")
    with anyio.fail_after(20):
        while len(asked["inputRequests"]) < 2:
            asked = await client.until(created["taskId"], "input_required")
    first, second = asked["inputRequests"]
    answer: JsonObject = {"action": "accept", "content": {"confirm": True}}
    await client.request("tasks/update", taskId=created["taskId"], inputResponses={first: answer, "unknown": answer})
    assert list((await client.until(created["taskId"], "input_required"))["inputRequests"]) == [second]
    await client.request("tasks/update", taskId=created["taskId"], inputResponses={second: answer})
    task = await client.until(created["taskId"], "completed")
    assert task["result"]["content"][0]["text"] == "both answered"


async def test_upstream_task_that_failed_reports_the_error(client: McpClient) -> None:
    created = await client.call("jobs_protocol_error_job")
    task = await client.until(created["taskId"], "completed", "failed")
    assert "It broke." in json.dumps(task)


async def test_waiting_approval_requires_input_and_names_the_approval(client: McpClient) -> None:
    created = (await client.http.post("/api/tokens", json={"name": "careful", "mode": "default"})).json()
    headers = {"authorization": f"Bearer {created['secret']}"}
    async with httpx2.AsyncClient(
        base_url=client.http.base_url, headers=headers, timeout=30, trust_env=False, verify=PLAIN
    ) as http:
        careful = McpClient(http)
        call = await careful.call("lab_echo", text="hi")
        waiting = await careful.until(call["taskId"], "input_required")
        approval = waiting["_meta"]["toolcrib/approval"]
        assert f"toolcrib approvals approve {approval['id']}" in json.dumps(waiting["inputRequests"])
        assert (await client.request("tasks/get", taskId=call["taskId"]))["code"] == -32602  # another principal
        key = next(iter(waiting["inputRequests"]))
        reply: JsonObject = {"action": "accept", "content": {}}
        await careful.request("tasks/update", taskId=call["taskId"], inputResponses={key: reply})
        assert (await careful.until(call["taskId"], "working"))["_meta"]["toolcrib/approval"] == approval
        answer = {"decision": "approve", "scope": "once"}
        assert (await client.http.post(f"/api/approvals/{approval['id']}", json=answer)).status_code == 200
        done = await careful.until(call["taskId"], "completed")
        assert done["result"]["structuredContent"] == {"said": "hi"}


async def test_tasks_survive_a_restart(stopped: Lab) -> None:
    async with running(stopped) as client:
        done = await client.call("slow_wait", seconds=0.1)
        await client.until(done["taskId"], "completed")
        lost = await client.call("slow_wait", seconds=60)
    async with running(stopped) as client:
        task = await client.request("tasks/get", taskId=done["taskId"])
        assert task["result"]["content"][0]["text"] == "waited"
        assert (await client.request("tasks/get", taskId=lost["taskId"]))["status"] in ("failed", "cancelled")


async def test_task_of_a_server_is_resumed_after_a_restart(stopped: Lab, tmp_path: Path) -> None:
    async with running(stopped) as client:
        asks = (await client.call("jobs_confirm_delete"))["taskId"]
        works, ends, lost = [(await client.call("jobs_slow_compute", seconds=60))["taskId"] for _ in range(3)]
        await client.until(asks, "input_required")
        token = (await client.http.post("/api/tokens", json={"name": "other"})).json()["secret"]
    kept = json.loads((tmp_path / "tasks").read_bytes())
    assert [task["is_cancelled"] for task in kept] == [False] * 4
    (tmp_path / "tasks").write_text(json.dumps(kept[:3]), encoding="utf-8")
    async with running(stopped) as client:
        asked = await client.until(asks, "input_required")
        assert "toolcrib/resumed" not in asked
        other_client = McpClient(client.http)
        client.http.headers["authorization"], own = f"Bearer {token}", client.http.headers["authorization"]
        for method in ("tasks/get", "tasks/cancel"):
            assert (await other_client.request(method, taskId=asks))["code"] == -32602
        client.http.headers["authorization"] = own
        answer: JsonObject = {"action": "accept", "content": {"confirm": True}}
        key = next(iter(asked["inputRequests"]))
        await client.request("tasks/update", taskId=asks, inputResponses={key: answer})
        assert (await client.until(asks, "completed"))["result"]["content"][0]["text"] == "deleted"
        assert "Task not found" in (await client.until(lost, "failed"))["statusMessage"]
        await client.until(works, "working")
        await client.request("tasks/cancel", taskId=ends)
        await client.until(ends, "cancelled")
        with anyio.fail_after(20):
            while "upstream-2" not in (await McpClient(client.http, {}).call("jobs_cancelled"))["content"][0]["text"]:
                pass
        records = (await client.http.get("/api/audit", params={"server": "jobs"})).json()
        assert "tasks/get" in {record["tool"] for record in records}


async def test_subscriber_is_notified_until_the_task_ends(client: McpClient) -> None:
    created = await client.call("slow_wait", seconds=0.5)
    body: JsonObject = {"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen"}
    wanted = {"taskIds": [created["taskId"], "unknown"]}
    body["params"] = {"notifications": wanted, "_meta": {**META, CAPABILITIES: client.capabilities}}
    headers = HEADERS | {"mcp-method": "subscriptions/listen"}
    with anyio.fail_after(20):
        answer = await client.http.post("/mcp", json=body, headers=headers)
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    acknowledged, *changes, result = events
    assert acknowledged["params"]["notifications"] == {"taskIds": [created["taskId"]]}
    assert [change["params"]["status"] for change in changes] == ["working", "completed"]
    assert changes[-1]["params"]["result"]["content"][0]["text"] == "waited"
    assert (result["id"], result["result"]["resultType"]) == (9, "complete")
