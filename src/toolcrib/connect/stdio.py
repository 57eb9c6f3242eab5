"""The conversation with one stdio server: requests by id, replies by exactly that id, notices both ways.

This is the road of every call, so it is lean: one future per call, no task, one dump and one parse with orjson, one
write and one read of a pipe. Replies are raw objects with all their members. `sdk` puts the official client on it.

Above: `greet`, `sdk` and the link of a server. Below: `process` for the child, `lines` and `wire` for what it says. It
must never let a reply resolve any call but its own: duplicates, foreign and look-alike ids are dropped and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from toolcrib.config.resolve import Resolved
from toolcrib.connect import wire
from toolcrib.connect.conversation import OnNotification, OnRequest
from toolcrib.connect.lines import FLOOD_LIMIT, LINE_LIMIT, Garbage, Line, Lines, Oversized
from toolcrib.connect.process import Child, Processes, ServerFailed
from toolcrib.connect.stderr import Mask
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sources import ReportProgress

logger = logging.getLogger(__name__)

OPEN_REQUESTS: Final = 100
"""How many requests a server may have open with us."""
_PROGRESS_KEPT = 100
_CHANGED = b'/list_changed"'
_SHORT = 256
_ABANDONED_KEPT = 1_000


@dataclass(slots=True)
class Dropped:
    """Messages that were not used, by kind: late replies, replies nobody waits for, and what is malformed."""

    late: int = 0
    unknown: int = 0
    malformed: int = 0
    oversized: int = 0


class _Progress:
    """What was reported for one call and not yet passed on; a slow hearer misses the oldest."""

    def __init__(self, reply: "asyncio.Future[JsonObject]") -> None:
        self.reports: deque[tuple[float, float | None, str | None]] = deque(maxlen=_PROGRESS_KEPT)
        self.wake = asyncio.Event()
        reply.add_done_callback(lambda _: self.wake.set())


@asynccontextmanager
async def open_stdio(
    processes: Processes, name: str, resolved: Resolved, mask: Mask = str
) -> AsyncGenerator["StdioConnection"]:
    """Start a server and talk to it; at the end of the block it is stopped.

    `mask` hides secrets in what it writes to standard error.
    """
    async with processes.child(name, resolved, mask) as child:
        yield StdioConnection(child)


class StdioConnection:
    """A conversation over one child's pipes. It has no task: the event loop calls it when the child says something."""

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
        self._last_id = 0
        self._waiting: dict[RequestId, asyncio.Future[JsonObject]] = {}
        self._progress: dict[RequestId, _Progress] = {}
        self._abandoned: dict[RequestId, None] = {}
        self._open_requests: set[RequestId] = set()
        self._failure: ServerFailed | None = None
        self._ended = asyncio.Event()
        child.listen(self)

    @property
    def failure(self) -> ServerFailed | None:
        """Why the conversation is over; None as long as it is not."""
        return self._failure

    async def until_ended(self) -> ServerFailed:
        """Wait for the end of the conversation: the server exited, or was given up."""
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
        """Send a request and wait for its result, given as it came.

        Raises `ProtocolError` if the server answers with an error, `ServerFailed` if it ends, cannot be heard any more
        or gives a reply that cannot be read. Being cancelled tells the server, and the late reply is passed over.
        Pipes have no headers, and cannot tell which request a notification belongs to.
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
        """Like `call`, with progress: reports reach `on_progress` in order, in this task, before the result."""
        meta: Json = params.get("_meta")
        asked = {**(meta if is_object(meta) else {}), "progressToken": request_id}
        reply = self.send(request_id, method, {**params, "_meta": asked})
        progress = self._progress[request_id] = _Progress(reply)
        try:
            while True:
                await progress.wake.wait()
                progress.wake.clear()
                while progress.reports:
                    await on_progress(*progress.reports.popleft())
                if reply.done():
                    return reply.result()
        except BaseException:
            self.abandon(request_id, reply)
            raise
        finally:
            self._progress.pop(request_id, None)

    def new_id(self) -> int:
        """An id no request of this conversation had."""
        self._last_id += 1
        return self._last_id

    def send(self, request_id: RequestId, method: str, params: JsonObject | None) -> "asyncio.Future[JsonObject]":
        """Send a request; its reply comes to the future. Whoever gives up on it calls `abandon`."""
        if self._failure is not None:
            raise self._again(self._failure)
        if request_id in self._waiting:
            raise ValueError(f"The request id {request_id!r} is in use.")
        line = wire.request(request_id, method, params)
        reply = self._waiting[request_id] = self._loop.create_future()
        self._child.write(line)
        return reply

    def abandon(self, request_id: RequestId, reply: "asyncio.Future[JsonObject]", *, tells: bool = True) -> None:
        """Wait no longer for a reply, and tell the server so. The message is queued, never waited for."""
        if reply.done() and not reply.cancelled():
            reply.exception()  # it came, and nobody wants to know how it ended
            return
        if self._waiting.pop(request_id, None) is None:
            return
        reply.cancel()
        self._abandoned[request_id] = None
        if len(self._abandoned) > _ABANDONED_KEPT:
            del self._abandoned[next(iter(self._abandoned))]
        if tells:
            self.notify("notifications/cancelled", {"requestId": request_id, "reason": "The caller took it back."})

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; after the end it is dropped."""
        self._child.write(wire.notification(method, params))

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a request of the server, if it still waits for it."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._child.write(wire.result(request_id, result))

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Refuse a request of the server, if it still waits for it."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._child.write(wire.error(request_id, code, message, data))

    def received(self, data: bytes) -> None:
        """Bytes of the server's output. That a list changed is heard once of what came together: more says nothing."""
        said: Line | None = None
        for line in self._lines.feed(data):
            if line == said:
                continue
            self._line(line)
            if self._failure is not None:
                return
            said = line if isinstance(line, bytes) and len(line) < _SHORT and _CHANGED in line else None
        if self._lines.pending > FLOOD_LIMIT:
            self._child.give_up("server.flood", f"wrote {self._lines.pending} bytes without ending the line")

    def ended(self, failure: ServerFailed) -> None:
        """The end: everybody who waits is told why."""
        self._failure = failure
        for line in self._lines.end():
            self._line(line)
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            if not reply.done():
                reply.set_exception(self._again(failure))
                reply.exception()  # whoever waits no more has not missed anything
        self._ended.set()

    def _line(self, line: Line) -> None:
        if not line or line == b"\r":
            self.garbage.add_blank()
            self._check_garbage()
            return
        if isinstance(line, Oversized):
            self._refuse_oversized(line)
            return
        try:
            messages = wire.read_line(line)
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
        elif "id" in message:
            self._request(message, method)
        else:
            self._notification(method, wire.params_of(message))

    def _reply(self, message: JsonObject) -> None:
        request_id = wire.as_id(message.get("id"))
        has_result = "result" in message
        if request_id is None or has_result == ("error" in message):
            self.dropped.malformed += 1
            return
        reply = self._waiting.pop(request_id, None)
        if reply is None or reply.done():
            self._stray(request_id)
        elif has_result:
            result: Json = message["result"]
            if is_object(result):
                reply.set_result(result)
            else:
                self._fail(reply, "answered with a result that is no object")
        else:
            reply.set_exception(wire.error_of(message["error"]))

    def _stray(self, request_id: RequestId) -> None:
        if request_id in self._abandoned:
            del self._abandoned[request_id]
            self.dropped.late += 1
        else:
            self.dropped.unknown += 1

    def _request(self, message: JsonObject, method: str) -> None:
        request_id = wire.as_id(message["id"])
        if request_id is None or request_id in self._open_requests:
            self.dropped.malformed += 1
            return
        self._open_requests.add(request_id)
        if method == "ping":
            self.answer(request_id, {})
        elif len(self._open_requests) > OPEN_REQUESTS:
            self.refuse(request_id, wire.SERVER_BUSY, f"More than {OPEN_REQUESTS} requests are open.")
        else:
            self._tell(self.on_request, request_id, method, wire.params_of(message))

    def _notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/progress" and self._progress_of(params):
            return
        if method == "notifications/cancelled" and (request_id := wire.as_id(params.get("requestId"))) is not None:
            self._open_requests.discard(request_id)  # its answer is not wanted any more
        self._tell(self.on_notification, method, params)

    def _progress_of(self, params: JsonObject) -> bool:
        token = wire.as_id(params.get("progressToken"))
        progress = self._progress.get(token) if token is not None else None
        if progress is None:
            return False
        report = wire.progress_of(params)
        if report is None:
            self.dropped.malformed += 1
        else:
            progress.reports.append(report)
            progress.wake.set()
        return True

    def _tell(self, hearer: Callable[..., None], *what: Json) -> None:
        try:
            hearer(*what)
        except Exception:  # boundary: a hearer's mistake must not cost the conversation
            logger.exception("What server %s said could not be handled.", self.name)

    def _refuse_oversized(self, line: Oversized) -> None:
        self._fail_answered(line.head, line.tail if line.over else b"", f"gave a reply of more than {LINE_LIMIT} bytes")
        if line.over:
            self.dropped.oversized += 1
            self.garbage.add_refused()
            self._check_garbage()
            logger.warning("A line of %d bytes from server %s was refused.", line.size, self.name)

    def _not_a_message(self, line: bytes, error: ValueError) -> None:
        if self._fail_answered(line[:512], line[-512:], f"gave a reply that cannot be read ({error})"):
            self.dropped.malformed += 1
            return
        self.garbage.add(line)
        self._check_garbage()

    def _check_garbage(self) -> None:
        if self.garbage.is_too_much and self._failure is None:
            first = f', first "{self.garbage.samples[0]}"' if self.garbage.samples else ""
            amount = f"{self.garbage.lines} lines, {self.garbage.size} bytes{first}"
            self._child.give_up("server.flood", f"writes what is no message to its output ({amount})")

    def _fail_answered(self, head: bytes, tail: bytes, reason: str) -> bool:
        """Fail the call that a broken line answers, if that can be told; the others go on."""
        request_id = wire.answered_id(head, tail)
        reply = self._waiting.pop(request_id, None) if request_id is not None else None
        if reply is None:
            return False
        self._fail(reply, reason)
        return True

    def _fail(self, reply: "asyncio.Future[JsonObject]", reason: str) -> None:
        if not reply.done():
            reply.set_exception(self._child.failure("server.reply_invalid", reason))

    def _refuse_unknown(self, request_id: RequestId, method: str, _: JsonObject) -> None:
        self.refuse(request_id, wire.METHOD_NOT_FOUND, f"Method not found: {method}")

    @staticmethod
    def _again(failure: ServerFailed) -> ServerFailed:
        """One exception for each who is told, since each collects its own traceback."""
        return ServerFailed(failure.code, failure.brief, failure.exited_with, failure.stderr)


def _ignore(method: str, params: JsonObject) -> None:
    """Nobody listens."""
