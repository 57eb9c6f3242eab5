"""A child's pipes: non-blocking reads and writes, one system call each, and the lines in the output.

asyncio's transports cost a multiple of this per message, and hide how much is unsent. `Lines` splits output into lines
of limited length, and `Garbage` counts those that are not messages. `FlowControl` bounds the time of the event loop
that the output of one server takes from all others; HTTP connections use it too.

Must never block, or let unsent data grow without limit. Must never hold more of a line than the limit, or look at a
byte twice: endless output costs no more than reading it.
"""

import asyncio
import os
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from time import perf_counter, thread_time
from typing import Final
from weakref import WeakSet

CHUNK: Final = 65_536
UNSENT_LIMIT: Final = 64 * 1024 * 1024
LINE_LIMIT: Final = 16 * 1024 * 1024
"""Maximum length of a line; longer lines are rejected individually."""
FLOOD_LIMIT: Final = 4 * LINE_LIMIT
"""A line that has not ended after this many bytes is not a message."""
GARBAGE_LINES: Final = 1_000
GARBAGE_BYTES: Final = 1024 * 1024

SLICE: Final = 8 * 1024
"""Bytes handled between two checks of the clock."""
TURN: Final = 0.002
"""Seconds of work per iteration of the loop."""
BURST: Final = 0.05
"""Seconds of work within `WINDOW` that need no rest: enough for the response to a large request."""
WINDOW: Final = 1.0
REST: Final = 3.0
"""Seconds of rest for each second of work, times the number of busy flows."""
_LONGEST_REST = 1.0

_EDGE = 512
_SAMPLES = 5
_SAMPLE_LENGTH = 200

_busy: "WeakSet[FlowControl]" = WeakSet()


