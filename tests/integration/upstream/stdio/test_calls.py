"""Calls over a stdio connection to a well-behaved server."""

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.upstream.stdio.harness import HELLO, LOOPS, call, connect, upstream
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.start import MARKER
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.handshake import open_initialized

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]


async def test_result_keeps_all_its_members(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            result = await call(connection, "echo", text="äöü \u2028 😀")
    assert result == {
        "content": [],
        "structuredContent": {"text": "äöü \u2028 😀"},
        "futureMember": [1],
        "_meta": {"a": 1},
    }


async def test_concurrent_calls_get_their_own_results(processes: Processes) -> None:
    texts: list[str] = []

    async def one(number: int) -> None:
        result = await call(connection, "echo", number=number, padding="x" * 10_000)
        assert result["structuredContent"]["number"] == number
        texts.append("ok")

    with anyio.fail_after(20):
        async with connect(processes, "well_behaved") as connection, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
    assert len(texts) == 200


async def test_server_error_keeps_its_code_message_and_data(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "wrong_replies") as connection:
            with pytest.raises(ProtocolError) as caught:
                await call(connection, kind="error")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32042, "Sign in", {"url": "here"})


async def test_progress_arrives_in_order_before_the_result(processes: Processes) -> None:
    received: list[object] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        received.append((progress, total, message))

    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            await connection.call("tools/call", {"name": "count", "_meta": {"kept": 1}}, on_progress=report)
            received.append("result")
    assert received == [(1.0, 3.0, "at 1"), (2.0, 3.0, "at 2"), (3.0, 3.0, "at 3"), "result"]


async def test_cancelled_call_notifies_the_server_and_its_late_reply_is_dropped(processes: Processes) -> None:
    waiting, cancelled_event = anyio.Event(), anyio.Event()
    cancelled: list[JsonObject] = []

    def on_notification(method: str, params: JsonObject) -> None:
        if method == "notifications/waiting":
            waiting.set()
        elif method == "notifications/heard":
            cancelled.append(params)
            cancelled_event.set()

    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            connection.on_notification = on_notification
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, connection, "wait")
                await waiting.wait()
                tasks.cancel_scope.cancel()
            await cancelled_event.wait()
            await call(connection, "release")
            assert (await call(connection, "echo", a=1))["structuredContent"] == {"a": 1}
    assert len(cancelled) == 1
    assert type(cancelled[0]["requestId"]) is int
    assert connection.dropped.late == 1
    assert connection.dropped.unknown == 0


async def test_server_request_is_answered_once(processes: Processes) -> None:
    requests: list[object] = []

    def on_request(request_id: RequestId, method: str, params: JsonObject) -> None:
        requests.append((request_id, method, params))
        connection.answer(request_id, {"action": "accept"})
        connection.answer(request_id, {"action": "again"})

    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            connection.on_request = on_request
            result = await call(connection, "ask")
            assert result["structuredContent"] == {"id": "question", "result": {"action": "accept"}}
    assert requests == [("question", "elicitation/create", {"message": "Why?"})]


async def test_server_request_without_a_handler_is_refused(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            result = await call(connection, "ask")
    assert result["structuredContent"]["error"]["code"] == -32601


async def test_exception_of_a_request_handler_is_logged_and_the_connection_works(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request_id: RequestId, method: str, params: JsonObject) -> None:
        connection.refuse(request_id, -32603, "Broken")
        raise ValueError("a mistake")

    with anyio.fail_after(10):
        async with connect(processes, "well_behaved") as connection:
            connection.on_request = broken
            assert (await call(connection, "ask"))["structuredContent"]["error"]["message"] == "Broken"
            await call(connection, "echo")
    assert "a mistake" in caplog.text


async def test_server_process_gets_only_the_expected_environment_and_descriptors(
    processes: Processes, tmp_path: Path
) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "well_behaved", "a b", "$HOME; `id`") as connection:
            seen = await call(connection, "surroundings")
    assert set(seen["env"]) - {"LC_CTYPE"} == {"PATH", "HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", MARKER}
    assert seen["env"][MARKER] == "crib-under-test"
    assert seen["argv"] == ["a b", "$HOME; `id`"]
    assert seen["umask"] == 0o077
    assert seen["pid"] == seen["session"] == seen["group"] != os.getsid(0)
    assert [number for number in seen["files"] if number > 3] == []  # 3 is the listing itself


async def test_server_starts_in_the_directory_of_its_definition(processes: Processes, tmp_path: Path) -> None:
    directory = await anyio.Path(tmp_path).resolve()
    resolved = replace(upstream("well_behaved"), cwd=str(directory))
    with anyio.fail_after(10):
        async with open_initialized(processes, "here", resolved, HELLO) as (connection, introduction):
            seen = await call(connection, "surroundings")
    assert seen["cwd"] == str(directory)
    assert (introduction.era, introduction.version) == ("legacy", "2025-11-25")
    assert introduction.server_info == {"name": "upstream", "version": "1"}
    assert introduction.capabilities == {"tools": {"listChanged": True}}
    assert introduction.instructions == "Be kind."
