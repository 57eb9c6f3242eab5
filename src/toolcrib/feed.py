"""An ordered log that can be followed: replay what is kept, then go on live, without gap or repeat.

One feed has one writer side (`publish`) and any number of followers. The newest `capacity` events are kept in memory;
who asks for older ones is told that they are gone. A follower that reads too slowly is ended rather than waited for:
it reconnects with the last number it saw.

Above: `server.sse` and the console follow it. Below: `model.events`. It must never wait for a reader.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import anyio

from toolcrib.errors import NotFound
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject

Listener = Callable[[Event], None]


def fresh_start() -> int:
    """A first number above every number an earlier process can have given: microseconds since 1970.

    A follower that reconnects after a restart with an old number is told that it is gone, never handed other events
    under numbers it has seen. The value stays below 2**53, which JavaScript can count to.
    """
    return int(datetime.now(UTC).timestamp() * 1_000_000)


class Feed:
    """Events in order, the newest kept."""

    def __init__(self, *, start: int = 0, capacity: int = 10_000) -> None:
        self._start = self._last = start
        self._kept: deque[Event] = deque(maxlen=capacity)
        self._listeners: dict[object, Listener] = {}
        self._news = anyio.Event()
        self._closed = False

    @property
    def last(self) -> int:
        """Number of the newest event; a snapshot taken now is followed with `after=last`."""
        return self._last

    def publish(self, kind: str, data: JsonObject) -> Event:
        """Append one event, wake the followers, tell the listeners."""
        self._last += 1
        event = Event(self._last, datetime.now(UTC).isoformat(timespec="milliseconds"), kind, data)
        self._kept.append(event)
        news, self._news = self._news, anyio.Event()
        news.set()
        for listener in tuple(self._listeners.values()):
            listener(event)
        return event

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on, on the publisher's task; returns how to stop."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def close(self) -> None:
        """End every follower after what it still has to read."""
        self._closed = True
        self._news.set()

    def check(self, after: int) -> None:
        """Raise `feed.gone` if events after this number are not all kept, or if it was never given."""
        after = after or self._start
        oldest = self._kept[0].seq if self._kept else self._last + 1
        if after < oldest - 1 or after > self._last:
            message = f"Events after {after} are not kept; the oldest is {oldest}, the newest {self._last}."
            raise NotFound("feed.gone", message)

    async def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Every event after this number, until the feed closes: None means from now on, 0 from the beginning."""
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