class PipeReader:
    """Passes on the data of a pipe until it ends."""

    def __init__(self, pipe: FileIO, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self.on_data = on_data
        self._on_end = on_end
        self.is_done = False
        """Whether reading has finished: the pipe has ended, or was paused for good."""
        self._is_held = False
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self.read)

    def read(self) -> bool:
        """Read one chunk. Returns False if there was none."""
        if self.is_done:
            return False
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.on_data(data)
            return True
        self.pause()
        self._on_end()
        return False

    def drain(self, limit: int) -> None:
        """Read what is in the pipe now: its writer has exited, but another process may hold the pipe open."""
        for _ in range(max(1, limit // CHUNK)):
            if not self.read():
                return

    def hold(self) -> None:
        """Stop reading until `release`: the full pipe blocks the writer."""
        if not self.is_done and not self._is_held:
            self._is_held = True
            self._loop.remove_reader(self._descriptor)

    def release(self) -> None:
        """Resume reading."""
        if not self.is_done and self._is_held:
            self._is_held = False
            self._loop.add_reader(self._descriptor, self.read)

    def pause(self) -> None:
        """Stop reading for good."""
        if not self.is_done:
            self.is_done = True
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Close the pipe."""
        self.pause()
        self._pipe.close()


class PipeWriter:
    """Writes as much as the pipe accepts, and the rest when it accepts more.

    `on_stuck` is called if the reader has accepted nothing for `timeout` seconds or too much is unsent, `on_broken` if
    it has closed its end; each at most once.
    """

    def __init__(
        self, pipe: FileIO, timeout: float, on_stuck: Callable[[], None], on_broken: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._descriptor = pipe.fileno()
        self._timeout = timeout
        self._on_stuck = on_stuck
        self._on_broken = on_broken
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        os.set_blocking(self._descriptor, False)

    def write(self, data: bytes) -> None:
        """Send data now or later. Does nothing after `close`: callers have been notified by then."""
        if self._is_closed:
            return
        if not self._unsent:
            sent = self._send(data)
            if sent == len(data) or self._is_closed:
                return
            self._unsent.append(memoryview(data)[sent:])
            self._size = len(data) - sent
            self._loop.add_writer(self._descriptor, self._send_more)
            self._watch()
            return
        self._unsent.append(memoryview(data))
        self._size += len(data)
        if self._size > UNSENT_LIMIT:
            self.close()
            self._on_stuck()

    def close(self) -> None:
        """Close the pipe; unsent data is lost."""
        if not self._is_closed:
            self._is_closed = True
            self._rest()
            self._unsent.clear()
            self._pipe.close()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            sent = os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            self._on_broken()
            return 0
        self._taken += sent
        return sent

    def _send_more(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            sent = self._send(first)
            if self._is_closed:
                return
            self._size -= sent
            if sent < len(first):
                self._unsent[0] = first[sent:]
                return
            self._unsent.popleft()
        self._rest()

    def _rest(self) -> None:
        self._loop.remove_writer(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._timeout, self._check, self._taken)

    def _check(self, taken_then: int) -> None:
        if self._taken > taken_then:
            self._watch()
            return
        self.close()
        self._on_stuck()


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line over the limit: reported once when it exceeds it, and again when it ends.

    `head` and `tail` are its edges, where the id of a reply is found; `size` is the number of bytes received.
    """

    size: int
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    over: bool


Line = bytes | OversizedLine


class Lines:
    """Splits chunks at line feeds and keeps incomplete lines."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Number of bytes received of an incomplete line."""
        return self._size

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that end in this chunk, without line feeds, including empty ones."""
        if not self._size and data.find(b"\n") == len(data) - 1 <= self._limit:
            return [data[:-1]]  # the common case: one complete message
        first, *others = data.split(b"\n")
        if not others:
            return self._keep(first)
        lines: list[Line] = [self._finish(first)]
        rest = others.pop()
        lines += others if len(data) <= self._limit else map(self._check, others)
        return lines + self._keep(rest)

    def end(self) -> list[Line]:
        """Return the incomplete last line, if any, after the pipe is closed."""
        return [self._finish(b"")] if self._size else []

    def _keep(self, part: bytes) -> list[Line]:
        before = self._size
        self._size += len(part)
        if before > self._limit:
            self._tail = (self._tail + part)[-_EDGE:]
        elif part:
            self._parts.append(part)
            if self._size > self._limit:
                self._head, self._tail = _edges(self._parts)
                self._parts.clear()
                return [OversizedLine(self._size, self._head, self._tail, over=False)]
        return []

    def _finish(self, part: bytes) -> Line:
        if not self._size:
            return self._check(part)
        size = self._size + len(part)
        skipped = self._size > self._limit
        self._size = 0
        if skipped:
            return OversizedLine(size, self._head, (self._tail + part)[-_EDGE:], over=True)
        self._parts.append(part)
        line = b"".join(self._parts)
        self._parts.clear()
        return self._check(line)

    def _check(self, line: bytes) -> Line:
        return line if len(line) <= self._limit else OversizedLine(len(line), line[:_EDGE], line[-_EDGE:], over=True)


def _edges(parts: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return both ends of the joined parts without joining them, which would block the event loop."""
    head = tail = b""
    for part in parts:
        head += part[:_EDGE]
        if len(head) >= _EDGE:
            break
    for part in reversed(parts):
        tail = part[-_EDGE:] + tail
        if len(tail) >= _EDGE:
            break
    return head[:_EDGE], tail[-_EDGE:]


@dataclass(slots=True)
class Garbage:
    """Output that is not a message: its amount, and the first lines as samples."""

    lines: int = 0
    size: int = 0
    samples: list[str] = field(default_factory=list[str])

    def add(self, line: bytes) -> None:
        """Count a line."""
        self.lines += 1
        self.size += len(line) + 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(line[:_SAMPLE_LENGTH].decode("utf-8", "replace").strip())

    def add_blank(self) -> None:
        """Count an empty line by size only: some servers end each message twice."""
        self.size += 1

    def add_refused(self) -> None:
        """Count a line that was too long, without its size: it may have been meant as a message."""
        self.lines += 1

    @property
    def is_too_much(self) -> bool:
        """Whether the output is more than an occasional stray print."""
        return self.lines > GARBAGE_LINES or self.size > GARBAGE_BYTES


class FlowControl:
    """The input from one server. `handle` takes a slice; `hold` and `release` pause and resume reading.

    Input is handled in slices. After a few milliseconds the rest waits for the next iteration of the loop and reading
    pauses, so back-pressure slows down a server that writes too fast. A busy flow rests between its turns. The more
    flows are busy, the longer each rests, so all of them together leave most of the loop to other calls. A message that
    arrives whole and alone, as nearly all do, is handled at once.

    Invariant: data is handled in the order of arrival, and all of it before the end is reported.
    """

    def __init__(
        self,
        handle: Callable[[bytes], None],
        hold: Callable[[], None],
        release: Callable[[], None],
        loop: AbstractEventLoop | None = None,
    ) -> None:
        self._handle = handle
        self._hold = hold
        self._release = release
        self._loop = loop or asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._at = 0  # offset into the first chunk
        self._next: asyncio.Handle | None = None
        self._since = 0.0
        self._worked = 0.0
        self._on_done: Callable[[], None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether received data is still unhandled."""
        return bool(self._waiting)

    def received(self, data: bytes) -> None:
        """Handle a small chunk at once, a larger one in slices over the next iterations of the loop."""
        if self._next is not None or self._waiting:
            self._waiting.append(data)
            return
        if len(data) > SLICE:
            self._waiting.append(data)
            self._turn()
            return
        began = perf_counter()
        self._handle(data)
        # On a busy machine, most of the elapsed time may belong to other processes.
        worked = min(perf_counter() - began, TURN)
        if self._note(began, worked) > BURST:
            self._rest(worked)

    def finish(self, on_done: Callable[[], None]) -> None:
        """Call `on_done` once all data is handled. No more data may follow."""
        if self._waiting:
            self._on_done = on_done
        else:
            on_done()

    def drop(self) -> None:
        """Discard unhandled data."""
        self._waiting.clear()
        self._at = 0
        self._end()

    def _turn(self) -> None:
        """Handle a few slices, then continue in the next iteration, rest or finish."""
        self._next = None
        if not self._waiting:
            self._end()
            return
        began, before = perf_counter(), thread_time()
        while self._waiting and perf_counter() - began < TURN:
            self._handle(self._take())
        worked = thread_time() - before
        if self._note(began, worked) > BURST:
            self._rest(worked)
        elif self._waiting:
            self._keep(self._loop.call_soon(self._turn))
        else:
            self._end()

    def _take(self) -> bytes:
        """Remove and return the next slice. The remainder stays queued."""
        first, at = self._waiting[0], self._at
        if len(first) - at <= SLICE:
            self._waiting.popleft()
            self._at = 0
            return first[at:] if at else first
        self._at = at + SLICE
        return first[at : self._at]

    def _rest(self, worked: float) -> None:
        _busy.add(self)
        rest = min(_LONGEST_REST, worked * REST * len(_busy))
        self._keep(self._loop.call_later(rest, self._turn))

    def _keep(self, handle: asyncio.Handle) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = handle
        self._hold()

    def _end(self) -> None:
        """Resume reading, or report the end."""
        _busy.discard(self)
        if self._next is not None:
            self._next.cancel()
            self._next = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()
        else:
            self._release()

    def _note(self, began: float, worked: float) -> float:
        """Add to the work of the current window and return its total."""
        if began - self._since > WINDOW:
            self._since, self._worked = began, 0.0
        self._worked += worked
        return self._worked
