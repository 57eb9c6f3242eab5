"""One request in progress: its body, its principal, its view and the response to its client.

The response is plain JSON, or an event stream if messages precede the result. Most calls finish within milliseconds and
cost nothing extra. Only a long call gets a monitor task, which keeps the connection alive and cancels the call when the
client disconnects. In the legacy era, the stream of a long call can be resumed instead. One shared timer finds the long
calls.

Must never pass a client's claims on as ours: a server learns only what the client declared.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Send

from toolcrib.model.approvals import Approval
from toolcrib.model.json import Json, JsonObject, digest, dumps, is_object
from toolcrib.model.jsonrpc import Message, RequestId, RpcError, can_be_asked
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    KEY,
    LOG_LEVEL_KEY,
    META,
    OUR_KEY,
    PARSE_ERROR,
    VERSION_KEY,
    Era,
    reaches_level,
)
from toolcrib.model.sources import Ask, Client, ReportProgress
from toolcrib.web.limits import WHOLE
from toolcrib.web.mcp.resumable_streams import HEADERS, PING, PING_EVERY, EventLog, ResumableStreams
from toolcrib.web.mcp.sessions import McpSession
from toolcrib.web.mcp.views import McpView

if TYPE_CHECKING:
    from toolcrib.web.mcp.tasks import McpTask, TaskCandidate

MONITOR_AFTER = 0.05
"""A call gets its monitor after this many seconds, at most twice as many. Earlier disconnects are noticed then."""

_JSON = (b"content-type", b"application/json")
_PER_ROUND = frozenset({META, "inputResponses", "requestState"})
"""Params that differ when a client repeats a request with answers."""
_PER_HOP = frozenset({VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken"})
"""`_meta` keys of most requests that concern only the client and the crib."""
_PRIMED_SINCE = b"2025-11-25"
"""The first protocol version whose streams begin with an event without data."""
_DURING_CALLS = frozenset({"notifications/message", "notifications/progress"})
"""Notifications that may precede a result in the modern era; changes have their own stream."""


class LongRequests:
    """Finds long-running responses: those that are still open at the second timer check."""

    def __init__(self) -> None:
        self._new: set[ResponseWriter] = set()
        self._seen: set[ResponseWriter] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, response: "ResponseWriter") -> "asyncio.Task[object] | None":
        """Register a response whose work starts in the current task, and return the task."""
        loop = self._loop
        if loop is None:  # cached: `get_running_loop` makes a system call each time
            loop = self._loop = asyncio.get_running_loop()
        self._new.add(response)
        if self._timer is None:
            self._timer = loop.call_later(MONITOR_AFTER, self._check)
        return asyncio.current_task(loop)

    def discard(self, response: "ResponseWriter") -> None:
        """Unregister a response."""
        self._new.discard(response)
        self._seen.discard(response)

    def _check(self) -> None:
        for response in self._seen:
            response.monitor()
        self._seen, self._new = self._new, set()
        self._timer = self._loop.call_later(MONITOR_AFTER, self._check) if self._seen and self._loop else None


class ResponseWriter:
    """The response to one request, as a context manager around its work. Call `finish` or `end` once afterwards.

    The work may continue after `finish`: a call that waits for its client's answers has already been answered. Anything
    sent after the end is dropped.
    """

    is_over = False
    _streaming = False
    _is_cancelled = False
    _is_detached = False
    _log: EventLog | None = None
    _open_log: Callable[[], EventLog] | None = None
    _is_primed = False
    _sending: asyncio.Lock | None = None
    _work: asyncio.Task[object] | None = None
    _monitor_task: asyncio.Task[None] | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        long_requests: LongRequests,
        *,
        can_send_whole: bool = False,
    ) -> None:
        """`can_send_whole` allows sending a response as one `WHOLE` message."""
        self._can_send_whole = can_send_whole
        self._receive = receive
        self._send = send
        self._long_requests = long_requests
        self.may_stream = b"text/event-stream" in headers.get(b"accept", b"")
        """Whether messages can be sent ahead of the result."""

    def make_resumable(self, streams: ResumableStreams, session_id: str, version: bytes) -> None:
        """Let the client of a legacy session resume this response, if it becomes a stream."""
        if self.may_stream:
            self._open_log = partial(streams.open, session_id, self.cancel)
            self._is_primed = version >= _PRIMED_SINCE  # older clients cannot read an event without data

    def __enter__(self) -> Self:
        self._work = self._long_requests.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._long_requests.discard(self)
        self._stop_monitor()
        work, self._work = self._work, None
        # Cancels the task directly, because a cancel scope would cost every call for the sake of a few.
        return self._is_cancelled and kind is asyncio.CancelledError and work is not None and work.uncancel() == 0

    def monitor(self) -> None:
        """Start monitoring the client, unless it has been answered."""
        if not self.is_over:
            self._sending = self._sending or asyncio.Lock()
            self._monitor_task = asyncio.get_running_loop().create_task(self._watch_client())

    def cancel(self) -> None:
        """Cancel the work because the client disconnected or cancelled the request. Idempotent."""
        if self._work is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._work.cancel()

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification ahead of the result. Ignored if the client accepts no stream."""
        if self.may_stream:
            await self._stream(dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def request(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Send a request to the client ahead of the result. The client answers in a separate request."""
        await self._stream(dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}))

    async def end(self) -> None:
        """End without a result, as for a cancelled request."""
        if self.is_over:
            return
        self.is_over = True
        async with self._sending or nullcontext():
            self._stop_monitor()
            await self._start_stream()
            if self._log is not None:
                self._log.close()
            await self._write({"type": "http.response.body", "body": b""})

    async def finish(self, body: bytes, status: int = 200) -> None:
        """Send the result and end the response."""
        if self.is_over:
            return
        self.is_over = True
        if self._sending is not None:
            async with self._sending:  # the monitor may be starting the stream
                self._stop_monitor()
        if self._streaming:
            frame = self._frame(body)
            if self._log is not None:
                self._log.close()
            await self._write({"type": "http.response.body", "body": frame})
            return
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        if self._can_send_whole:
            await self._send({"type": WHOLE, "status": status, "headers": headers, "body": body})
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _stream(self, data: bytes | None) -> None:
        if self.is_over:
            return
        self._sending = self._sending or asyncio.Lock()
        async with self._sending:
            await self._start_stream()
            frame = PING if data is None else self._frame(data)
            await self._write({"type": "http.response.body", "body": frame, "more_body": True})

    async def _start_stream(self) -> None:
        if self._streaming:
            return
        self._streaming = True
        await self._write({"type": "http.response.start", "status": 200, "headers": HEADERS})
        if self._open_log is not None:
            self._log = self._open_log()
            if self._is_primed:
                await self._write({"type": "http.response.body", "body": self._log.prime(), "more_body": True})

    def _frame(self, data: bytes) -> bytes:
        return _event(data) if self._log is None else self._log.add(data)

    async def _write(self, message: AsgiMessage) -> None:
        if not self._is_detached:
            await self._send(message)

    def _stop_monitor(self) -> None:
        if self._monitor_task is not None:
            self._monitor_task.cancel()

    async def _watch_client(self) -> None:
        """Start a resumable stream, keep the connection alive, and notice when the client disconnects."""
        if self._is_primed:
            assert self._sending is not None
            async with self._sending:
                await self._start_stream()
        while True:
            with anyio.move_on_after(PING_EVERY):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                self._on_disconnect()
                return
            if self.may_stream:
                await self._stream(None)

    def _on_disconnect(self) -> None:
        """Cancel the work, unless the client can resume its stream."""
        if self._log is None or not self._log.has_events:
            self.cancel()
            return
        self._is_detached = True
        self._log.detach()


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


class McpRequest:
    """One request of a client that the endpoint answers itself."""

    __slots__ = (
        "approval",
        "candidate",
        "era",
        "headers",
        "mcp_view",
        "message",
        "missing_capability",
        "parked_as",
        "principal",
        "progress_token",
        "response",
        "result_tokens",
        "session",
        "state",
        "task",
    )  # fmt: skip

    def __init__(
        self,
        principal: Principal,
        mcp_view: McpView,
        era: Era,
        message: Message,
        headers: Mapping[bytes, bytes],
        response: ResponseWriter,
        session: McpSession | None = None,
        result_tokens: int = 0,
    ) -> None:
        self.result_tokens = result_tokens
        """The largest result that the client receives whole; 0 means no limit."""
        self.principal = principal
        self.mcp_view = mcp_view
        self.era: Era = era
        self.message = message
        self.headers = headers
        self.response = response
        self.session = session
        self.progress_token: RequestId | None = message.progress_token
        self.missing_capability: RpcError | None = None
        """The error for a capability that a server needed and the client did not declare. Raised if the call fails."""
        self.parked_as: str | None = None
        """The id of the parked call, if it waits for its client's answers."""
        self.approval: Approval | None = None
        """The approval that the call waits for."""
        self.candidate: TaskCandidate | None = None
        """Makes the call a task, if its client supports that."""
        self.task: McpTask | None = None
        """The task that the call became."""
        self.state: str | None = None
        """The unsealed state that the client returned to the server."""

    @property
    def bound_to(self) -> Json:
        """The binding of sealed state: the principal, the view and the content of this request."""
        params = self.message.params
        content = digest({key: value for key, value in params.items() if key not in _PER_ROUND})
        return [self.principal.to_json(), self.mcp_view.key, self.message.method, content]

    @property
    def has_extensions(self) -> bool:
        """Whether the client of a modern request declares any extension."""
        capabilities: Json = self.message.meta.get(CAPABILITIES_KEY)
        return self.era == "modern" and is_object(capabilities) and "extensions" in capabilities

    @property
    def progress(self) -> ReportProgress | None:
        """The progress callback, or None if the client did not request progress."""
        return None if self.progress_token is None else self._report

    def client(self, ask: Ask | None) -> Client:
        """Return what the client can do for a server; `ask` sends questions in the modern era."""
        meta = self.message.meta
        rest: JsonObject = {}
        if not meta.keys() <= _PER_HOP:
            own_keys = (KEY, OUR_KEY)
            rest = {
                key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(own_keys)
            }
        session = self.session
        if session is not None:
            may_ask = self.response.may_stream and can_be_asked(session.capabilities)
            return Client(
                capabilities=session.capabilities,
                info=session.info,
                session=session.id,
                ask=partial(session.ask, self.response) if may_ask else None,
                tell=self._forward,
                log_level=session.log_level,
                meta=rest,
            )
        capabilities: Json = meta.get(CAPABILITIES_KEY, {})
        info: Json = meta.get(CLIENT_INFO_KEY)
        responses: Json = self.message.params.get("inputResponses")
        may_ask = can_be_asked(capabilities)
        return Client(
            capabilities=capabilities,
            info=info if is_object(info) else None,
            # The modern era has no sessions. The calls of one client are the closest equivalent.
            session=f"modern {digest([self.principal.to_json(), info])}" if may_ask else None,
            ask=ask if may_ask else None,
            tell=self._forward,
            log_level=meta.get(LOG_LEVEL_KEY),
            answers_by_retry=True,
            responses=responses if is_object(responses) else None,
            state=self.state,
            meta=rest,
            on_approval=self._show_approval,
            on_task=self.candidate.on_upstream_task if self.candidate is not None else None,
        )

    def _show_approval(self, approval: Approval | None) -> None:
        self.approval = approval
        if self.candidate is not None:
            self.candidate.start()
        if self.task is not None:
            self.task.show_approval(approval)

    async def _forward(self, method: str, params: JsonObject) -> None:
        """Forward a server's notification, if this client accepts it here."""
        if self.era == "modern" and method not in _DURING_CALLS:
            return
        level: Json = self.session.log_level if self.session is not None else self.message.meta.get(LOG_LEVEL_KEY)
        if method != "notifications/message" or reaches_level(params.get("level"), level):
            await self.response.notify(method, params)

    async def _report(self, progress: float, total: float | None = None, text: str | None = None) -> None:
        if self.task is not None:
            self.task.report(text)
            return
        params: JsonObject = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if text is not None:
            params["message"] = text
        await self.response.notify("notifications/progress", params)


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request. Raises `RpcError` if the client disconnects before its end."""
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":  # a partial body must never be taken for a whole one
            raise RpcError(PARSE_ERROR, "The request ended before its body was complete.")
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body that was already read, then continues with the original."""
    first: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> AsgiMessage:
        return first.pop() if first else await receive()

    return replayed
