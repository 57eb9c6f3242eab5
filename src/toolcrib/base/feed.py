"""An ordered event log with followers: replays stored events, then continues live, without gaps or duplicates.

A feed has one publisher and any number of followers. The newest `capacity` events are kept in memory; a request for
older ones raises `feed.gone`. A follower that reads too slowly is closed; it reconnects with the last number it saw.

Must never wait for a reader.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import anyio

from toolcrib.model.errors import NotFound
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject

Listener = Callable[[Event], None]
Mask = Callable[[str, JsonObject], JsonObject]
"""Masks the secrets in the data of an event of this kind."""


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
        self._mask = mask
        self._kept: deque[Event] = deque(maxlen=capacity)
        self._listeners: dict[object, Listener] = {}
        self._news = anyio.Event()
        self._closed = False

    @property
    def last(self) -> int:
        """Number of the newest event. To follow a snapshot taken now, use `after=last`."""
        return self._last

    @property
    def published(self) -> int:
        """Number of events published so far."""
        return self._last - self._start

    def publish(self, kind: str, data: JsonObject) -> Event:
        """Append an event, wake the followers, and call the listeners."""
        if self._mask is not None:
            data = self._mask(kind, data)
        self._last += 1
        event = Event(self._last, datetime.now(UTC).isoformat(timespec="milliseconds"), kind, data)
        self._kept.append(event)
        news, self._news = self._news, anyio.Event()
        news.set()
        for listener in tuple(self._listeners.values()):
            listener(event)
        return event

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every future event, in the publisher's task. Returns a function that removes it."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def close(self) -> None:
        """Close the feed; followers end after the remaining events."""
        self._closed = True
        self._news.set()

    def check(self, after: int) -> None:
        """Raise `feed.gone` if events after this number are no longer kept, or if the number was never used."""
        after = after or self._start
        oldest = self._kept[0].seq if self._kept else self._last + 1
        if after < oldest - 1 or after > self._last:
            message = f"Events after {after} are no longer kept; the oldest is {oldest}, the newest {self._last}."
            raise NotFound("feed.gone", message)

    async def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield every event after this number until the feed closes. None means from now on, 0 from the beginning."""
        seen = self._last if after is None else after or self._start
        while True:
            self.check(seen)
            news = self._news
            behind = self._last - seen
            for event in list(self._kept)[len(self._kept) - behind :] if behind else ():
                seen = event.seq
                yield event
            if seen == self._last:
                if self._closed:
                    return
                await news.wait()
