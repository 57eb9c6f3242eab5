"""Excludes the time a person takes to answer from the timeout of a call.

A server may ask the client of a call something while the call runs. The timeout of the call is paused as long as one of
these requests is open; the sender of a request bounds the wait for its answer.

Must never extend the time a call has for itself.
"""

from toolcrib.gate.deadlines import Deadline
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import Ask, CallContext


def unhurried(context: CallContext, clock: Deadline) -> CallContext:
    """Return a context for this call whose `ask` pauses the deadline while the client is asked."""
    client = context.client
    if client is None or client.ask is None:
        return context
    return context._replace(client=client._replace(ask=_Pausing(client.ask, clock)))


class _Pausing:
    """Forwards requests to the client of one call, and pauses the deadline meanwhile."""

    def __init__(self, ask: Ask, clock: Deadline) -> None:
        self._ask = ask
        self._clock = clock

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        self._clock.pause()
        try:
            return await self._ask(method, params)
        finally:
            self._clock.go_on()
