"""`/mcp`: routes each request by era and method, and answers `tools/list` and `tools/call` itself.

These two are nearly all of the traffic and are answered without the SDK, in both eras, from one parse to one dump.
Everything rarer (handshake, discovery, subscriptions, the legacy event stream) goes to the SDK's server in `sdk`, which
is loaded when the first client needs it. Both roads end at the gate.
"""

import importlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from toolcrib.errors import InvalidRequest, NotFound, ToolcribError
from toolcrib.feed import Feed
from toolcrib.gate import Gate
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    META,
    PARSE_ERROR,
    SERVER_INFO_KEY,
    Era,
)
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult
from toolcrib.server import problems
from toolcrib.server.mcp.exchange import Exchange
from toolcrib.server.mcp.pages import ToolPages
from toolcrib.server.mcp.rpc import Message, RequestId, RpcError, check_modern, era_of, read_message
from toolcrib.version import __version__

if TYPE_CHECKING:
    from toolcrib.server.mcp.sdk import SdkServer

logger = logging.getLogger(__name__)

SERVER_INFO: JsonObject = {"name": "toolcrib", "title": "Toolcrib", "version": __version__}
ANNOUNCE_EVERY = 0.5
"""Seconds between two announcements of a changed list, so that a storm of changes becomes a few."""

