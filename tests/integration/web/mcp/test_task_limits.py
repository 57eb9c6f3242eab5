"""Limits of tasks: number, age, cancellation, repeated answers, and other principals."""

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import anyio
import httpx2
import pytest

from http_clients import PLAIN
from integration.web.mcp.test_bad_input import HEADERS, META
from integration.web.mcp.test_tasks import CAPABILITIES, McpClient, client, running, stopped
from lab import Lab
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.web.mcp import task, tasks

__all__ = ["client", "stopped"]
pytestmark = pytest.mark.anyio

ACCEPT: JsonObject = {"action": "accept", "content": {"confirm": True}}


@asynccontextmanager
async def open_other_client(client: McpClient) -> AsyncGenerator[McpClient]:
    """Open a client with another token."""
    created = (await client.http.post("/api/tokens", json={"name": "stranger"})).json()
    headers = {"authorization": f"Bearer {created['secret']}"}
    async with httpx2.AsyncClient(
        base_url=client.http.base_url, headers=headers, timeout=30, trust_env=False, verify=PLAIN
    ) as http:
        yield McpClient(http)


async def listen(client: McpClient, *task_ids: str) -> list[JsonObject]:
    """Return the events of a subscription that ends by itself."""
    body: JsonObject = {"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen"}
    meta = {**META, CAPABILITIES: client.capabilities}
    body["params"] = {"notifications": {"taskIds": list(task_ids)}, "_meta": meta}
    with anyio.fail_after(20):
        answer = await client.http.post("/mcp", json=body, headers=HEADERS | {"mcp-method": "subscriptions/listen"})
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]


def stored(lab: Lab) -> list[tuple[str, str]]:
    """Return id and status of every stored task."""
    with closing(sqlite3.connect(lab.home / "toolcrib.db")) as database:
        return database.execute("SELECT id, status FROM mcp_tasks").fetchall()


async def test_unfinished_tasks_of_a_principal_are_limited(client: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASKS_OF_ONE", 3)
    answers: list[JsonObject] = []

    async def call() -> None:
        answers.append(await client.call("slow_wait", seconds=1.5))

    async with anyio.create_task_group() as calls:
        for _ in range(5):
            calls.start_soon(call)
        with anyio.fail_after(20):
            while len(answers) < 3:
                await client.http.get("/healthz")
        refused = await client.call("lab_echo", text="a")
        assert "3 unfinished tasks" in refused["message"]
        async with open_other_client(client) as other:
            assert "resultType" in await other.call("lab_echo", text="a")  # a task, if the machine is slow
    # Calls that were running when the limit was reached are answered without a task.
    assert sorted(answer["resultType"] for answer in answers) == ["complete", "complete", "task", "task", "task"]
    assert "resultType" in await client.call("lab_echo", text="a")


async def test_task_of_another_principal_does_not_exist(client: McpClient) -> None:
    created = await client.call("jobs_confirm_delete")
    asked = await client.until(created["taskId"], "input_required")
    async with open_other_client(client) as other:
        answers = dict.fromkeys(asked["inputRequests"], ACCEPT)
        for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": answers})):
            missing = await other.request(method, taskId="no such task", **more)
            assert (await other.request(method, taskId=created["taskId"], **more)) == missing
            assert missing["code"] == -32602
        acknowledged, result = await listen(other, created["taskId"])
        assert acknowledged["params"]["notifications"] == {"taskIds": []}
        assert result["result"]["resultType"] == "complete"
    assert (await client.request("tasks/get", taskId=created["taskId"]))["status"] == "input_required"


async def test_task_id_header_is_optional_but_must_match(client: McpClient) -> None:
    created = await client.call("jobs_confirm_delete")
    meta = {**META, CAPABILITIES: client.capabilities}
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}
    body["params"] = {"taskId": created["taskId"], "_meta": meta}
    headers = {name: value for name, value in HEADERS.items() if name != "mcp-name"} | {"mcp-method": "tasks/get"}
    assert "result" in (await client.http.post("/mcp", json=body, headers=headers)).json()
    wrong = await client.http.post("/mcp", json=body, headers=headers | {"mcp-name": "other"})
    assert wrong.json()["error"]["code"] == -32020


async def test_task_in_answer_to_another_request_is_an_error(client: McpClient) -> None:
    refused = await client.request("prompts/get", name="jobs_task")
    assert "unknown type of result" in refused["message"]


@takes_long
async def test_second_answer_to_an_elicitation_is_ignored(client: McpClient) -> None:
    created = await client.call("jobs_multi_input")
    asked = await client.until(created["taskId"], "input_required")
    with anyio.fail_after(20):
        while len(asked["inputRequests"]) < 2:
            asked = await client.until(created["taskId"], "input_required")
    first, second = asked["inputRequests"]
    for answer in (ACCEPT, {"action": "decline"}, ACCEPT):
        done = await client.request("tasks/update", taskId=created["taskId"], inputResponses={first: answer})
        assert done["resultType"] == "complete"
    assert list((await client.until(created["taskId"], "input_required"))["inputRequests"]) == [second]
    for _ in range(2):
        await client.request("tasks/update", taskId=created["taskId"], inputResponses={second: ACCEPT, first: ACCEPT})
    await client.until(created["taskId"], "completed")
    late = await client.request("tasks/update", taskId=created["taskId"], inputResponses={second: ACCEPT})
    assert late["resultType"] == "complete"


