"""Worker threads for functions that may block: plain `def` tools and factories.

Above: `scopes` and `source`. A caller that leaves must never be held up by its function, and a function left behind
must never go uncounted: a tool that hangs fills its own server's places, and nothing else.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

_PLACES = 40
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Threads:
    """Runs functions in threads, so many at a time; a thread counts until its function has really ended."""

    def __init__(self, places: int = _PLACES) -> None:
        self._places = anyio.CapacityLimiter(places)
        self._unlimited = anyio.CapacityLimiter(math.inf)

    async def run(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a function in a thread. On cancellation it is left behind and what it returns is dropped."""
        place = object()
        await self._places.acquire_on_behalf_of(place)
        tickets = [place]  # whoever takes the ticket gives the place back
        loop = asyncio.get_running_loop()

        def work() -> _T:
            ticket = tickets.pop()  # fails, unseen, if the caller left before the thread began
            try:
                return function(*args, **kwargs)
            except (StopIteration, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError) as error:
                # Thrown into the event loop these would end more than the call.
                raise RuntimeError(f"{type(error).__name__} was raised") from error
            finally:
                with suppress(RuntimeError):  # the loop may have ended before the function
                    loop.call_soon_threadsafe(self._places.release_on_behalf_of, ticket)

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
        finally:
            with suppress(IndexError):
                self._places.release_on_behalf_of(tickets.pop())
