"""An incremental parser for server-sent events.

Must never buffer more than one event, nor more of it than the limit.
"""

import re
from dataclasses import dataclass
from typing import Final

EVENT_LIMIT: Final = 16 * 1024 * 1024
"""Maximum size of one event in bytes."""

_BOM = b"\xef\xbb\xbf"
_ENDS = (b"\n", b"\r")
_ID = re.compile(rb"[\t\x20-\x7e\x80-\xff]{0,4096}")  # ids that can be sent back in a header; others are ignored


class EventTooLarge(ValueError):
    """Raised when an event exceeds the limit."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `kind` is `message` if the event names no type."""

    kind: str
    data: bytes


class EventParser:
    """Parses chunks of a stream into events.

    `last_id` (one character per byte) and `retry` (milliseconds) are the latest values the stream has set.
    """

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self.last_id: str | None = None
        self.retry: int | None = None
        self._limit = limit
        self._is_first_line = True
        self._ended_with_cr = False
        self._pieces: list[bytes] = []  # of an incomplete line
        self._data: list[bytes] = []
        self._kind = b""
        self._next_id: str | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that this chunk completes. Raises `EventTooLarge`, after which the stream is unusable."""
        if self._ended_with_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF
            self._ended_with_cr = False
        if not chunk:
            return []
        self._ended_with_cr = chunk.endswith(b"\r")
        events: list[ServerSentEvent] = []
        lines = chunk.splitlines(keepends=True)
        rest = b"" if lines[-1].endswith(_ENDS) else lines.pop()
        for line in lines:
            if self._pieces:
                self._size -= sum(map(len, self._pieces))
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
        if rest:
            self._pieces.append(rest)
            self._grow(len(rest))
        return events

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._grow(len(value) + 1)
        elif name == b"event":
            self._kind = value
        elif name == b"id" and _ID.fullmatch(value):
            self._next_id = value.decode("latin-1")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        if self._next_id is not None:
            self.last_id = self._next_id
        kind, self._kind = self._kind, b""
        if not self._data:
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data = []
        self._size = 0
        return ServerSentEvent(kind.decode("utf-8", "replace") if kind else "message", data)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLarge(f"An event is larger than {self._limit} bytes.")
