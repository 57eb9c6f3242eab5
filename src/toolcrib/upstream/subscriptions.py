"""Change notifications: resource subscriptions, log levels, and a modern server's `subscriptions/listen` request.

A legacy server sends changes unasked, and those of resources after `resources/subscribe`. A modern server sends them
while `subscriptions/listen`, which lists the subscriptions, is open. The request is therefore reopened when it ends and
when the subscriptions change.

Must never reopen the request without a growing pause.
"""

import time
from collections.abc import Callable
from typing import Final

import anyio

from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import INVALID_PARAMS, LOG_LEVELS, METHOD_NOT_FOUND
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.connection import OnNotification
from toolcrib.upstream.exchange import UpstreamRequests
from toolcrib.upstream.retries import Timing

URIS_LIMIT: Final = 1_000

_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class SubscribedResources:
    """The subscriptions of all sessions to one server: resources and log levels."""

    def __init__(self) -> None:
        self._wanted: dict[str, set[str]] = {}
        self._levels: dict[str, str] = {}
        self.changed = anyio.Event()

    @property
    def level(self) -> str | None:
        """The most verbose level that any subscriber wants."""
        return min(self._levels.values(), key=LOG_LEVELS.index, default=None)

    def set_level(self, subscriber: str, level: str) -> None:
        """Set the log level of one subscriber."""
        if level not in LOG_LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"Unknown level: {level}")
        self._levels[subscriber] = level

    @property
    def uris(self) -> tuple[str, ...]:
        """All subscribed resources."""
        return tuple(self._wanted)

    def add(self, uri: str, subscriber: str) -> bool:
        """Add a subscription. Returns True if it is the first for this resource."""
        if uri not in self._wanted and len(self._wanted) >= URIS_LIMIT:
            raise InvalidRequest(
                "request.invalid", f"More than {URIS_LIMIT} resources of one server are subscribed to."
            )
        is_first = uri not in self._wanted
        self._wanted.setdefault(uri, set()).add(subscriber)
        self._notify(is_first)
        return is_first

    def remove(self, uri: str, subscriber: str) -> bool:
        """Remove a subscription. Returns True if it was the last for this resource."""
        subscribed = self._wanted.get(uri)
        if subscribed is None:
            return False
        subscribed.discard(subscriber)
        if subscribed:
            return False
        del self._wanted[uri]
        self._notify(True)
        return True

    def forget(self, subscriber: str) -> tuple[str, ...]:
        """Remove a subscriber. Returns the resources that have no subscribers left."""
        self._levels.pop(subscriber, None)
        return tuple(uri for uri in self.uris if subscriber in self._wanted[uri] and self.remove(uri, subscriber))

    def _notify(self, is_different: bool) -> None:
        if is_different:
            self.changed.set()
            self.changed = anyio.Event()


async def keep_listening(
    exchange: UpstreamRequests,
    wanted: SubscribedResources,
    timing: Timing,
    on_notification: OnNotification,
    on_gap: Callable[[], None],
) -> None:
    """Keep a modern server's `subscriptions/listen` request open until the connection ends.

    Calls `on_gap` when changes may have been missed. Returns early if the server does not support the request.
    """
    pause = timing.rest
    while exchange.connection.failure is None:
        changed = wanted.changed
        subscribed = _subscription_params(exchange.introduction.capabilities, wanted)
        if not subscribed:
            await changed.wait()
            continue
        began = time.monotonic()
        listening = _ListenRequest(exchange, subscribed, on_notification)
        await listening.listen(changed)
        if listening.is_unknown:
            return
        if changed.is_set():
            continue
        pause = timing.rest if time.monotonic() - began >= timing.window else min(pause * 2, timing.longest_rest)
        await anyio.sleep(pause)
        on_gap()


def _subscription_params(capabilities: JsonObject, wanted: SubscribedResources) -> JsonObject:
    subscribed: JsonObject = {}
    for name, member in _LISTS.items():
        offered: Json = capabilities.get(name)
        if is_object(offered) and offered.get("listChanged"):
            subscribed[member] = True
    if wanted.uris:
        subscribed["resourceSubscriptions"] = list(wanted.uris)
    return subscribed


class _ListenRequest:
    """One `subscriptions/listen` request, open until it ends or the subscriptions change."""

    def __init__(self, exchange: UpstreamRequests, subscribed: JsonObject, on_notification: OnNotification) -> None:
        self.is_unknown = False
        self._exchange = exchange
        self._subscribed = subscribed
        self._on_notification = on_notification

    async def listen(self, changed: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:

            async def hold() -> None:
                await self._hold()
                tasks.cancel_scope.cancel()

            tasks.start_soon(hold)
            await changed.wait()
            tasks.cancel_scope.cancel()

    async def _hold(self) -> None:
        try:
            await self._exchange.ask("subscriptions/listen", {"notifications": self._subscribed}, self._on_notification)
        except ProtocolError as error:
            self.is_unknown = error.code == METHOD_NOT_FOUND
        except Unavailable:
            return  # the end of the connection is handled elsewhere
