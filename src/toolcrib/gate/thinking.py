"""Time in which a person thinks: it does not count as the tool's.

A server may ask the client of a call something while the call runs. As long as one of its questions is open, the
time-out of the call stands still; how long an answer is waited for is bounded by whoever puts the question.

Above: the gate. Below: `clocks`, `model`. It must never give a call more time of its own than it had.
"""

from toolcrib.gate.clocks import Clock
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import Ask, CallContext


def unhurried(context: CallContext, clock: Clock) -> CallContext:
    """The same surroundings for a call that this clock ends, which stands still while the client is asked."""
    client = context.client
    if client is None or client.ask is None:
        return context
    return context._replace(client=client._replace(ask=_Pausing(client.ask, clock)))


class _Pausing:
    """Asks the client of one call, and stops its clock meanwhile."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        self._clock.pause()
        try:
            return await self._ask(method, params)
        finally:
            self._clock.go_on()