@takes_long
async def test_cancellation_while_a_task_ends_leaves_one_final_state(client: McpClient) -> None:
    for round in range(25):
        created = await client.call("slow_wait", seconds=0.06 + round / 500)
        if created["resultType"] != "task":
            continue
        acknowledged: list[JsonObject] = []

        async def cancel(task_id: str = created["taskId"], into: list[JsonObject] = acknowledged) -> None:
            into.append(await client.request("tasks/cancel", taskId=task_id))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(cancel)
        assert [each["resultType"] for each in acknowledged] == ["complete"] * 3
        ended = await client.until(created["taskId"], "completed", "cancelled")
        assert ("result" in ended) == (ended["status"] == "completed")
        assert (await client.request("tasks/get", taskId=created["taskId"]))["status"] == ended["status"]


@takes_long
async def test_expired_task_is_cancelled_and_deleted(stopped: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CLEAN_SECONDS", 0.5)
    monkeypatch.setattr(task, "TASK_HOLDS", timedelta(seconds=4))
    async with running(stopped) as client:
        ended = (await client.call("slow_wait", seconds=0.1))["taskId"]
        await client.until(ended, "completed")
        works = (await client.call("jobs_slow_compute", seconds=60))["taskId"]
        assert {id for id, _ in stored(stopped)} == {ended, works}
        answer: JsonObject = {}
        with anyio.fail_after(30):
            while "message" not in answer:
                answer = await client.request("tasks/get", taskId=works)
            assert (answer["code"], "has expired" in answer["message"]) == (-32602, True)
            while not (await McpClient(client.http, {}).call("jobs_cancelled"))["content"][0]["text"]:
                pass
            while {id for id, _ in stored(stopped)} & {ended, works}:
                assert "message" in (await client.request("tasks/get", taskId=ended))


@takes_long
async def test_oldest_ended_tasks_are_removed_for_new_ones(stopped: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "STORED_OF_ONE", 4)
    monkeypatch.setattr(tasks, "TRIM_EVERY", 1)
    async with running(stopped) as client:
        for _ in range(8):
            created = await client.call("slow_wait", seconds=0.1)
            await client.until(created["taskId"], "completed")
        with anyio.fail_after(20):
            while len(stored(stopped)) > 4:
                await client.http.get("/healthz")
        monkeypatch.setattr(tasks, "BYTES_OF_ONE", 1)
        last = await client.call("slow_wait", seconds=0.1)
        with anyio.fail_after(20):
            while stored(stopped):
                await client.http.get("/healthz")
        assert "not found" in (await client.request("tasks/get", taskId=last["taskId"]))["message"]


@takes_long
async def test_every_state_of_a_task_survives_a_restart(stopped: Lab, tmp_path: Path) -> None:
    async with running(stopped) as client:
        completed = (await client.call("slow_wait", seconds=0.1))["taskId"]
        failed = (await client.call("jobs_failing_job"))["taskId"]
        cancelled = (await client.call("slow_wait", seconds=60))["taskId"]
        await client.request("tasks/cancel", taskId=cancelled)
        before = [
            await client.until(completed, "completed"),
            await client.until(failed, "completed"),
            await client.until(cancelled, "cancelled"),
        ]
        asks = (await client.call("jobs_confirm_delete"))["taskId"]
        await client.until(asks, "input_required")
        works = (await client.call("jobs_slow_compute", seconds=60))["taskId"]
        lost = (await client.call("slow_wait", seconds=60))["taskId"]
        waits = (await client.call("jobs_test_tool_with_task"))["resultType"]
        assert waits == "input_required"  # requested before there is a task, so it is answered by repeating the call
    for _ in range(2):
        async with running(stopped) as client:
            after = [await client.request("tasks/get", taskId=id) for id in (completed, failed, cancelled)]
            kept = ("taskId", "status", "createdAt", "result")
            assert [[each.get(key) for key in kept] for each in after] == [
                [each.get(key) for key in kept] for each in before
            ]
            assert (await client.until(asks, "input_required"))["inputRequests"]
            assert (await client.request("tasks/get", taskId=works))["status"] == "working"
            assert (await client.request("tasks/get", taskId=lost))["status"] in ("failed", "cancelled")


@takes_long
async def test_flood_of_tasks_is_bounded_and_does_not_block_the_crib(stopped: Lab) -> None:
    answers: list[JsonObject] = []
    async with running(stopped) as client:
        limit = anyio.CapacityLimiter(150)

        async def call() -> None:
            async with limit:
                answers.append(await client.call("slow_wait", seconds=20))

        async with anyio.create_task_group() as calls:
            for _ in range(400):
                calls.start_soon(call)
            with anyio.fail_after(60):
                while sum("message" in answer for answer in answers) < 200:
                    await client.http.get("/healthz")
            states = [status for _, status in stored(stopped)]
            assert len(states) == states.count("working") == tasks.TASKS_OF_ONE
            async with open_other_client(client) as other:
                assert (await other.call("lab_echo", text="a"))["resultType"] == "complete"
            calls.cancel_scope.cancel()
        for answer in answers:
            if "taskId" in answer:
                await client.request("tasks/cancel", taskId=answer["taskId"])
        with anyio.fail_after(60):
            while "message" in (await client.call("lab_echo", text="a")):
                pass
