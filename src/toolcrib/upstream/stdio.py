"""The connection to one stdio server: matches replies to requests by id, and passes notifications both ways.

Every call takes this path, so it is lean: per call one future, no task, one orjson dump and parse, one pipe write and
read. Results are raw objects with all their members.

Must never let a reply resolve any call but its own: duplicate, foreign and look-alike ids are dropped and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from toolcrib.base.cooperative import Pacer
from toolcrib.base.processes.pipes import FLOOD_LIMIT, LINE_LIMIT, FlowControl, Garbage, Line, Lines, OversizedLine
from toolcrib.base.processes.process import Child, Processes, ServerFailed
from toolcrib.base.processes.stderr import Mask
from toolcrib.model import jsonrpc
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import METHOD_NOT_FOUND
from toolcrib.model.servers import ResolvedServer
from toolcrib.model.sources import ReportProgress
from toolcrib.upstream.connection import MESSAGES_LIMIT, OPEN_ENDED, OnNotification, OnRequest

logger = logging.getLogger(__name__)

OPEN_REQUESTS: Final = 100
"""Maximum number of pending requests from a server."""
_TOO_LARGE = f"sent a reply of more than {LINE_LIMIT} bytes"
OVERLONG_WAIT: Final = 10.0
"""Seconds within which a line over the size limit must end."""
_PROGRESS_KEPT = 100
_CHANGED = b'/list_changed"'
_SHORT = 256
_ABANDONED_KEPT = 1_000
_MESSAGE_STARTS = (b"{", b"[")


@dataclass(slots=True)
class Dropped:
    """Counts of unused messages: late replies, replies to unknown requests, and malformed or oversized ones."""

    late: int = 0
    unknown: int = 0
    malformed: int = 0
    oversized: int = 0


class _Progress:
    """Progress reports of one call that are not yet delivered. Drops the oldest if the receiver is slow."""

    def __init__(self, reply: "asyncio.Future[JsonObject]") -> None:
        self.reports: deque[tuple[float, float | None, str | None]] = deque(maxlen=_PROGRESS_KEPT)
        self.wake = asyncio.Event()
        reply.add_done_callback(lambda _: self.wake.set())


@asynccontextmanager
async def open_stdio(
    processes: Processes, name: str, resolved: ResolvedServer, mask: Mask = str
) -> AsyncGenerator["StdioConnection"]:
    """Start a server and connect to it. Leaving the block stops it.

    `mask` hides secrets in its standard error.
    """
    async with processes.child(name, resolved, mask) as child:
        yield StdioConnection(child)


class StdioConnection:
    """A connection over one child's pipes. It has no task: the event loop calls it when output arrives."""

    def __init__(self, child: Child) -> None:
        self.name = child.name
        self.pid = child.pid
        self.dropped = Dropped()
        self.garbage = Garbage()
        self.on_notification: OnNotification = _ignore
        self.on_request: OnRequest = self._refuse_unknown
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._lines = Lines()
        self._flow = FlowControl(self._handle, child.hold, child.release)
        self._last_id = 0
        self._waiting: dict[RequestId, asyncio.Future[JsonObject]] = {}
        self._progress: dict[RequestId, _Progress] = {}
        self._abandoned: dict[RequestId, None] = {}
        self._open_requests: set[RequestId] = set()
        self._open_ended: set[RequestId] = set()
        self._unsolicited = 0  # messages since the last response to a call
        self._overlong: asyncio.TimerHandle | None = None
        self._failure: ServerFailed | None = None
        self._ended = asyncio.Event()
        child.listen(self)

    @property
    def failure(self) -> ServerFailed | None:
        """Why the connection ended, or None while it is open."""
        return self._failure

    async def until_ended(self) -> ServerFailed:
        """Wait until the server exits or is given up, and return the reason."""
        await self._ended.wait()
        assert self._failure is not None
        return self._failure

    async def call(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: ReportProgress | None = None,
        on_message: OnNotification | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Send a request and return its result unchanged.

        Raises `ProtocolError` if the server responds with an error, and `ServerFailed` if it exits, is given up or
        sends an unreadable reply. Cancelling notifies the server and ignores the late reply. Pipes have no headers and
        cannot attribute notifications to a request, so `headers` and `on_message` are ignored.
        """
        self._last_id += 1
        request_id = self._last_id
        if on_progress is not None:
            return await self.follow(request_id, method, params, on_progress)
        reply = self.send(request_id, method, params)
        try:
            return await reply
        except asyncio.CancelledError:
            self.abandon(request_id, reply)
            raise

    async def follow(
        self, request_id: RequestId, method: str, params: JsonObject, on_progress: ReportProgress
    ) -> JsonObject:
        """Like `call`, but await `on_progress` in this task for each report, in order, before the result."""
        meta: Json = params.get("_meta")
        asked = {**(meta if is_object(meta) else {}), "progressToken": request_id}
        reply = self.send(request_id, method, {**params, "_meta": asked})
        progress = self._progress[request_id] = _Progress(reply)
        try:
            while True:
                await progress.wake.wait()
                progress.wake.clear()
                pace = Pacer()
                while progress.reports:
                    await on_progress(*progress.reports.popleft())
                    await pace.pause()
                if reply.done():
                    return reply.result()
        except BaseException:
            self.abandon(request_id, reply)
            raise
        finally:
            self._progress.pop(request_id, None)

    def new_id(self) -> int:
        """Return an unused request id."""
        self._last_id += 1
        return self._last_id

    def send(self, request_id: RequestId, method: str, params: JsonObject | None) -> "asyncio.Future[JsonObject]":
        """Send a request and return a future for its reply. To stop waiting, call `abandon`."""
        if self._failure is not None:
            raise self._failure.copy()
        if request_id in self._waiting:
            raise ValueError(f"The request id {request_id!r} is in use.")
        line = jsonrpc.request(request_id, method, params)
        reply = self._waiting[request_id] = self._loop.create_future()
        if method in OPEN_ENDED:
            self._open_ended.add(request_id)
        self._child.write(line)
        return reply

    def abandon(self, request_id: RequestId, reply: "asyncio.Future[JsonObject]", *, notifies: bool = True) -> None:
        """Stop waiting for a reply. With `notifies`, queue a cancellation for the server."""
        if reply.done() and not reply.cancelled():
            reply.exception()  # mark the exception as retrieved
            return
        if self._waiting.pop(request_id, None) is None:
            return
        self._open_ended.discard(request_id)
        reply.cancel()
        self._abandoned[request_id] = None
        if len(self._abandoned) > _ABANDONED_KEPT:
            del self._abandoned[next(iter(self._abandoned))]
        if notifies:
            self.notify(
                "notifications/cancelled", {"requestId": request_id, "reason": "The caller cancelled the request."}
            )

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification. Dropped after the end."""
        self._child.write(jsonrpc.notification(method, params))

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a pending request of the server."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._child.write(jsonrpc.result(request_id, result))

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Reject a pending request of the server."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._child.write(jsonrpc.error(request_id, code, message, data))

    def received(self, data: bytes) -> None:
        """Take bytes of the server's output; `FlowControl` paces their handling."""
        self._flow.received(data)

    def ended(self, failure: ServerFailed) -> None:
        """Take the server's exit. Earlier output is handled first."""
        if failure.code != "server.ended":
            self._flow.drop()
        self._flow.finish(lambda: self._finish(failure))

    def _handle(self, data: bytes) -> None:
        """Handle complete lines. Repeated `list_changed` lines in a row are handled once."""
        previous: Line | None = None
        for line in self._lines.feed(data):
            if line == previous:
                continue
            self._line(line)
            if self._failure is not None:
                return
            previous = line if isinstance(line, bytes) and len(line) < _SHORT and _CHANGED in line else None
        if self._lines.pending > FLOOD_LIMIT:
            self._child.give_up("server.flood", f"wrote {self._lines.pending} bytes without ending the line")

    def _finish(self, failure: ServerFailed) -> None:
        """Fail every pending request."""
        self._failure = failure
        self._clear_overlong()
        for line in self._lines.end():
            self._line(line)
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            if not reply.done():
                reply.set_exception(failure.copy())
                reply.exception()  # mark as retrieved for callers that no longer wait
        self._ended.set()

    def _line(self, line: Line) -> None:
        if not line or line == b"\r":
            self.garbage.add_blank()
            self._check_garbage()
            return
        if isinstance(line, OversizedLine):
            self._refuse_oversized(line)
            return
        try:
            messages = jsonrpc.read_line(line)
        except ValueError as error:
            self._not_a_message(line, error)
            return
        for message in messages:
            self._message(message)

    def _message(self, message: JsonObject) -> None:
        method: Json = message.get("method")
        if method is None:
            self._reply(message)
        elif not isinstance(method, str):
            self.dropped.malformed += 1
        elif self._is_too_much():
            self._child.give_up(
                "server.message_limit", f"sent more than {MESSAGES_LIMIT:,} messages while a call waited for its answer"
            )
        elif "id" in message:
            self._request(message, method)
        else:
            self._notification(method, jsonrpc.params_of(message))

    def _is_too_much(self) -> bool:
        """Count messages that answer no call while calls are pending, because pipes cannot attribute them to a call."""
        self._unsolicited = self._unsolicited + 1 if len(self._waiting) > len(self._open_ended) else 0
        return self._unsolicited > MESSAGES_LIMIT

    def _reply(self, message: JsonObject) -> None:
        request_id = jsonrpc.as_id(message.get("id"))
        has_result = "result" in message
        if request_id is None or has_result == ("error" in message):
            self.dropped.malformed += 1
            return
        reply = self._waiting.pop(request_id, None)
        self._open_ended.discard(request_id)
        if reply is None or reply.done():
            self._stray(request_id)
        elif has_result:
            self._unsolicited = 0
            result: Json = message["result"]
            if is_object(result):
                reply.set_result(result)
            else:
                self._fail(reply, "answered with a result that is not an object")
        else:
            reply.set_exception(jsonrpc.error_of(message["error"]))

    def _stray(self, request_id: RequestId) -> None:
        if request_id in self._abandoned:
            del self._abandoned[request_id]
            self.dropped.late += 1
        else:
            self.dropped.unknown += 1

    def _request(self, message: JsonObject, method: str) -> None:
        request_id = jsonrpc.as_id(message["id"])
        if request_id is None or request_id in self._open_requests:
            self.dropped.malformed += 1
            return
        self._open_requests.add(request_id)
        if method == "ping":
            self.answer(request_id, {})
        elif len(self._open_requests) > OPEN_REQUESTS:
            self.refuse(request_id, jsonrpc.SERVER_BUSY, f"More than {OPEN_REQUESTS} requests are open.")
        else:
            self._call_hook(self.on_request, request_id, method, jsonrpc.params_of(message))

    def _notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/progress" and self._progress_of(params):
            return
        if method == "notifications/cancelled" and (request_id := jsonrpc.as_id(params.get("requestId"))) is not None:
            self._open_requests.discard(request_id)  # the server withdrew it
        self._call_hook(self.on_notification, method, params)

    def _progress_of(self, params: JsonObject) -> bool:
        token = jsonrpc.as_id(params.get("progressToken"))
        progress = self._progress.get(token) if token is not None else None
        if progress is None:
            return False
        report = jsonrpc.progress_of(params)
        if report is None:
            self.dropped.malformed += 1
        else:
            progress.reports.append(report)
            progress.wake.set()
        return True

    def _call_hook(self, hook: Callable[..., None], *what: Json) -> None:
        try:
            hook(*what)
        except Exception:  # boundary: a failing callback must not end the connection
            logger.exception("Could not handle a message from server %s.", self.name)

    def _refuse_oversized(self, line: OversizedLine) -> None:
        if not line.over:
            self._start_overlong(line)
            return
        self._clear_overlong()
        self._fail_answered(line.head, line.tail, _TOO_LARGE)
        self.dropped.oversized += 1
        self.garbage.add_refused()
        self._check_garbage()
        logger.warning("Rejected a line of %d bytes from server %s.", line.size, self.name)

    def _start_overlong(self, line: OversizedLine) -> None:
        """Fail the call that an oversized line answers, if known. The line itself must end soon."""
        if not line.head.lstrip().startswith(_MESSAGE_STARTS):
            self._child.give_up("server.flood", f"wrote {line.size} bytes without ending the line")
            return
        self._overlong = self._loop.call_later(OVERLONG_WAIT, self._give_up_line)
        if self._fail_answered(line.head, b"", _TOO_LARGE):
            return
        calls = [request_id for request_id in self._waiting if request_id not in self._open_ended]
        if len(calls) == 1:  # no other call can be meant
            self._fail(self._waiting.pop(calls[0]), _TOO_LARGE)
            self._abandoned[calls[0]] = None

    def _give_up_line(self) -> None:
        self._overlong = None
        reason = f"wrote {self._lines.pending} bytes without ending the line in {OVERLONG_WAIT:g} seconds"
        self._child.give_up("server.flood", reason)

    def _clear_overlong(self) -> None:
        if self._overlong is not None:
            self._overlong.cancel()
            self._overlong = None

    def _not_a_message(self, line: bytes, error: ValueError) -> None:
        if self._fail_answered(line[:512], line[-512:], f"sent a reply that cannot be read ({error})"):
            self.dropped.malformed += 1
            return
        self.garbage.add(line)
        self._check_garbage()

    def _check_garbage(self) -> None:
        if self.garbage.is_too_much and self._failure is None:
            first = f', first "{self.garbage.samples[0]}"' if self.garbage.samples else ""
            amount = f"{self.garbage.lines} lines, {self.garbage.size} bytes{first}"
            self._child.give_up("server.flood", f"writes something other than messages to its output ({amount})")

    def _fail_answered(self, head: bytes, tail: bytes, reason: str) -> bool:
        """Fail only the call that a broken line answers. Returns whether it could be determined."""
        request_id = jsonrpc.answered_id(head, tail)
        reply = self._waiting.pop(request_id, None) if request_id is not None else None
        if reply is None:
            return False
        self._fail(reply, reason)
        return True

    def _fail(self, reply: "asyncio.Future[JsonObject]", reason: str) -> None:
        if not reply.done():
            reply.set_exception(self._child.failure("server.reply_invalid", reason))

    def _refuse_unknown(self, request_id: RequestId, method: str, _: JsonObject) -> None:
        self.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")


def _ignore(method: str, params: JsonObject) -> None:
    """Ignore a notification."""
