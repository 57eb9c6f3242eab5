"""Calls in flight on one connection, with their callers, deadlines and related messages.

A call times out when the server has been silent about it for too long, or when it exceeds its total time. A single
timer serves all calls, because one timer per call would cost more than everything else here.

Must never deliver a message to a caller it may not be meant for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

import anyio

from toolcrib.base.cooperative import Pacer
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext
from toolcrib.upstream.jsonrpc import RequestId
from toolcrib.upstream.retries import Timing

logger = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_MESSAGES_KEPT = 1_000


def reaches(level: Json, wanted: str | None) -> bool:
    """Return whether a message of `level` meets the `wanted` minimum level."""
    if wanted not in LEVELS:
        return False
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)


class PendingCall:
    """A call in flight."""

    __slots__ = (
        *("_cancelled_before", "_is_teller_due", "_messages", "_task", "_telling"),
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
        self._is_teller_due = False
        self._task = task
        self._cancelled_before = task.cancelling() if task is not None else 0

    @property
    def whose(self) -> tuple[Principal, str | None]:
        """The principal, and the MCP session if there is one."""
        client = self.context.client
        return self.context.principal, client.session if client is not None else None

    @property
    def can_answer(self) -> bool:
        """Whether the caller's client can answer requests of the server."""
        client = self.context.client
        return client is not None and client.ask is not None

    @property
    def can_hear(self) -> bool:
        """Whether the caller's client can receive notifications."""
        client = self.context.client
        return client is not None and client.tell is not None

    def wants(self, level: Json) -> bool:
        """Return whether the caller wants log messages of this level."""
        client = self.context.client
        return client is not None and reaches(level, client.log_level)

    def give_up(self) -> None:
        """Cancel the waiting task because the deadline has passed."""
        self.is_overdue = True
        if self._task is not None:
            self._task.cancel()

    def was_given_up(self) -> bool:
        """Return whether only `give_up` cancelled the waiting task, and undo that cancellation."""
        return self.is_overdue and self._task is not None and self._task.uncancel() <= self._cancelled_before

    def put(self, method: str, params: JsonObject) -> bool:
        """Queue a message for the caller. Drops the oldest if the caller is slow.

        Returns whether a task must be started for `tell`; otherwise a task already started will deliver this message.
        """
        if self._messages is None:
            self._messages = deque(maxlen=_MESSAGES_KEPT)
        self._messages.append((method, params))
        is_first, self._is_teller_due = not self._is_teller_due, True
        return is_first

    @property
    def has_messages(self) -> bool:
        """Whether any message was ever queued. The last one may still be in delivery."""
        return self._messages is not None

    async def tell(self) -> None:
        """Deliver queued messages in order. Concurrent calls wait for each other."""
        client = self.context.client
        if self._messages is None or client is None or client.tell is None:
            return
        if self._telling is None:
            self._telling = asyncio.Lock()
        async with self._telling:
            self._is_teller_due = False
            pace = Pacer()
            while self._messages:
                method, params = self._messages.popleft()
                try:
                    await client.tell(method, params)
                except Exception:  # boundary: a failing client must not end the connection
                    logger.debug("A client could not be told what a server said.", exc_info=True)
                await pace.pause()


class PendingCalls:
    """All calls in flight on one connection."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, PendingCall] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[PendingCall]:
        return iter(tuple(self._open.values()))

    def board(self, context: CallContext) -> PendingCall:
        """Register a call that runs in the current task."""
        now = self._loop.time()
        pending_call = PendingCall(context, asyncio.current_task(self._loop), now, now + self._timing.idle)
        self._open[id(pending_call)] = pending_call
        if self._timer is None:
            self._ring_at(pending_call.ends_at)
        return pending_call

    def leave(self, pending_call: PendingCall) -> None:
        """Remove a finished call and cancel the server's requests made on its behalf."""
        del self._open[id(pending_call)]
        if pending_call.questions:
            for question in pending_call.questions.values():
                question.cancel()

    def prolong(self, pending_call: PendingCall) -> None:
        """Restart the idle timeout after a sign of life. The total timeout is unchanged."""
        if pending_call.questions:
            self.let_think(pending_call)
            return
        pending_call.ends_at = min(pending_call.since + self._timing.total, self._loop.time() + self._timing.idle)
        if pending_call.ends_at < self._rings_at:
            self._ring_at(pending_call.ends_at)

    def let_think(self, pending_call: PendingCall) -> None:
        """Suspend the idle timeout while a user is answering."""
        pending_call.ends_at = pending_call.since + self._timing.total

    def left(self, pending_call: PendingCall) -> float:
        """Return the seconds left of a call's total timeout."""
        return max(0.0, pending_call.since + self._timing.total - self._loop.time())

    def newest(self) -> PendingCall | None:
        """Return the latest call whose client can answer requests."""
        return next((pending_call for pending_call in reversed(self._open.values()) if pending_call.can_answer), None)

    def certain(self, *, is_private: bool) -> PendingCall | None:
        """Return the latest call whose client can receive notifications, unless the calls have different callers.

        On a private connection all calls have the same caller.
        """
        newest = next((pending_call for pending_call in reversed(self._open.values()) if pending_call.can_hear), None)
        if newest is None or is_private:
            return newest
        return newest if all(pending_call.whose == newest.whose for pending_call in self._open.values()) else None

    def close(self) -> None:
        """Cancel the timer."""
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
        for pending_call in self:
            if pending_call.ends_at <= now and not pending_call.is_overdue:
                pending_call.give_up()
        waiting = [pending_call.ends_at for pending_call in self if not pending_call.is_overdue]
        if waiting:
            self._ring_at(min(waiting))
