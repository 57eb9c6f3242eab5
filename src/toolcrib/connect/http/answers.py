"""What comes back for one request: JSON, events, or a refusal.

`Call` is a request and whoever waits for it, `Answer` hears one attempt to have it answered.

Above: `requests`. Below: `connection`, `events`; `inbox` takes the messages. It must never leave a call waiting when
its answer is over.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from toolcrib.connect import wire
from toolcrib.connect.conversation import OnMessage
from toolcrib.connect.http.connection import Broken, Head
from toolcrib.connect.http.events import Event, EventParser, EventTooLarge
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ReportProgress

BODY_LIMIT: Final = 16 * 1024 * 1024
"""The most bytes an answer may have that is no stream."""

Report = tuple[float, float | None, str | None]
Deliver = Callable[[JsonObject, "Call"], None]
"""Takes a message that came on the stream of this call."""

_REPORTS_KEPT = 100


class Refused(Exception):
    """An answer that is none to the request: its status, or its kind, says so."""

    def __init__(self, head: Head, body: bytes) -> None:
        super().__init__(head.status)
        self.head = head
        self.body = body

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.head.status


class StreamEnded(Broken):
    """A stream came to its proper end, without the answer."""


class Call:
    """A request and whoever waits for it. `id` is None for what has no reply of its own, such as a notification.

    `head` is that of the last answer; `last_event_id` and `retry` (milliseconds) are what its events said.
    """

    __slots__ = ("_reports", "_wake", "head", "id", "last_event_id", "on_event", "on_message", "on_progress", "reply",
                 "retry")  # fmt: skip

    def __init__(
        self,
        request_id: RequestId | None = None,
        on_message: OnMessage | None = None,
        on_progress: ReportProgress | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.id = request_id
        self.on_message = on_message
        self.on_progress = on_progress
        self.on_event = on_event
        self.head: Head | None = None
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self._wake: asyncio.Event | None = None
        self._reports: deque[Report] | None = None
        self.renew()

    def renew(self) -> None:
        """Before an attempt: what an earlier one came to does not count."""
        self.reply: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        if self.on_progress is not None:
            wake = self._wake = asyncio.Event()
            self._reports = self._reports or deque(maxlen=_REPORTS_KEPT)
            self.reply.add_done_callback(lambda _: wake.set())

    def settle(self, result: JsonObject) -> None:
        """The result is there."""
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: Exception) -> None:
        """There will be no result."""
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # whoever waits no more has not missed anything

    def report(self, report: Report) -> bool:
        """Progress was made. A slow hearer misses the oldest; says whether there is one at all."""
        if self._reports is None or self._wake is None:
            return False
        self._reports.append(report)
        self._wake.set()
        return True

    async def wait(self) -> JsonObject:
        """The result; reports reach `on_progress` in order, in this task, before it."""
        if self.on_progress is None or self._wake is None or self._reports is None:
            return await self.reply
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._reports:
                await self.on_progress(*self._reports.popleft())
            if self.reply.done():
                return self.reply.result()


class Answer:
    """Hears what one attempt brings, and tells the call. `wants_stream` says that only events will do."""

    __slots__ = ("_call", "_chunks", "_deliver", "_events", "_head", "_kind", "_reply", "_wants_stream")

    def __init__(self, deliver: Deliver, call: Call, *, wants_stream: bool = False) -> None:
        self._deliver = deliver
        self._call = call
        self._reply = call.reply
        self._wants_stream = wants_stream
        self._head: Head | None = None
        self._kind = ""
        self._events: EventParser | None = None
        self._chunks: list[bytes] = []

    @property
    def is_waited_for(self) -> bool:
        """Whether the call still waits."""
        return not self._reply.done()

    def began(self, head: Head) -> int | None:
        """Choose how to read the body."""
        self._head = self._call.head = head
        self._kind = (head.get(b"content-type") or "").partition(";")[0].strip().lower()
        if 200 <= head.status < 300 and self._kind == "text/event-stream":
            self._events = EventParser()
            self._events.last_id = self._call.last_event_id
            return None
        return BODY_LIMIT

    def received(self, chunk: bytes) -> None:
        """Events are passed on at once, anything else when it is complete."""
        if self._events is None:
            self._chunks.append(chunk)
            return
        try:
            events = self._events.feed(chunk)
        except EventTooLarge as error:
            raise Broken("server.reply_invalid", "sent an event that is too large") from error
        self._call.last_event_id = self._events.last_id
        self._call.retry = self._events.retry
        for event in events:
            self._event(event)

    def completed(self) -> None:
        """Whoever still waits is told what this was instead of an answer."""
        call, head = self._call, self._head
        assert head is not None
        if self._events is not None:
            if call.id is None:
                call.settle({})
            else:
                self._fail(StreamEnded("server.ended", "ended the stream of its answer without a result"))
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if not 200 <= head.status < 300 or self._wants_stream:
            self._fail(Refused(head, body))
        elif call.id is None:
            call.settle({})
        else:
            self._whole(head, body)

    def broke(self, broken: Broken) -> None:
        """The answer will not come."""
        self._fail(broken)

    def _event(self, event: Event) -> None:
        if event.kind != "message":
            if self._call.on_event is not None:
                self._call.on_event(event)
            return
        if not event.data:
            return  # it only carried an id
        try:
            messages = wire.read_line(event.data)
        except ValueError as error:
            raise Broken("server.reply_invalid", f"sent an event that cannot be read ({error})") from error
        for message in messages:
            self._deliver(message, self._call)

    def _whole(self, head: Head, body: bytes) -> None:
        packed = head.get(b"content-encoding")
        if packed not in (None, "", "identity"):
            raise Broken("server.reply_invalid", "packed its answer though it was asked not to")
        if not body:
            raise Broken("server.reply_invalid", f"answered with HTTP {head.status} and nothing else")
        if self._kind and "json" not in self._kind:
            raise Broken("server.reply_invalid", f"answered with {ascii(self._kind)[1:-1][:60]} instead of JSON")
        try:
            messages = wire.read_line(body)
        except ValueError as error:
            raise Broken("server.reply_invalid", f"gave a reply that cannot be read ({error})") from error
        for message in messages:
            self._deliver(message, self._call)
        if not self._reply.done():
            raise Broken("server.reply_invalid", "answered something else than what it was asked")

    def _fail(self, error: Exception) -> None:
        if self._call.reply is self._reply:
            self._call.fail(error)
