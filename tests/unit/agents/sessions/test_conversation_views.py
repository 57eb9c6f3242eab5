"""Cached views of sessions: each event is read once, and memory is bounded."""

from collections.abc import AsyncIterator

import pytest

from toolcrib.agents.sessions.conversation_view import ConversationViews
from toolcrib.model.errors import NotFound
from toolcrib.model.sessions import SessionEvent

pytestmark = pytest.mark.anyio


class EventStore:
    """Stored events of some sessions, and the numbers of those that were read."""

    def __init__(self) -> None:
        self.stored: dict[str, list[SessionEvent]] = {}
        self.read: list[int] = []

    def add(self, session: str, text: str = "x") -> None:
        """Store a message."""
        events = self.stored.setdefault(session, [])
        seq = len(events) + 1
        data = {"messageId": f"m{seq}", "content": text, "queued": False}
        events.append(SessionEvent(seq, "2026-01-01T00:00:00", session, "user_message", data))

    async def after(self, session: str, seq: int) -> AsyncIterator[SessionEvent]:
        """Yield the events after a number."""
        if session not in self.stored:
            raise NotFound("session.unknown", "There is no such session.")
        for event in self.stored[session][seq:]:
            self.read.append(event.seq)
            yield event


async def test_cached_view_reads_only_new_events() -> None:
    events = EventStore()
    views = ConversationViews(events.after)
    events.add("a")
    events.add("a")
    assert len((await views.get("a")).items) == 2
    events.read.clear()
    await views.get("a")
    assert events.read == []
    events.add("a")
    assert [item.id for item in (await views.get("a")).items] == ["m1", "m2", "m3"]
    assert events.read == [3]


async def test_least_recently_read_view_is_evicted_and_rebuilt_on_demand() -> None:
    events = EventStore()
    views = ConversationViews(events.after, most_views=2)
    for session in ("a", "b", "c"):
        events.add(session)
        await views.get(session)
    events.read.clear()
    await views.get("c")
    assert events.read == []
    assert len((await views.get("a")).items) == 1
    assert events.read == [1]


async def test_oversized_view_is_not_cached() -> None:
    events = EventStore()
    views = ConversationViews(events.after, most_bytes=1000)
    events.add("a", "x" * 2000)
    for _ in range(2):
        assert len((await views.get("a")).items) == 1
    assert events.read == [1, 1]


async def test_unknown_session_is_not_cached() -> None:
    events = EventStore()
    views = ConversationViews(events.after)
    with pytest.raises(NotFound):
        await views.get("a")
    events.add("a")
    assert len((await views.get("a")).items) == 1
