"""Upkeep of an open connection: lists the offer, follows its changes and checks that a silent server is alive.

A modern server that sends no change notifications states with `ttlMs` how long a list is valid; after that the list is
read again.

Must never request lists more often than the configured minimum, whatever the server sends.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import anyio

from toolcrib.model.errors import Denied, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.exchange import UpstreamRequests
from toolcrib.upstream.offer import (
    KINDS,
    PROMPTS,
    RESOURCES,
    SKILLS,
    TEMPLATES,
    TOOLS,
    UNLISTED_SKILLS_LIMIT,
    Kind,
    Offer,
    read_offer,
    with_skill,
)
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.subscriptions import SubscribedResources, keep_listening

logger = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_TTL: Final = 86_400.0
"""Maximum seconds until an expiring list is read again."""

CHANGES: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": (PROMPTS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES, SKILLS),
}
_LISTED_BY: Mapping[str, Kind] = {kind.method: kind for kind in KINDS}


async def within(name: str, awaited: Awaitable[T], seconds: float) -> T:
    """Await with a timeout. Raises `server.timeout`."""
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            return await awaited
    except TimeoutError:
        if not timeout.expired():
            raise
        raise Unavailable("server.timeout", f'Server "{name}" did not answer within {seconds:g} seconds.') from None


def ttl_of(page: JsonObject, timing: Timing) -> float | None:
    """Return the seconds for which a page of a list is valid, within bounds; None without a `ttlMs`.

    A `ttlMs` of 0 means not cacheable, but most servers send it by default. Such a list is read again at the ping
    interval.
    """
    ttl_ms: Json = page.get("ttlMs")
    if not isinstance(ttl_ms, int | float) or isinstance(ttl_ms, bool) or ttl_ms < 0:
        return None
    return max(min(ttl_ms, LONGEST_TTL * 1000) / 1000, timing.shortest_ttl) if ttl_ms else timing.ping_after


class Keepalive:
    """Upkeep of one connection. `on_answer` receives the latency of each response in milliseconds."""

    def __init__(
        self,
        exchange: UpstreamRequests,
        subscribed: SubscribedResources,
        timing: Timing,
        on_answer: Callable[[float], None],
    ) -> None:
        self._exchange = exchange
        self._subscribed = subscribed
        self._timing = timing
        self._on_answer = on_answer
        self._stale: set[Kind] = set()
        self._turned_stale = anyio.Event()
        self._suspicion = anyio.Event()
        self._ttls: dict[Kind, float] = {}
        self._read_at: dict[Kind, float] = {}
        self._is_listening = False
        self._refreshing = anyio.Lock()
        self._skills_found = 0

    def changed(self, method: str) -> bool:
        """Return whether a notification announces changed lists, and schedule reading them again."""
        kinds = CHANGES.get(method, ())
        self._mark_stale(kinds)
        return bool(kinds)

    def suspect(self) -> None:
        """Trigger a liveness check."""
        self._suspicion.set()

    async def read(self, before: Offer | None, kinds: Sequence[Kind] = KINDS) -> Offer:
        """Return what the server offers now. Raises `server.timeout`, or the reason the connection ended."""
        started = time.perf_counter()
        reading = read_offer(self._ask_list, self._exchange.introduction, before, kinds)
        offer = await within(self._name, reading, self._timing.list)
        self._on_answer((time.perf_counter() - started) * 1000)
        return await offer.check_all()

    async def refresh(
        self, before: Callable[[], Offer | None], publish: Callable[[Offer], None], kinds: Sequence[Kind] = KINDS
    ) -> tuple[Offer | None, Offer]:
        """Read lists again and pass the result to `publish`; return the offers before and after. Raises like `read`.

        One at a time: a response that arrives late must not replace a newer one.
        """
        async with self._refreshing:
            known = before()
            offer = await self.read(known, kinds)
            publish(offer)
            return known, offer

    async def find_skill(self, before: Callable[[], Offer | None], publish: Callable[[Offer], None], uri: str) -> None:
        """Add a skill to the offer that the server does not list. Raises `ProtocolError` if there is no such skill."""
        async with self._refreshing:
            known = before()
            if known is None or any(entry["uri"] == uri for entry in known.skills):
                return
            if self._skills_found >= UNLISTED_SKILLS_LIMIT:
                message = f"More than {UNLISTED_SKILLS_LIMIT} skills that the server does not list were requested."
                raise Denied("limit.reached", message)
            publish(await within(self._name, with_skill(self._exchange.ask, known, uri), self._timing.list))
            self._skills_found += 1

    async def follow(
        self, before: Callable[[], Offer | None], publish: Callable[[Offer], None], on_change: Callable[[str], None]
    ) -> None:
        """Read lists again whenever they change or expire; then call `on_change` with the matching notifications."""
        while True:
            with anyio.move_on_after(self._until_expiry()):
                await self._turned_stale.wait()
            self._turned_stale = anyio.Event()
            announced, self._stale = self._stale, set()
            expired = self._expired_kinds()
            kinds = [kind for kind in KINDS if kind in announced or kind in expired]
            if not kinds:
                continue
            try:
                known, offer = await self.refresh(before, publish, kinds)
                different = {kind for kind in kinds if kind in announced or not _is_same(kind, known, offer)}
                for method in (method for method, changed in CHANGES.items() if not different.isdisjoint(changed)):
                    on_change(method)
            except ToolcribError as failure:
                logger.info("The lists of server %s could not be read again: %s", self._name, failure)
                self.suspect()
            await anyio.sleep(self._timing.refresh)

    async def _ask_list(self, method: str, params: JsonObject) -> JsonObject:
        """Request a page of a list and record its lifetime. A list expires with its shortest-lived page."""
        page = await self._exchange.ask(method, params)
        kind = _LISTED_BY.get(method)
        if kind is not None and self._exchange.introduction.era == "modern":
            ttl = ttl_of(page, self._timing)
            earlier = self._ttls.pop(kind, None) if "cursor" in params else None
            ttls = [each for each in (ttl, earlier) if each is not None]
            if ttls:
                self._ttls[kind] = min(ttls)
            else:
                self._ttls.pop(kind, None)
            self._read_at[kind] = time.monotonic()
        return page

    def _until_expiry(self) -> float | None:
        """Return the seconds until the next list expires, or None if none does."""
        ends = [self._read_at[kind] + ttl for kind, ttl in self._ttls.items()]
        return max(min(ends) - time.monotonic(), 0.0) if ends else None

    def _expired_kinds(self) -> set[Kind]:
        """Return the expired lists to read again, without those whose changes the server announces."""
        now = time.monotonic()
        ended = {kind for kind, ttl in self._ttls.items() if self._read_at[kind] + ttl <= now}
        self._read_at.update(dict.fromkeys(ended, now))  # even if reading fails: retried after another lifetime
        return {kind for kind in ended if not self._is_announced(kind)}

    def _is_announced(self, kind: Kind) -> bool:
        offered: Json = self._exchange.introduction.capabilities.get(kind.capability)
        return self._is_listening and is_object(offered) and bool(offered.get("listChanged"))

    async def listen(self) -> None:
        """Subscribe to a modern server's changes. A legacy server sends them unasked."""
        if self._exchange.introduction.era == "modern":
            on_notification, gap = self._exchange.on_event, lambda: self._mark_stale(KINDS)
            self._is_listening = True
            await keep_listening(self._exchange, self._subscribed, self._timing, on_notification, gap)
            self._is_listening = False  # the server does not support the request

    async def watch(self, is_of_use: Callable[[], bool]) -> ToolcribError | None:
        """Ping a server that has been silent for long.

        Returns why it must be given up, or None once the connection is no longer needed.
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
        """Ping the server. Raises `server.stuck` if it does not respond."""
        started = time.perf_counter()
        method = "server/discover" if self._exchange.introduction.era == "modern" else "ping"
        with anyio.move_on_after(self._timing.ping_wait) as scope, contextlib.suppress(ProtocolError):
            await self._exchange.ask(method)  # an error is a response too
        if scope.cancelled_caught:
            raise Unavailable("server.stuck", f'Server "{self._name}" stopped responding.')
        self._on_answer((time.perf_counter() - started) * 1000)

    async def restore_subscriptions(self) -> None:
        """Restore subscriptions and log level on a legacy server that was restarted."""
        for uri in self._subscribed.uris:
            await self._request_of_legacy("resources/subscribe", {"uri": uri})
        if self._subscribed.level is not None:
            await self._request_of_legacy("logging/setLevel", {"level": self._subscribed.level})

    async def drop(self, uris: Sequence[str]) -> None:
        """Unsubscribe from resources."""
        with contextlib.suppress(ToolcribError):  # a server without a connection sends no updates anyway
            for uri in uris:
                await self._request_of_legacy("resources/unsubscribe", {"uri": uri})

    async def _request_of_legacy(self, method: str, params: JsonObject) -> None:
        """Send a subscription request to a legacy server. `subscriptions/listen` covers modern ones."""
        if self._exchange.introduction.era == "legacy":
            try:
                await within(self._name, self._exchange.ask(method, params), self._timing.list)
            except ProtocolError as error:
                logger.info("Server %s refuses %s with %s: %s", self._name, method, params, error)

    def _mark_stale(self, kinds: Sequence[Kind]) -> None:
        if kinds:
            self._stale.update(kinds)
            self._turned_stale.set()

    @property
    def _name(self) -> str:
        return self._exchange.connection.name


def _is_same(kind: Kind, before: Offer | None, after: Offer) -> bool:
    return before is not None and before.list_of(kind) == after.list_of(kind)
