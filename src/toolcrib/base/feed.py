"""An ordered event log with followers: replays stored events, then continues live, without gaps or duplicates.

A feed has one publisher and any number of followers. The newest `capacity` events are kept in memory; a request for
older ones raises `feed.gone`. A follower that reads too slowly is closed; it reconnects with the last number it saw.

Cribs that share a database share one feed: an `EventArchive` numbers and stores the events of all of them, and every
crib follows it. Followers then get an event once it is stored, and old events come from the archive.

Must never wait for a reader.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

import anyio

from toolcrib.model.errors import NotFound
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject

Listener = Callable[[Event], None]
Mask = Callable[[str, JsonObject], JsonObject]
"""Masks the secrets in the data of an event of this kind."""
Origin = Literal["own", "remote", "all"]
UNNUMBERED = 0
"""The number of an event that the archive has not numbered yet."""


class EventArchive(Protocol):
    """Numbers and stores the events of all cribs that share a feed."""

    def add(self, event: Event) -> None:
        """Store an event soon; `Feed.adopt` receives it with its number."""
        ...

    async def catch_up(self) -> None:
        """Pass the events that are stored by now to `Feed.adopt`."""
        ...

    async def read(self, after: int) -> Sequence[Event]:
        """Return the first stored events after this number."""
        ...


def fresh_start() -> int:
    """Return a first number above all numbers of earlier processes: microseconds since 1970.

    A follower that reconnects with an old number after a restart gets `feed.gone`, never other events under numbers it
    has seen. The value stays below 2**53, the largest safe integer in JavaScript.
    """
    return int(datetime.now(UTC).timestamp() * 1_000_000)


class Feed:
    """Events in order; the newest are kept."""

    def __init__(self, *, start: int = 0, capacity: int = 10_000, mask: Mask | None = None) -> None:
        self._start = self._last = start
        self._published = 0
        self._mask = mask
        self._kept: deque[Event] = deque(maxlen=capacity)
        self._listeners: dict[object, Listener] = {}
        self._remote_listeners: dict[object, Listener] = {}
        self._archive: EventArchive | None = None
        self._news = anyio.Event()
        self._closed = False

    @property
    def last(self) -> int:
        """Number of the newest event. To follow a snapshot taken now, use `after=last`."""
        return self._last

    @property
    def published(self) -> int:
        """Number of events published so far."""
        return self._published

    def share(self, archive: EventArchive, last: int) -> None:
        """Let an archive number the events from now on. `last` is the number of its newest event."""
        self._archive = archive
        self._start = self._last = last
        self._kept.clear()

    def publish(self, kind: str, data: JsonObject) -> Event:
        """Append an event, wake the followers, and call the listeners. An archive numbers it later."""
        if self._mask is not None:
            data = self._mask(kind, data)
        self._published += 1
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._archive is None:
            event = Event(self._last + 1, at, kind, data)
            self._keep((event,))
        else:
            event = Event(UNNUMBERED, at, kind, data)
            self._archive.add(event)
        self._call(event)
        return event

    def echo(self, kind: str, data: JsonObject) -> None:
        """Call the listeners with an event that another crib has published; append it unless the feed is shared."""
        if self._archive is None:
            self.publish(kind, data)
        else:
            self._call(Event(UNNUMBERED, datetime.now(UTC).isoformat(timespec="milliseconds"), kind, data))

    def _call(self, event: Event) -> None:
        for listener in tuple(self._listeners.values()):
            listener(event)

    def adopt(self, events: Sequence[Event], remote: Sequence[Event] = ()) -> None:
        """Append events that the archive has numbered; `remote` are those of them that other cribs published."""
        self._keep(events)
        for event in remote:
            for listener in tuple(self._remote_listeners.values()):
                listener(event)

    def _keep(self, events: Sequence[Event]) -> None:
        self._kept.extend(events)
        self._last = events[-1].seq
        news, self._news = self._news, anyio.Event()
        news.set()

    def listen(self, listener: Listener, of: Origin = "own") -> Callable[[], None]:
        """Call `listener` with every future event, in the publisher's task. Returns a function that removes it.

        `of` selects the events that this crib publishes, those of other cribs on a shared feed, or both.
        """
        token = object()
        if of != "remote":
            self._listeners[token] = listener
        if of != "own":
            self._remote_listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)
            self._remote_listeners.pop(token, None)

        return stop

    def close(self) -> None:
        """Close the feed; followers end after the remaining events."""
        self._closed = True
        self._news.set()

    def check(self, after: int) -> None:
        """Raise `feed.gone` if events after this number are no longer kept, or if the number was never used.

        The old events of a shared feed are in its archive; `reach` checks those.
        """
        after = after or self._start
        if (self._is_old(after) and self._archive is None) or after > self._last:
            raise self._gone_error(after)

    async def reach(self, after: int | None) -> int | None:
        """Return the number to follow from, after reading the archive of a shared feed. Raises `feed.gone`.

        Another crib may have sent the client a number that this one has not seen yet, or one from before its start.
        """
        if self._archive is None or after is None:
            return after
        if after > self._last:
            await self._archive.catch_up()
        if after == 0:
            first = await self._archive.read(0)
            return first[0].seq - 1 if first else self._last
        if after > self._last or (self._is_old(after) and not await self._older(after)):
            raise self._gone_error(after)
        return after

    async def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield every event after this number until the feed closes. None means from now on, 0 from the beginning."""
        seen = self._last if after is None else after or self._start
        while True:
            news = self._news
            for event in await self._after(seen):
                seen = event.seq
                yield event
            if seen == self._last:
                if self._closed:
                    return
                await news.wait()

    async def _after(self, seen: int) -> Sequence[Event]:
        """Return events after this number, in order and without gaps. Raises `feed.gone`."""
        if self._archive is not None and self._is_old(seen):
            if older := await self._older(seen):
                return older
            raise self._gone_error(seen)
        self.check(seen)
        behind = self._last - seen
        return list(self._kept)[len(self._kept) - behind :] if behind else ()

    async def _older(self, after: int) -> Sequence[Event]:
        """Return events after this number from the archive; none if it no longer has all of them."""
        assert self._archive is not None
        found = [event for event in await self._archive.read(after) if event.seq <= self._last]
        return found if found and found[0].seq == after + 1 else ()

    def _is_old(self, after: int) -> bool:
        return after < self._oldest - 1

    @property
    def _oldest(self) -> int:
        return self._kept[0].seq if self._kept else self._last + 1

    def _gone_error(self, after: int) -> NotFound:
        message = f"Events after {after} are no longer kept; the oldest is {self._oldest}, the newest {self._last}."
        return NotFound("feed.gone", message)
