"""The response to one request: JSON, events or a rejection.

`HttpCall` is a request with its pending result, `HttpResponse` receives one attempt at it.

Must never leave a call pending after its response has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from toolcrib.base.cooperative import Pacer
from toolcrib.model import jsonrpc
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.sources import ReportProgress
from toolcrib.upstream.connection import MESSAGES_LIMIT, OnMessage
from toolcrib.upstream.http.events import EventParser, EventTooLarge, ServerSentEvent
from toolcrib.upstream.http.http_connection import Broken, ResponseHead

BODY_LIMIT: Final = 16 * 1024 * 1024
"""Maximum size of a response that is not a stream, in bytes."""

Report = tuple[float, float | None, str | None]
Deliver = Callable[[JsonObject, "HttpCall"], None]
"""Receives a message that arrived on the stream of this call."""

STREAM_LIMIT: Final = 4 * BODY_LIMIT
"""Maximum bytes on the stream of one call before its result."""

_WEB_PAGE: Final = "The address leads to a web page. Use the address of the MCP endpoint; it often ends in /mcp."
_REPORTS_KEPT = 100


class RequestRefused(Exception):
    """Raised when the status or content type shows that a response is not an answer to the request."""

    def __init__(self, head: ResponseHead, body: bytes) -> None:
        super().__init__(head.status)
        self.head = head
        self.body = body

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.head.status


class StreamEnded(Broken):
    """Raised when a stream ends properly without the result."""


class HttpCall:
    """A request with its pending result. `id` is None if there is no reply, as for a notification.

    `head` is that of the last response; `last_event_id` and `retry` (milliseconds) come from its events. An open-ended
    call is a stream that stays open as long as the connection, so its total size is unlimited.
    """

    __slots__ = ("_messages", "_reports", "_size", "_wake", "head", "id", "is_open_ended", "last_event_id", "on_event",
                 "on_message", "on_progress", "reply", "retry")  # fmt: skip

    def __init__(
        self,
        request_id: RequestId | None = None,
        on_message: OnMessage | None = None,
        on_progress: ReportProgress | None = None,
        on_event: Callable[[ServerSentEvent], None] | None = None,
        *,
        is_open_ended: bool = False,
    ) -> None:
        self.id = request_id
        self.is_open_ended = is_open_ended or request_id is None
        self._messages = self._size = 0
        self.on_message = on_message
        self.on_progress = on_progress
        self.on_event = on_event
        self.head: ResponseHead | None = None
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self._wake: asyncio.Event | None = None
        self._reports: deque[Report] | None = None
        self.renew()

    def renew(self) -> None:
        """Reset the result before another attempt."""
        self.reply: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        if self.on_progress is not None:
            wake = self._wake = asyncio.Event()
            self._reports = self._reports or deque(maxlen=_REPORTS_KEPT)
            self.reply.add_done_callback(lambda _: wake.set())

    def count(self, messages: int, size: int) -> None:
        """Count messages and bytes on the stream of this call. Raises `Broken` beyond the limits."""
        self._messages += messages
        self._size += size
        if self.is_open_ended:
            return
        if self._messages > MESSAGES_LIMIT:
            raise Broken("server.message_limit", f"sent more than {MESSAGES_LIMIT:,} messages before its answer")
        if self._size > STREAM_LIMIT:
            raise Broken("server.message_limit", f"sent more than {STREAM_LIMIT:,} bytes before its answer")

    def settle(self, result: JsonObject) -> None:
        """Set the result."""
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: Exception) -> None:
        """Set the failure."""
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # mark as retrieved for callers that no longer wait

    def report(self, report: Report) -> bool:
        """Queue a progress report, dropping the oldest if the receiver is slow. Returns False without a receiver."""
        if self._reports is None or self._wake is None:
            return False
        self._reports.append(report)
        self._wake.set()
        return True

    async def wait(self) -> JsonObject:
        """Return the result. `on_progress` is awaited in this task for each report, in order, before the result."""
        if self.on_progress is None or self._wake is None or self._reports is None:
            return await self.reply
        while True:
            await self._wake.wait()
            self._wake.clear()
            pace = Pacer()
            while self._reports:
                await self.on_progress(*self._reports.popleft())
                await pace.pause()
            if self.reply.done():
                return self.reply.result()


class HttpResponse:
    """Receives the response of one attempt for its call. With `wants_stream`, only an event stream is accepted."""

    __slots__ = ("_call", "_chunks", "_deliver", "_events", "_head", "_kind", "_reply", "_wants_stream")

    def __init__(self, deliver: Deliver, call: HttpCall, *, wants_stream: bool = False) -> None:
        self._deliver = deliver
        self._call = call
        self._reply = call.reply
        self._wants_stream = wants_stream
        self._head: ResponseHead | None = None
        self._kind = ""
        self._events: EventParser | None = None
        self._chunks: list[bytes] = []

    @property
    def is_waited_for(self) -> bool:
        """Whether the call is still pending."""
        return not self._reply.done()

    def began(self, head: ResponseHead) -> int | None:
        """Choose how to read the body, and return its maximum size."""
        self._head = self._call.head = head
        self._kind = (head.get(b"content-type") or "").partition(";")[0].strip().lower()
        if 200 <= head.status < 300 and self._kind == "text/event-stream":
            self._events = EventParser()
            self._events.last_id = self._call.last_event_id
            return None
        return BODY_LIMIT

    def received(self, chunk: bytes) -> None:
        """Handle events at once; collect any other body until it is complete."""
        if self._events is None:
            self._chunks.append(chunk)
            return
        try:
            events = self._events.feed(chunk)
        except EventTooLarge as error:
            raise Broken("server.reply_invalid", "sent an event that is too large") from error
        self._call.last_event_id = self._events.last_id
        self._call.retry = self._events.retry
        self._call.count(len(events), len(chunk))
        for event in events:
            self._event(event)

    def completed(self) -> None:
        """Settle or fail a call that is still pending."""
        call, head = self._call, self._head
        assert head is not None
        if self._events is not None:
            if call.id is None:
                call.settle({})
            else:
                self._fail(StreamEnded("server.ended", "ended its event stream without a result"))
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if not 200 <= head.status < 300 or self._wants_stream:
            self._fail(RequestRefused(head, body))
        elif call.id is None:
            call.settle({})
        else:
            self._whole(head, body)

    def broke(self, broken: Broken) -> None:
        """Fail the call."""
        self._fail(broken)

    def _event(self, event: ServerSentEvent) -> None:
        if event.kind != "message":
            if self._call.on_event is not None:
                self._call.on_event(event)
            return
        if not event.data:
            return  # the event only carried an id
        try:
            messages = jsonrpc.read_line(event.data)
        except ValueError as error:
            raise Broken("server.reply_invalid", f"sent an event that cannot be read ({error})") from error
        for message in messages:
            self._deliver(message, self._call)

    def _whole(self, head: ResponseHead, body: bytes) -> None:
        packed = head.get(b"content-encoding")
        if packed not in (None, "", "identity"):
            raise Broken("server.reply_invalid", "packed its answer though it was asked not to")
        if not body:
            raise Broken("server.reply_invalid", f"answered with HTTP {head.status} and nothing else")
        if self._kind and "json" not in self._kind:
            reason = f"answered with {ascii(self._kind)[1:-1][:60]} instead of JSON"
            hint = _WEB_PAGE if "html" in self._kind else None
            raise Broken("server.reply_invalid", reason, hint)
        try:
            messages = jsonrpc.read_line(body)
        except ValueError as error:
            raise Broken("server.reply_invalid", f"sent a reply that cannot be read ({error})") from error
        for message in messages:
            self._deliver(message, self._call)
        if not self._reply.done():
            raise Broken("server.reply_invalid", "answered something else than what it was asked")

    def _fail(self, error: Exception) -> None:
        if self._call.reply is self._reply:
            self._call.fail(error)
