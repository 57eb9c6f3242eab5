"""The official server, in both eras and all its forms."""

from typing import get_args

import anyio
import pytest

from integration.upstream.http.harness import ENVELOPE, Form, call, official_server, open_connection, serve_app
from integration.upstream.http.harness import official as official_parts
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
            said = await call(connection, "echo", era, text="äöü \u2028 😀")
            assert said["content"][0]["text"] == "äöü \u2028 😀"
            failed = await call(connection, "fail", era)
            assert failed["isError"]


async def test_a_server_of_both_eras_is_greeted_in_the_modern_one() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url) as (_, introduction):
            assert introduction.era == "modern"


@ERAS
async def test_many_calls_side_by_side_each_get_their_own_result(era: Era) -> None:
    heard: list[bool] = []

    with anyio.fail_after(30):
        async with official_server("stateful") as (url, _), open_connection(url, era=era) as (connection, _):

            async def one(number: int) -> None:
                said = await call(connection, "echo", era, text=str(number))
                heard.append(said["content"][0]["text"] == str(number))

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(one, number)
    assert heard == [True] * 100


@ERAS
async def test_progress_comes_in_order_and_before_the_result(era: Era) -> None:
    heard: list[object] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era=era) as (connection, _):
            params: JsonObject = {"name": "count", "arguments": {}, **(ENVELOPE if era == "modern" else {})}
            await connection.call("tools/call", params, on_progress=report)
            heard.append("result")
    assert heard == [(1.0, 3.0, "at 1"), (2.0, 3.0, "at 2"), (3.0, 3.0, "at 3"), "result"]


@ERAS
async def test_being_cancelled_ends_the_work_at_the_server_and_nothing_else(era: Era) -> None:
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


async def test_a_question_of_the_server_is_answered_while_its_call_waits() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):

            def asked(request_id: RequestId, method: str, params: JsonObject) -> None:
                assert method == "elicitation/create"
                connection.answer(request_id, {"action": "accept", "content": {"name": "Ada"}})

            connection.on_request = asked
            said = await call(connection, "ask", "legacy")
            assert said["content"][0]["text"] == "Ada"


async def test_a_question_that_nobody_takes_is_refused() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):
            with pytest.raises(ProtocolError, match="Method not found: elicitation/create"):
                await call(connection, "ask", "legacy")


async def test_what_the_server_says_by_itself_comes_on_the_standing_stream() -> None:
    heard: list[str] = []
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era="legacy") as (connection, _):
            connection.on_notification = lambda method, params: heard.append(method)
            while not heard:  # the stream may need a moment to stand
                await call(connection, "grow", "legacy")
                await anyio.sleep(0.01)
    assert set(heard) == {"notifications/tools/list_changed"}


@ERAS
async def test_an_unknown_method_is_an_error_of_the_protocol(era: Era) -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _), open_connection(url, era=era) as (connection, _):
            with pytest.raises(ProtocolError) as caught:
                await connection.call("no/such", dict(ENVELOPE) if era == "modern" else {})
            assert caught.value.code == -32601


async def test_a_session_is_ended_at_the_server() -> None:
    with anyio.fail_after(20):
        async with official_server() as (url, _):
            async with open_connection(url, era="legacy") as (first, _):
                await call(first, "echo", "legacy", text="x")
            assert first.failure is not None
            with pytest.raises(Unavailable):
                await call(first, "echo", "legacy", text="x")


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_a_server_of_the_first_specification_is_understood_under_either_name(transport: WebTransport) -> None:
    server, cancelled = official_parts()
    heard: list[object] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    with anyio.fail_after(30):
        async with (
            serve_app(server.sse_app()) as port,
            open_connection(f"http://127.0.0.1:{port}/sse", transport=transport) as (talking, introduction),
        ):
            assert introduction.era == "legacy"
            talking.on_request = lambda request_id, method, params: talking.answer(request_id, {"action": "decline"})
            assert (await call(talking, "ask", "legacy"))["content"][0]["text"] == "decline"
            await talking.call("tools/call", {"name": "count", "arguments": {}}, on_progress=report)
            assert heard == [1.0, 2.0, 3.0]
            await cancelled_once(
                lambda: len(heard) == 4,
                lambda: talking.call("tools/call", {"name": "wait", "arguments": {}}, on_progress=report),
            )
            await eventually(lambda: cancelled == ["wait"])
