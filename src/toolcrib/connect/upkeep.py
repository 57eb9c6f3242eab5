"""What goes on while a conversation stands: its lists are read, changes followed, and silence is not trusted.

Above: `link`, in whose task group this runs. Below: `exchange`, `offer`, `listening`. It must never ask a server for
its lists more often than it may be asked, whatever the server says.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from toolcrib.connect.exchange import Exchange
from toolcrib.connect.listening import Wishes, keep_listening
from toolcrib.connect.offer import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, Offer, read_offer
from toolcrib.connect.retries import Timing
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ProtocolError

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": (PROMPTS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
}


async def within(name: str, awaited: Awaitable[T], seconds: float) -> T:
    """Wait no longer than this for something of a server. Raises `server.timeout`."""
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            return await awaited
    except TimeoutError:
        if not timeout.expired():
            raise
        raise Unavailable("server.timeout", f'Server "{name}" did not answer within {seconds:g} seconds.') from None


class Upkeep:
    """The care for one conversation. `on_answer` is told how many milliseconds an answer took."""

    def __init__(self, exchange: Exchange, wishes: Wishes, timing: Timing, on_answer: Callable[[float], None]) -> None:
        self._exchange = exchange
        self._wishes = wishes
        self._timing = timing
        self._on_answer = on_answer
        self._stale: set[Kind] = set()
        self._turned_stale = anyio.Event()
        self._suspicion = anyio.Event()

    def changed(self, method: str) -> bool:
        """Whether a notification tells of changed lists, which are then read again."""
        kinds = CHANGES.get(method, ())
        self._mark(kinds)
        return bool(kinds)

    def suspect(self) -> None:
        """The server may be gone: ask it."""
        self._suspicion.set()

    async def read(self, before: Offer | None, kinds: Sequence[Kind] = KINDS) -> Offer:
        """What the server offers now. Raises `server.timeout`, or why the conversation ended."""
        started = time.perf_counter()
        reading = read_offer(self._exchange.ask, self._exchange.greeting, before, kinds)
        offer = await within(self._name, reading, self._timing.list)
        self._on_answer((time.perf_counter() - started) * 1000)
        return await offer.looked_at()

    async def follow(
        self, before: Callable[[], Offer | None], take: Callable[[Offer], None], said: Callable[[str], None]
    ) -> None:
        """Read lists again whenever they changed; `said` is told what the server had said once that is done."""
        while True:
            await self._turned_stale.wait()
            self._turned_stale = anyio.Event()
            kinds, self._stale = [kind for kind in KINDS if kind in self._stale], set()
            try:
                take(await self.read(before(), kinds))
                for method in (method for method, changed in CHANGES.items() if changed[0] in kinds):
                    said(method)
            except ToolcribError as failure:
                logger.info("The lists of server %s could not be read again: %s", self._name, failure)
                self.suspect()
            await anyio.sleep(self._timing.refresh)

    async def listen(self) -> None:
        """Have a modern server tell of changes; a legacy one does so by itself."""
        if self._exchange.greeting.era == "modern":
            hear, gap = self._exchange.on_event, lambda: self._mark(KINDS)
            await keep_listening(self._exchange, self._wishes, self._timing, hear, gap)

    async def watch(self, is_of_use: Callable[[], bool]) -> ToolcribError | None:
        """Ask a server that has been silent for long whether it is there.

        Ends with why it has to be given up; with None when the conversation is of no use any more.
        """
        while True:
            with anyio.move_on_after(self._timing.ping_after):
                await self._suspicion.wait()
            if not is_of_use():
                return None
            is_suspect, self._suspicion = self._suspicion.is_set(), anyio.Event()
            is_idle = self._exchange.silent_for >= self._timing.ping_after and not self._exchange.is_used
            if is_suspect or is_idle:
                try:
                    await self.ping()
                except ToolcribError as failure:
                    return failure

    async def ping(self) -> None:
        """Raises `server.stuck` if no answer comes."""
        started = time.perf_counter()
        method = "server/discover" if self._exchange.greeting.era == "modern" else "ping"
        with anyio.move_on_after(self._timing.ping_wait) as scope, contextlib.suppress(ProtocolError):
            await self._exchange.ask(method)  # an error is an answer too
        if scope.cancelled_caught:
            raise Unavailable("server.stuck", f'Server "{self._name}" does not answer any more.')
        self._on_answer((time.perf_counter() - started) * 1000)

    async def tell_wishes(self) -> None:
        """A legacy server that was started anew does not know what it was to tell of."""
        for uri in self._wishes.uris:
            await self._wish("resources/subscribe", {"uri": uri})
        if self._wishes.level is not None:
            await self._wish("logging/setLevel", {"level": self._wishes.level})

    async def drop(self, uris: Sequence[str]) -> None:
        """Nobody wants to hear of these resources any more."""
        with contextlib.suppress(ToolcribError):  # then the server does not tell of anything
            for uri in uris:
                await self._wish("resources/unsubscribe", {"uri": uri})

    async def _wish(self, method: str, params: JsonObject) -> None:
        """Tell a legacy server what is wanted; a modern one reads it in the request that is held open."""
        if self._exchange.greeting.era == "legacy":
            try:
                await within(self._name, self._exchange.ask(method, params), self._timing.list)
            except ProtocolError as error:
                logger.info("Server %s refuses %s with %s: %s", self._name, method, params, error)

    def _mark(self, kinds: Sequence[Kind]) -> None:
        if kinds:
            self._stale.update(kinds)
            self._turned_stale.set()

    @property
    def _name(self) -> str:
        return self._exchange.conversation.name