_PATHS = frozenset({"/mcp", "/mcp/"})
"""An address below that names a narrower view must never be answered with the whole one."""
_ROUTING_HEADERS = frozenset({b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"})


class McpEndpoint:
    """The ASGI application of `/mcp`; `async with` owns the SDK's sessions and the announcements to them."""

    def __init__(self, gate: Gate, feed: Feed) -> None:
        self._gate = gate
        self._feed = feed
        self._pages = ToolPages(gate, SERVER_INFO)
        self._running: dict[tuple[bytes, RequestId], Exchange] = {}
        self._sdk: SdkServer | None = None
        self._loading = anyio.Lock()
        self._changed = anyio.Event()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        self._stack.callback(self._feed.listen(self._notice))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; the guard has let it in and said who asks."""
        if scope["path"] not in _PATHS:
            raise NotFound("route.unknown", f"There is nothing at {scope['path']}.")
        principal: Principal = scope["toolcrib.principal"]
        if scope["query_string"]:
            principal = _in_directory(principal, scope["query_string"])
        if scope["method"] != "POST":
            await self._hand_over(scope, receive, send, principal)
            return
        message: Message | None = None
        era: Era = "modern"
        try:
            headers = _fold(scope["headers"])
            era = era_of(headers.get(b"mcp-protocol-version", b"").decode("latin-1") or None)
            if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
                await problems.answer(send, InvalidRequest("request.media_type", "MCP messages are JSON."))
                return
            body = await _read_body(receive)
            message = read_message(body)
            if not await self._answer(era, message, headers, principal, receive, send):
                await self._hand_over(scope, _replay(body, receive), send, principal)
        except RpcError as error:
            request_id = message.id if message else None
            logger.info("refused MCP request: %s", error.message, extra={"code": error.code})
            await Exchange(receive, send, {}).finish(error.body(request_id), error.status(era))

    async def _answer(
        self,
        era: Era,
        message: Message,
        headers: Mapping[bytes, bytes],
        principal: Principal,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Answer a frequent method; False leaves the request to the SDK's server."""
        session = headers.get(b"mcp-session-id", b"")
        if era == "legacy":
            if self._sdk is None or not self._sdk.touch(session.decode("latin-1"), principal):
                return False  # the SDK opens sessions and refuses unknown ones
            if message.method == "notifications/cancelled":
                return await self._take_back(session, message, send)
        if message.id is None or message.method not in ("tools/call", "tools/list"):
            return False
        if era == "modern":
            check_modern(message, headers)
        if message.method == "tools/list":
            page = self._pages.page(principal, era, message.params.get("cursor"))
            body = b'{"jsonrpc":"2.0","id":' + orjson.dumps(message.id) + b',"result":' + page + b"}"
            await Exchange(receive, send, headers).finish(body)
            return True
        await self._call(era, message, session, principal, Exchange(receive, send, headers))
        return True

    async def _call(self, era: Era, message: Message, session: bytes, principal: Principal, exchange: Exchange) -> None:
        assert message.id is not None
        running = (session, message.id)
        if session:
            self._running[running] = exchange
        body, status = b"", 200
        try:
            async with exchange:
                result = await self.call_tool(principal, message.params, _progress(exchange, message))
                body = _result(message.id, result, era)
        except RpcError as failure:
            body, status = failure.body(message.id), failure.status(era)
        except Exception:  # boundary: whatever breaks while one call is answered must not reach the next
            logger.exception("tools/call failed")
            body = RpcError(INTERNAL_ERROR, "Internal error").body(message.id)
        finally:
            self._running.pop(running, None)
        if body:
            await exchange.finish(body, status)
        else:
            await exchange.end()

    async def call_tool(
        self, principal: Principal, params: Mapping[str, Any], progress: ReportProgress | None
    ) -> CallResult:
        """`tools/call`: a refusal is a result the model can read, an unknown tool is a protocol error."""
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "params.name must be a string.")
        if not is_object(arguments):
            raise RpcError(INVALID_PARAMS, "params.arguments must be an object.")
        ref = self._gate.named("endpoint", name)
        if ref is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        try:
            called = await self._gate.call(principal, ref, arguments, door="mcp", progress=progress)
        except ToolcribError as error:
            # A hidden tool is unknown here even to the owner, whose client would only show the name to its model.
            if isinstance(error, NotFound) or not self._gate.decision(principal, ref).visible:
                raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}") from error
            logger.info("refused %s: %s", ref, error.message, extra={"code": error.code})
            return CallResult.error(f"{error.message} {error.hint or ''}".strip())
        return called.result

    def list_tools(self, principal: Principal, era: Era, cursor: object) -> JsonObject:
        """`tools/list` for the SDK's server."""
        return orjson.loads(self._pages.page(principal, era, cursor))

    async def _take_back(self, session: bytes, message: Message, send: Send) -> bool:
        request_id: Any = message.params.get("requestId")
        exchange = self._running.get((session, request_id)) if isinstance(request_id, str | int) else None
        if exchange is None:
            return False
        exchange.withdraw()
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _hand_over(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        sdk = self._sdk or await self._load_sdk()
        await sdk.handle(scope, receive, send, principal)

    async def _load_sdk(self) -> "SdkServer":
        async with self._loading:
            if self._sdk is not None:
                return self._sdk
            # In a thread, since the import takes longer than many calls.
            module = await anyio.to_thread.run_sync(importlib.import_module, "toolcrib.server.mcp.sdk")
            sdk: SdkServer = module.SdkServer(self, self._gate, SERVER_INFO)
            await self._tasks.start(self._run_sdk, sdk)
            self._sdk = sdk
            return sdk

    async def _run_sdk(self, sdk: "SdkServer", *, task_status: TaskStatus[None]) -> None:
        async with sdk.running():
            task_status.started()
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await sdk.announce()
                await anyio.sleep(ANNOUNCE_EVERY)

    def _notice(self, event: Event) -> None:
        if event.kind == "catalog_changed":
            self._changed.set()


def _fold(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; a routing header given twice is refused, since readers would differ on which one counts."""
    folded: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in folded and name in _ROUTING_HEADERS:
            raise RpcError(HEADER_MISMATCH, f"The header {name.decode('latin-1')} appears more than once.")
        folded[name] = value
    return folded


def _in_directory(principal: Principal, query: bytes) -> Principal:
    """The asker in the working directory that the address names."""
    named = parse_qs(query.decode("latin-1")).get("cwd")
    return replace(principal, cwd=named[-1]) if named else principal


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":  # half a body must never be taken for a whole one
            raise RpcError(PARSE_ERROR, "The request ended before its body did.")
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, then whatever comes."""
    first: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> AsgiMessage:
        return first.pop() if first else await receive()

    return replayed


def _progress(exchange: Exchange, message: Message) -> ReportProgress | None:
    token = message.progress_token
    if token is None:
        return None

    async def report(progress: float, total: float | None = None, text: str | None = None) -> None:
        params: JsonObject = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if text is not None:
            params["message"] = text
        await exchange.notify("notifications/progress", params)

    return report


def _result(request_id: RequestId, result: CallResult, era: Era) -> bytes:
    wire = result.to_json()
    if era == "modern":
        wire.setdefault("resultType", "complete")
        wire[META] = {**wire.get(META, {}), SERVER_INFO_KEY: SERVER_INFO}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": wire})
