"""Bounds the event loop time that one upstream's output can take from all others.

Input is handled in slices. After a few milliseconds the rest waits for the next iteration of the loop and reading
pauses, so back-pressure slows down a server that writes too fast. A busy flow rests between its turns. The more flows
are busy, the longer each rests, so all of them together leave most of the loop to other calls. A message that arrives
whole and alone, as nearly all do, is handled at once.

Invariant: data is handled in the order of arrival, and all of it before the end is reported.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final
from weakref import WeakSet

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

_busy: "WeakSet[FlowControl]" = WeakSet()


class FlowControl:
    """The input from one upstream. `handle` takes a slice; `hold` and `release` pause and resume reading."""

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
