"""How long calls may take: one timer watches all of them, since a timer for each would cost more than deciding on it.

Above: the gate. Below: asyncio. It must never end a task for anything but its time.
"""

import asyncio
import math
from types import TracebackType
from typing import Self


class Clock:
    """The time that a block may take: `with clocks.start(seconds)`. After it the block ends in `TimeoutError`."""

    __slots__ = ("_cancelled_before", "_clocks", "_is_over", "_left", "_pauses", "_task", "ends_at")

    def __init__(self, clocks: "Clocks", task: "asyncio.Task[object] | None", ends_at: float) -> None:
        assert task is not None
        self.ends_at = ends_at
        self._clocks = clocks
        self._task = task
        self._cancelled_before = task.cancelling()
        self._is_over = False
        self._pauses = 0
        self._left = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clocks.forget(self)
        if self._is_over and self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """The time is over: the task is woken."""
        self._is_over = True
        self._task.cancel()

    def pause(self) -> None:
        """Stand still, until as many `go_on` have come."""
        if not self._pauses:
            self._left = self.ends_at - self._clocks.now()
            self.ends_at = math.inf
        self._pauses += 1

    def go_on(self) -> None:
        """One pause is over."""
        self._pauses -= 1
        if not self._pauses:
            self.ends_at = self._clocks.now() + self._left
            self._clocks.ring_by(self.ends_at)


class Clocks:
    """All clocks that run."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Clock] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def start(self, seconds: float) -> Clock:
        """A clock for the task that this is called in."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        clock = Clock(self, asyncio.current_task(loop), loop.time() + seconds)
        self._running.add(clock)
        if clock.ends_at < self._rings_at:
            self.ring_by(clock.ends_at)
        return clock

    def now(self) -> float:
        """The loop's own time."""
        return self._loop.time() if self._loop is not None else 0.0

    def forget(self, clock: Clock) -> None:
        """The block of this clock has ended."""
        self._running.discard(clock)

    def ring_by(self, moment: float) -> None:
        """Look at all clocks at this moment at the latest."""
        if moment < self._rings_at and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = moment
            self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self.now()
        for clock in [clock for clock in self._running if clock.ends_at <= now]:
            self._running.discard(clock)
            clock.end()
        self.ring_by(min((clock.ends_at for clock in self._running), default=math.inf))
