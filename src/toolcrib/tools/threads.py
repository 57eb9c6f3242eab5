"""Worker threads for functions that may block: plain `def` tools and factories.

Must never delay a cancelled caller, or lose count of an abandoned function: a tool that hangs uses up the slots of its
own server only.
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
    """Runs functions in a limited number of threads; a slot is in use until its function has returned."""

    def __init__(self, places: int = _PLACES) -> None:
        self._places = anyio.CapacityLimiter(places)
        self._unlimited = anyio.CapacityLimiter(math.inf)

    async def run(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a function in a thread. On cancellation it is abandoned and its result dropped."""
        place = object()
        await self._places.acquire_on_behalf_of(place)
        tickets = [place]  # popping the ticket transfers the duty to release the slot
        loop = asyncio.get_running_loop()

        def work() -> _T:
            ticket = tickets.pop()  # raises, unnoticed, if the caller was cancelled before the thread started
            try:
                return function(*args, **kwargs)
            except (StopIteration, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError) as error:
                # Raised into the event loop, these would end more than the call.
                raise RuntimeError(f"{type(error).__name__} was raised") from error
            finally:
                with suppress(RuntimeError):  # the loop may have ended before the function
                    loop.call_soon_threadsafe(self._places.release_on_behalf_of, ticket)

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
        finally:
            with suppress(IndexError):
                self._places.release_on_behalf_of(tickets.pop())
