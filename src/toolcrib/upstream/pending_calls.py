"""Calls in flight on one connection, with their callers, deadlines and related messages.

A call times out when the server has been silent about it for too long, or when it exceeds its total time.

Must never deliver a message to a caller it may not be meant for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator

import anyio

from toolcrib.base.cooperative import Pacer
from toolcrib.base.deadlines import Deadline, Deadlines
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import reaches_level
from toolcrib.model.sources import CallContext
from toolcrib.upstream.jsonrpc import RequestId
from toolcrib.upstream.retries import Timing

logger = logging.getLogger(__name__)

_MESSAGES_KEPT = 1_000


class PendingCall:
    """A call in flight."""

    __slots__ = (
        *("_is_delivery_due", "_messages", "_delivering"),
        *("context", "deadline", "questions", "since"),
    )

    def __init__(self, context: CallContext, since: float, deadline: Deadline) -> None:
        self.context = context
        self.since = since
        self.deadline = deadline
        self.questions: dict[RequestId, anyio.CancelScope] | None = None
        self._messages: deque[tuple[str, JsonObject]] | None = None
        self._delivering: asyncio.Lock | None = None
        self._is_delivery_due = False

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
        return client is not None and reaches_level(level, client.log_level)

    def queue(self, method: str, params: JsonObject) -> bool:
        """Queue a message for the caller. Drops the oldest if the caller is slow.

        Returns whether a task must be started for `deliver`; otherwise one already started delivers this message.
        """
        if self._messages is None:
            self._messages = deque(maxlen=_MESSAGES_KEPT)
        self._messages.append((method, params))
        is_first, self._is_delivery_due = not self._is_delivery_due, True
        return is_first

    @property
    def has_messages(self) -> bool:
        """Whether any message was ever queued. The last one may still be in delivery."""
        return self._messages is not None

    async def deliver(self) -> None:
        """Deliver queued messages in order. Concurrent calls wait for each other."""
        client = self.context.client
        if self._messages is None or client is None or client.tell is None:
            return
        if self._delivering is None:
            self._delivering = asyncio.Lock()
        async with self._delivering:
            self._is_delivery_due = False
            pace = Pacer()
            while self._messages:
                method, params = self._messages.popleft()
                try:
                    await client.tell(method, params)
                except Exception:  # boundary: a failing client must not end the connection
                    logger.debug("Could not deliver a server's message to its client.", exc_info=True)
                await pace.pause()


class PendingCalls:
    """All calls in flight on one connection."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, PendingCall] = {}
        self._deadlines = Deadlines()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[PendingCall]:
        return iter(tuple(self._open.values()))

    def add(self, context: CallContext) -> PendingCall:
        """Register a call that runs in the current task."""
        deadline = self._deadlines.start(self._timing.idle)
        pending_call = PendingCall(context, deadline.ends_at - self._timing.idle, deadline)
        self._open[id(pending_call)] = pending_call
        return pending_call

    def remove(self, pending_call: PendingCall) -> None:
        """Remove a finished call and cancel the server's requests made on its behalf."""
        del self._open[id(pending_call)]
        pending_call.deadline.stop()
        if pending_call.questions:
            for question in pending_call.questions.values():
                question.cancel()

    def prolong(self, pending_call: PendingCall) -> None:
        """Restart the idle timeout after a sign of life. The total timeout is unchanged."""
        if pending_call.questions:
            self.suspend_idle(pending_call)
            return
        idle_until = self._loop.time() + self._timing.idle
        pending_call.deadline.move(min(pending_call.since + self._timing.total, idle_until))

    def suspend_idle(self, pending_call: PendingCall) -> None:
        """Suspend the idle timeout while a user is answering."""
        pending_call.deadline.move(pending_call.since + self._timing.total)

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
        """Stop watching the deadlines."""
        self._deadlines.close()
