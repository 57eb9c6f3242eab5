"""Connections to the official server, in both eras and all its forms."""

from typing import get_args

import anyio
import pytest

from integration.upstream.http.harness import ENVELOPE, Form, call, official_server, open_connection, serve_app
from integration.upstream.http.harness import official as make_official
from lab import cancelled_once, eventually
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import Era
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.http.handshake import WebTransport

pytestmark = pytest.mark.anyio

FORMS = pytest.mark.parametrize("form", get_args(Form))
ERAS = pytest.mark.parametrize("era", get_args(Era))


@FORMS
@ERAS
async def test_tools_are_listed_and_called(form: Form, era: Era) -> None:
    with anyio.fail_after(20):
        async with official_server(form) as (url, _), open_connection(url, era=era) as (connection, introduction):
            assert (introduction.era, introduction.server_info["name"]) == (era, "official")
            assert introduction.instructions == "Be kind."
            listed = await connection.call("tools/list", dict(ENVELOPE) if era == "modern" else {})
            assert {tool["name"] for tool in listed["tools"]} >= {"echo", "ask"}
            echoed = await call(connection, "echo", era, text="äöü \u2028 😀")
            assert echoed["content"][0]["text"] == "äöü \u2028 😀"
            failed = await call(connection, "fail", era)
            assert failed["isError"]


async def test_server_of_both_eras_is_connected_in_the_modern_one() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url) as (_, introduction):
            assert introduction.era == "modern"


@ERAS
async def test_concurrent_calls_get_their_own_results(era: Era) -> None:
    correct: list[bool] = []

    with anyio.fail_after(30):
        async with official_server("stateful") as (url, _), open_connection(url, era=era) as (connection, _):

            async def one(number: int) -> None:
                echoed = await call(connection, "echo", era, text=str(number))
                correct.append(echoed["content"][0]["text"] == str(number))

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(one, number)
    assert correct == [True] * 100


@ERAS
async def test_progress_arrives_in_order_before_the_result(era: Era) -> None:
    received: list[object] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era=era) as (connection, _):
            params: JsonObject = {"name": "count", "arguments": {}, **(ENVELOPE if era == "modern" else {})}
            await connection.call("tools/call", params, on_progress=report)
            received.append("result")
    assert received == [(1.0, 3.0, "at 1"), (2.0, 3.0, "at 2"), (3.0, 3.0, "at 3"), "result"]


@ERAS
async def test_cancelled_call_is_cancelled_at_the_server(era: Era) -> None:
    waiting = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        waiting.set()

    with anyio.fail_after(20):
        async with official_server() as (url, cancelled), open_connection(url, era=era) as (connection, _):
            async with anyio.create_task_group() as tasks:
                params: JsonObject = {"name": "wait", "arguments": {}, **(ENVELOPE if era == "modern" else {})}

                async def wait() -> None:
                    await connection.call("tools/call", params, on_progress=report)

                tasks.start_soon(wait)
                await waiting.wait()
                tasks.cancel_scope.cancel()
            await eventually(lambda: cancelled == ["wait"])
            assert (await call(connection, "echo", era, text="on"))["content"][0]["text"] == "on"


async def test_elicitation_is_answered_while_its_call_waits() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):

            def on_request(request_id: RequestId, method: str, params: JsonObject) -> None:
                assert method == "elicitation/create"
                connection.answer(request_id, {"action": "accept", "content": {"name": "Ada"}})

            connection.on_request = on_request
            answered = await call(connection, "ask", "legacy")
            assert answered["content"][0]["text"] == "Ada"


async def test_elicitation_without_a_handler_is_refused() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):
            with pytest.raises(ProtocolError, match="Method not found: elicitation/create"):
                await call(connection, "ask", "legacy")


async def test_notifications_outside_calls_arrive_on_the_standing_stream() -> None:
    received: list[str] = []
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):
            connection.on_notification = lambda method, params: received.append(method)
            while not received:  # the stream may need a moment to open
                await call(connection, "grow", "legacy")
                await anyio.sleep(0.01)
    assert set(received) == {"notifications/tools/list_changed"}


@ERAS
async def test_unknown_method_is_a_protocol_error(era: Era) -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era=era) as (connection, _):
            with pytest.raises(ProtocolError) as caught:
                await connection.call("no/such", dict(ENVELOPE) if era == "modern" else {})
            assert caught.value.code == -32601


async def test_calls_on_a_closed_connection_fail() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _):
            async with open_connection(url, era="legacy") as (first, _):
                await call(first, "echo", "legacy", text="x")
            assert first.failure is not None
            with pytest.raises(Unavailable):
                await call(first, "echo", "legacy", text="x")


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_sse_server_is_connected_with_either_transport(transport: WebTransport) -> None:
    server, cancelled = make_official()
    received: list[object] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    with anyio.fail_after(30):
        async with (
            serve_app(server.sse_app()) as port,
            open_connection(f"http://127.0.0.1:{port}/sse", transport=transport) as (connection, introduction),
        ):
            assert introduction.era == "legacy"
            connection.on_request = lambda request_id, method, params: connection.answer(
                request_id, {"action": "decline"}
            )
            assert (await call(connection, "ask", "legacy"))["content"][0]["text"] == "decline"
            await connection.call("tools/call", {"name": "count", "arguments": {}}, on_progress=report)
            assert received == [1.0, 2.0, 3.0]
            await cancelled_once(
                lambda: len(received) == 4,
                lambda: connection.call("tools/call", {"name": "wait", "arguments": {}}, on_progress=report),
            )
            await eventually(lambda: cancelled == ["wait"])
