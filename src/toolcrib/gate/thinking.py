"""Time in which a person thinks: it does not count as the tool's.

A server may ask the client of a call something while the call runs. As long as one of its questions is open, the
time-out of the call stands still; how long an answer is waited for is bounded by whoever puts the question.

Above: the gate. Below: `model`. It must never give a call more time of its own than it had.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

from toolcrib.model.json import JsonObject
from toolcrib.model.sources import Ask, CallContext


def unhurried(context: CallContext, clock: asyncio.Timeout) -> CallContext:
    """The same surroundings for a call that this time-out ends, which stands still while the client is asked."""
    client = context.client
    if client is None or client.ask is None:
        return context
    return replace(context, client=replace(client, ask=_Pausing(client.ask, clock)))


class _Pausing:
    """Asks the client of one call, and stops its clock meanwhile."""

    def __init__(self, ask: Ask, clock: asyncio.Timeout) -> None:
        self._ask = ask
        self._clock = clock
        self._open = 0
        self._left = 0.0

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        self._pause()
        try:
            return await self._ask(method, params)
        finally:
            self._resume()

    def _pause(self) -> None:
        ends_at = self._clock.when()
        if self._open == 0 and ends_at is not None:
            self._left = ends_at - asyncio.get_running_loop().time()
            self._set(None)
        self._open += 1

    def _resume(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, ends_at: float | None) -> None:
        with suppress(RuntimeError):  # the call is over, and its server still asks or is answered
            self._clock.reschedule(ends_at)
