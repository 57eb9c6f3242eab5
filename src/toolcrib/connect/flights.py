"""Calls under way on one conversation: whose they are, how long they may take, and what the server says beside them.

A call is given up when the server has been silent about it for too long, or when it takes too long in all. One timer
watches all of them, since a timer for each would cost more than all the rest that a call needs here.

Above: `exchange`. Below: `model`. It must never give a message to a caller that may not be the one it is for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

import anyio

from toolcrib.connect.retries import Timing
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext

logger = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_MESSAGES_KEPT = 1_000


def reaches(level: Json, wanted: str | None) -> bool:
    """Whether a message of this level is one that somebody wants who asked for that level."""
    if wanted not in LEVELS:
        return False
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)


class Flight:
    """A call under way."""

    __slots__ = (
        *("_cancelled_before", "_messages", "_task", "_telling"),
        *("context", "ends_at", "is_overdue", "questions", "since"),
    )

    def __init__(self, context: CallContext, task: "asyncio.Task[object] | None", since: float, ends_at: float) -> None:
        self.context = context
        self.since = since
        self.ends_at = ends_at
        self.is_overdue = False
        self.questions: dict[RequestId, anyio.CancelScope] | None = None
        self._messages: deque[tuple[str, JsonObject]] | None = None
        self._telling: asyncio.Lock | None = None
        self._task = task
        self._cancelled_before = task.cancelling() if task is not None else 0

    @property
    def whose(self) -> tuple[Principal, str | None]:
        """The asker, and the session if there is one."""
        client = self.context.client
        return self.context.principal, client.session if client is not None else None

    @property
    def can_answer(self) -> bool:
        """Whether there is a client that could be asked something."""
        client = self.context.client
        return client is not None and client.ask is not None

    @property
    def can_hear(self) -> bool:
        """Whether there is a client that could be told something."""
        client = self.context.client
        return client is not None and client.tell is not None

    def wants(self, level: Json) -> bool:
        """Whether the caller asked for log messages of this level."""
        client = self.context.client
        return client is not None and reaches(level, client.log_level)

    def give_up(self) -> None:
        """It took too long: the task that waits is woken."""
        self.is_overdue = True
        if self._task is not None:
            self._task.cancel()

    def was_given_up(self) -> bool:
        """Whether the task that waits was woken by `give_up` alone, which is then forgotten."""
        return self.is_overdue and self._task is not None and self._task.uncancel() <= self._cancelled_before

    def put(self, method: str, params: JsonObject) -> None:
        """Keep a message for the caller; a slow one misses the oldest."""
        if self._messages is None:
            self._messages = deque(maxlen=_MESSAGES_KEPT)
        self._messages.append((method, params))

    @property
    def has_messages(self) -> bool:
        """Whether there was ever one: the last may be on its way."""
        return self._messages is not None

    async def tell(self) -> None:
        """Pass on what is kept, in order; whoever comes second waits for the first."""
        client = self.context.client
        if self._messages is None or client is None or client.tell is None:
            return
        if self._telling is None:
            self._telling = asyncio.Lock()
        async with self._telling:
            while self._messages:
                method, params = self._messages.popleft()
                try:
                    await client.tell(method, params)
                except Exception:  # boundary: a client that does not listen must not cost the conversation
                    logger.debug("A client could not be told what a server said.", exc_info=True)


class Flights:
    """All calls under way on one conversation."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Flight] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Flight]:
        return iter(tuple(self._open.values()))

    def board(self, context: CallContext) -> Flight:
        """A call begins, in the task that this is called in."""
        now = self._loop.time()
        flight = Flight(context, asyncio.current_task(self._loop), now, now + self._timing.idle)
        self._open[id(flight)] = flight
        if self._timer is None:
            self._ring_at(flight.ends_at)
        return flight

    def leave(self, flight: Flight) -> None:
        """A call is over; what was asked on its behalf is not wanted any more."""
        del self._open[id(flight)]
        if flight.questions:
            for question in flight.questions.values():
                question.cancel()

    def prolong(self, flight: Flight) -> None:
        """The server lives: its silence is counted anew, the time in all is not."""
        if flight.questions:
            self.let_think(flight)
            return
        flight.ends_at = min(flight.since + self._timing.total, self._loop.time() + self._timing.idle)
        if flight.ends_at < self._rings_at:
            self._ring_at(flight.ends_at)

    def let_think(self, flight: Flight) -> None:
        """A person was asked, who may take longer than the server may."""
        flight.ends_at = flight.since + self._timing.total

    def left(self, flight: Flight) -> float:
        """The seconds a call has in all."""
        return max(0.0, flight.since + self._timing.total - self._loop.time())

    def newest(self) -> Flight | None:
        """The call that began last and whose client could be asked."""
        return next((flight for flight in reversed(self._open.values()) if flight.can_answer), None)

    def certain(self, *, is_private: bool) -> Flight | None:
        """The newest call that can hear, if everything under way is of one asker; on a private conversation it is."""
        newest = next((flight for flight in reversed(self._open.values()) if flight.can_hear), None)
        if newest is None or is_private:
            return newest
        return newest if all(flight.whose == newest.whose for flight in self._open.values()) else None

    def close(self) -> None:
        """The conversation is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = moment
        self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        for flight in self:
            if flight.ends_at <= now and not flight.is_overdue:
                flight.give_up()
        waiting = [flight.ends_at for flight in self if not flight.is_overdue]
        if waiting:
            self._ring_at(min(waiting))
