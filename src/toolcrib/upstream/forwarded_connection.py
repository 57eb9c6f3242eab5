"""A connection to a server that another node runs: requests are forwarded to that node, below the gate.

The node of the caller has decided on the call and recorded it; the other node only passes it to its own connection.
Requests that a legacy server sends to its client are refused there.

Answers are streams of JSON lines. The first request gets the introduction of the server and stays open: it carries the
notifications that belong to no call, and its end is the end of the connection.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import CODES, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, dumps, is_object, loads
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.sources import ProtocolError, ReportProgress
from toolcrib.nodes.forwarding import NodeClient, error_of_problem
from toolcrib.upstream.connection import OnMessage, OnNotification, OnRequest
from toolcrib.upstream.handshake import ServerIntroduction

PLACED_PATH: Final = "/api/nodes/servers"
"""Where a node serves the servers that it runs for all nodes."""
_ALIVE_SECONDS: Final = 2.0
"""Seconds between two checks that the other node is alive."""
_CALLER: Final[JsonObject] = {"source": "api"}


@asynccontextmanager
async def open_forwarded(
    client: NodeClient, node: str, key: str, name: str, wait: float
) -> AsyncGenerator[tuple["ForwardedConnection", ServerIntroduction]]:
    """Open a connection to a server that another node runs. Raises the error that the node reports."""
    async with client.stream(node, "POST", f"{PLACED_PATH}/{key}", caller=_CALLER, seconds=None) as response:
        if not response.is_success:
            raise error_of_problem(await response.aread(), node)
        lines = response.aiter_lines()
        try:
            with anyio.fail_after(wait):
                introduction = ServerIntroduction(**loads(await anext(lines)))
        except (TimeoutError, StopAsyncIteration):
            raise Unavailable("node.unreachable", f"The node {node!r} does not respond.") from None
        connection = ForwardedConnection(client, node, key, name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.follow, lines)
            tasks.start_soon(connection.watch)
            try:
                yield connection, introduction
            finally:
                connection.end("The connection was closed.")
                tasks.cancel_scope.cancel()


class ForwardedConnection:
    """A connection through another node. See `Connection`."""

    def __init__(self, client: NodeClient, node: str, key: str, name: str) -> None:
        self.name = name
        self.failure: ServerFailed | None = None
        self.on_notification: OnNotification = lambda method, params: None
        self.on_request: OnRequest = lambda id, method, params: None
        self._client = client
        self._node = node
        self._key = key
        self._ended = anyio.Event()
        self._calls: set[anyio.CancelScope] = set()

    async def until_ended(self) -> ServerFailed:
        """Wait until the connection ends and return the reason."""
        await self._ended.wait()
        assert self.failure is not None
        return self.failure

    def end(self, reason: str) -> None:
        """End the connection and all calls in flight. Idempotent; the first reason counts."""
        if self.failure is None:
            self.failure = ServerFailed("server.ended", reason, None, ())
            self._ended.set()
            for scope in tuple(self._calls):
                scope.cancel()

    async def follow(self, lines: AsyncIterator[str]) -> None:
        """Pass on the notifications of the server until the other node ends the connection."""
        try:
            async for line in lines:
                message = loads(line)
                self.on_notification(str(message["method"]), message["params"])
        except Exception:  # noqa: BLE001 boundary: whatever breaks the stream ends the connection
            self.end(f'The connection to the node that runs "{self.name}" was lost.')
        self.end(f'The node that ran "{self.name}" has ended it.')

    async def watch(self) -> None:
        """End the connection when the other node is dead, also if the network does not report it."""
        while self.failure is None:
            await anyio.sleep(_ALIVE_SECONDS)
            try:
                if not await self._client.runs(self._node):
                    self.end(f'The node that ran "{self.name}" is dead.')
            except ToolcribError:  # the database does not respond; calls are refused without it
                continue

    async def call(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: ReportProgress | None = None,
        on_message: OnMessage | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Have the other node send a request, and return its result unchanged. Cancelling it cancels it there."""
        request: JsonObject = {
            "method": method,
            "params": params,
            "headers": dict(headers or {}),
            "progress": on_progress is not None,
        }
        if self.failure is not None:
            raise self.failure.copy()
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                async for answer in self._answers(request):
                    if (result := answer.get("result")) is not None:
                        return result
                    await _deliver(answer, on_progress, on_message)
            finally:
                self._calls.discard(scope)
        raise (self.failure or _unanswered_error(self.name)).copy()

    async def _answers(self, request: JsonObject) -> AsyncIterator[JsonObject]:
        path, headers = f"{PLACED_PATH}/{self._key}/calls", {"content-type": "application/json"}
        async with self._client.stream(
            self._node, "POST", path, dumps(request), headers, caller=_CALLER, seconds=None
        ) as response:
            if not response.is_success:
                raise error_of_problem(await response.aread(), self._node)
            async for line in response.aiter_lines():
                yield loads(line)

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Drop the notification: the other node sends those of the protocol."""

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Do nothing: requests of the server do not arrive here."""

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Do nothing: requests of the server do not arrive here."""


async def _deliver(answer: JsonObject, on_progress: ReportProgress | None, on_message: OnMessage | None) -> None:
    """Deliver what comes before the result, or raise the error that replaces it."""
    match answer:
        case {"progress": [float() | int() as done, total, text]} if on_progress is not None:
            await on_progress(done, total, text)
        case {"message": [str(method), params]} if on_message is not None and is_object(params):
            on_message(method, params)
        case {"error": {"code": int(code), "message": str(message), "data": data}}:
            raise ProtocolError(code, message, data)
        case {"failure": {"code": str(code), "message": str(message), "hint": hint}} if code in CODES:
            raise CODES[code].raised_as(code, message, hint)
        case _:
            pass


def _unanswered_error(name: str) -> ServerFailed:
    return ServerFailed("server.ended", f'The node that runs "{name}" did not finish the call.', None, ())
