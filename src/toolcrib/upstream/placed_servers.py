"""Serves the servers that this node runs for all nodes (`placement = "one"`) to the others; see `forwarded_connection`.

Must never be reached by anything but signed requests of other nodes: the gate is not on this path.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from toolcrib.model.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, as_object, dumps
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.exchange import UpstreamRequests
from toolcrib.upstream.forwarded_connection import ForwardedConnection
from toolcrib.upstream.upstream import Upstream

_MOST_WAITING: Final = 10_000
"""Lines that wait for the other node; more are dropped, except results."""


class PlacedServers:
    """The servers of this node that run on one node at a time. `find` returns one by its key."""

    def __init__(self, find: Callable[[str], Upstream | None]) -> None:
        self._find = find

    async def open(self, key: str) -> AsyncIterator[bytes]:
        """Return the introduction of a server, and then its notifications, until its connection ends."""
        upstream, exchange = await self._connect(key)
        return self._notifications(upstream, exchange)

    async def call(self, key: str, request: JsonObject) -> AsyncIterator[bytes]:
        """Send a request to a server. Returns its progress and messages, and then its result."""
        _, exchange = await self._connect(key)
        return self._answers(exchange, request)

    async def _connect(self, key: str) -> tuple[Upstream, UpstreamRequests]:
        upstream = self._find(key)
        if upstream is None:
            raise NotFound("server.unknown", "This node has no such server.")
        exchange = await upstream.ready()
        if isinstance(exchange.connection, ForwardedConnection):
            raise Unavailable("node.unreachable", "Another node runs this server now.")
        return upstream, exchange

    async def _notifications(self, upstream: Upstream, exchange: UpstreamRequests) -> AsyncIterator[bytes]:
        send, receive = anyio.create_memory_object_stream[JsonObject](_MOST_WAITING)

        def on_notification(method: str | None, params: JsonObject) -> None:
            if method is None:
                send.close()
            else:
                _offer(send, {"method": method, "params": params})

        upstream.followers.add(on_notification)
        try:
            yield dumps(asdict(exchange.introduction)) + b"\n"
            if upstream.exchange is exchange:
                async for line in receive:
                    yield dumps(line) + b"\n"
        finally:
            upstream.followers.discard(on_notification)
            send.close()
            receive.close()

    async def _answers(self, exchange: UpstreamRequests, request: JsonObject) -> AsyncIterator[bytes]:
        send, receive = anyio.create_memory_object_stream[JsonObject](_MOST_WAITING)
        running = asyncio.create_task(_run(exchange, request, send))
        try:
            async for line in receive:
                yield dumps(line) + b"\n"
        finally:
            running.cancel()
            receive.close()


async def _run(exchange: UpstreamRequests, request: JsonObject, send: MemoryObjectSendStream[JsonObject]) -> None:
    async def on_progress(done: float, total: float | None, text: str | None) -> None:
        _offer(send, {"progress": [done, total, text]})

    def on_message(method: str, params: JsonObject) -> None:
        _offer(send, {"message": [method, params]})

    headers: dict[str, str] = {str(name): str(value) for name, value in (as_object(request["headers"]) or {}).items()}
    answer: JsonObject
    try:
        result = await exchange.connection.call(
            str(request["method"]),
            as_object(request["params"]) or {},
            on_progress=on_progress if request.get("progress") is True else None,
            on_message=on_message,
            headers=headers or None,
        )
        answer = {"result": result}
    except ProtocolError as error:
        fault: dict[str, Json] = {"code": error.code, "message": error.message, "data": error.data}
        answer = {"error": fault}
    except ToolcribError as error:
        answer = {"failure": {"code": error.code, "message": error.message, "hint": error.hint}}
    async with send:
        await send.send(answer)


def _offer(send: MemoryObjectSendStream[JsonObject], line: JsonObject) -> None:
    """Add a line unless too many wait, or the other node is gone."""
    try:
        send.send_nowait(line)
    except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
