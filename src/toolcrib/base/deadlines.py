"""Deadlines of calls, in the gate and on the connections to servers.

A single timer watches all deadlines of a `Deadlines`, since one timer or cancel scope per call costs more than deciding
on the call. Waits that are not on the path of a call use `anyio.fail_after` and `anyio.move_on_after`.

A server may ask the client of a call something while the call runs. The deadline is paused as long as one of these
requests is open, so the time a person takes to answer does not count; the sender of a request bounds that wait.

Must never cancel a task for any reason other than its deadline or `end_all`, nor extend the time a call has for itself.
"""

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

from toolcrib.model.json import JsonObject
from toolcrib.model.sources import Ask, CallContext


class Deadline:
    """A time limit for the task that started it.

    As a block, `with deadlines.start(seconds)`, it raises `TimeoutError` when it expires. Without a block, the task
    catches its cancellation, checks `has_expired`, and calls `stop` in the end.
    """

    __slots__ = ("_cancelled_before", "_deadlines", "_error", "_left", "_pauses", "_task", "ends_at", "is_over")

    def __init__(self, deadlines: "Deadlines", task: "asyncio.Task[object] | None", ends_at: float) -> None:
        assert task is not None
        self.ends_at = ends_at
        self.is_over = False
        self._deadlines = deadlines
        self._task = task
        self._cancelled_before = task.cancelling()
        self._error: Exception | None = None
        self._pauses = 0
        self._left = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.is_over and self.has_expired() and kind is asyncio.CancelledError:
            raise self._error or TimeoutError() from error

    def stop(self) -> None:
        """Stop watching the task."""
        self._deadlines.forget(self)

    def expire(self, failure: Exception | None = None) -> None:
        """Cancel the task because the time is up, or with `failure` as the error of the block."""
        self.is_over = True
        self._error = failure
        self._task.cancel()

    def has_expired(self) -> bool:
        """Return whether the deadline alone cancelled the task, and undo that cancellation. Call it once."""
        return self.is_over and self._task.uncancel() <= self._cancelled_before

    def move(self, moment: float) -> None:
        """Move the deadline to another moment of the event loop's time."""
        self.ends_at = moment
        self._deadlines.ring_by(moment)

    def pause(self) -> None:
        """Stop the countdown. Pauses nest: each one needs a `resume`."""
        if not self._pauses:
            self._left = self.ends_at - self._deadlines.now()
            self.ends_at = math.inf
        self._pauses += 1

    def resume(self) -> None:
        """End one pause."""
        self._pauses -= 1
        if not self._pauses:
            self.move(self._deadlines.now() + self._left)


class Deadlines:
    """All running deadlines."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def start(self, seconds: float) -> Deadline:
        """Start a deadline for the current task."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        deadline = Deadline(self, asyncio.current_task(loop), loop.time() + seconds)
        self._running.add(deadline)
        if deadline.ends_at < self._rings_at:
            self.ring_by(deadline.ends_at)
        return deadline

    def now(self) -> float:
        """Return the event loop's time."""
        return self._loop.time() if self._loop is not None else 0.0

    def forget(self, deadline: Deadline) -> None:
        """Drop the deadline of a task that needs it no more."""
        self._running.discard(deadline)

    def end_all(self, failure: Callable[[], Exception]) -> None:
        """End every block now, each with its own error from `failure`."""
        running, self._running = self._running, set()
        for deadline in running:
            deadline.expire(failure())

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def ring_by(self, moment: float) -> None:
        """Make sure the timer fires at this moment at the latest."""
        if moment < self._rings_at and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = moment
            self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self.now()
        for deadline in [deadline for deadline in self._running if deadline.ends_at <= now]:
            self._running.discard(deadline)
            deadline.expire()
        self.ring_by(min((deadline.ends_at for deadline in self._running), default=math.inf))


def pause_while_asking(context: CallContext, deadline: Deadline) -> CallContext:
    """Return the context with an `ask` that pauses the deadline, so a person's answer takes no time of the call.

    The sender of a request bounds the wait for its answer.
    """
    client = context.client
    if client is None or client.ask is None:
        return context
    return context._replace(client=client._replace(ask=_PausingAsk(client.ask, deadline)))


class _PausingAsk:
    """Forwards requests to the client of one call, and pauses the deadline meanwhile."""

    def __init__(self, ask: Ask, deadline: Deadline) -> None:
        self._ask = ask
        self._deadline = deadline

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        self._deadline.pause()
        try:
            return await self._ask(method, params)
        finally:
            self._deadline.resume()
