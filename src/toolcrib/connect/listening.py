"""Hearing of changes: which resources somebody wants to hear of, and the one request of a modern server that tells.

A legacy server tells by itself, of resources after it was asked to; a modern one as long as `subscriptions/listen` is
held open, with what is to be told in the request. So that is opened again when it ends and when the wishes change.

Above: `link`. Below: `exchange`. It must never open the request again without a pause that grows.
"""

import time
from collections.abc import Callable
from typing import Final

import anyio

from toolcrib.connect.conversation import OnNotification
from toolcrib.connect.exchange import Exchange
from toolcrib.connect.flights import LEVELS
from toolcrib.connect.retries import Timing
from toolcrib.errors import InvalidRequest, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import INVALID_PARAMS, METHOD_NOT_FOUND
from toolcrib.model.sources import ProtocolError

URIS_LIMIT: Final = 1_000

_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class Wishes:
    """Who wants to hear what of one server: of which resources, and messages from which level on."""

    def __init__(self) -> None:
        self._wanted: dict[str, set[str]] = {}
        self._levels: dict[str, str] = {}
        self.changed = anyio.Event()

    @property
    def level(self) -> str | None:
        """The level that serves everybody who wants messages."""
        return min(self._levels.values(), key=LEVELS.index, default=None)

    def set_level(self, who: str, level: str) -> None:
        """Note from which level on somebody wants messages."""
        if level not in LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"Unknown level: {level}")
        self._levels[who] = level

    @property
    def uris(self) -> tuple[str, ...]:
        """All resources that somebody wants to hear of."""
        return tuple(self._wanted)

    def add(self, uri: str, who: str) -> bool:
        """Note a wish; True if it is the first for this resource."""
        if uri not in self._wanted and len(self._wanted) >= URIS_LIMIT:
            raise InvalidRequest(
                "request.invalid", f"More than {URIS_LIMIT} resources of one server are subscribed to."
            )
        is_first = uri not in self._wanted
        self._wanted.setdefault(uri, set()).add(who)
        self._tell(is_first)
        return is_first

    def remove(self, uri: str, who: str) -> bool:
        """Drop a wish; True if nobody else wants to hear of this resource."""
        wishes = self._wanted.get(uri)
        if wishes is None:
            return False
        wishes.discard(who)
        if wishes:
            return False
        del self._wanted[uri]
        self._tell(True)
        return True

    def forget(self, who: str) -> tuple[str, ...]:
        """Drop all wishes of somebody; gives the resources that nobody wants to hear of any more."""
        self._levels.pop(who, None)
        return tuple(uri for uri in self.uris if who in self._wanted[uri] and self.remove(uri, who))

    def _tell(self, is_different: bool) -> None:
        if is_different:
            self.changed.set()
            self.changed = anyio.Event()


async def keep_listening(
    exchange: Exchange, wanted: Wishes, timing: Timing, hear: OnNotification, on_gap: Callable[[], None]
) -> None:
    """Hold the request of a modern server open, for as long as the conversation stands.

    `on_gap` is told when changes may have been missed. Ends for good where the server does not know the request.
    """
    pause = timing.rest
    while exchange.conversation.failure is None:
        changed = wanted.changed
        wishes = _wishes(exchange.greeting.capabilities, wanted)
        if not wishes:
            await changed.wait()
            continue
        began = time.monotonic()
        heard = _Once(exchange, wishes, hear)
        await heard.listen(changed)
        if heard.is_unknown:
            return
        if changed.is_set():
            continue
        pause = timing.rest if time.monotonic() - began >= timing.window else min(pause * 2, timing.longest_rest)
        await anyio.sleep(pause)
        on_gap()


def _wishes(capabilities: JsonObject, wanted: Wishes) -> JsonObject:
    wishes: JsonObject = {}
    for name, wish in _LISTS.items():
        offered: Json = capabilities.get(name)
        if is_object(offered) and offered.get("listChanged"):
            wishes[wish] = True
    if wanted.uris:
        wishes["resourceSubscriptions"] = list(wanted.uris)
    return wishes


class _Once:
    """The request held open once, until it ends or the wishes change."""

    def __init__(self, exchange: Exchange, wishes: JsonObject, hear: OnNotification) -> None:
        self.is_unknown = False
        self._exchange = exchange
        self._wishes = wishes
        self._hear = hear

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
            await self._exchange.ask("subscriptions/listen", {"notifications": self._wishes}, self._hear)
        except ProtocolError as error:
            self.is_unknown = error.code == METHOD_NOT_FOUND
        except Unavailable:
            return  # the conversation's own end is heard elsewhere
