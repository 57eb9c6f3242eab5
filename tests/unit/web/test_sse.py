"""A feed as an event stream: its format, its replay, and every way it ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from toolcrib.base.feed import Feed
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.events import Event
from toolcrib.web.sse import EventStream, encode, resume_point
from unit.web.asgi import scope_of

pytestmark = pytest.mark.anyio


class Reader:
    """A client of a stream that records what it receives and can disconnect."""

    def __init__(self) -> None:
        self.start: Message = {}
        self.text = b""
        self.over = anyio.Event()
        self._left = anyio.Event()
        self._news = anyio.Event()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        else:
            self.text += message["body"]
        self._news.set()
        self._news = anyio.Event()

    def leave(self) -> None:
        self._left.set()

    async def until(self, text: bytes) -> None:
        with anyio.fail_after(5):
            while text not in self.text:
                await self._news.wait()

    def events(self) -> list[dict[str, Any]]:
        frames = [frame for frame in self.text.split(b"\n\n") if frame and not frame.startswith(b":")]
        return [orjson.loads(frame.partition(b"data: ")[2]) for frame in frames]


@asynccontextmanager
async def reading(stream: EventStream) -> AsyncGenerator[Reader]:
    """Read the stream while the block runs, then disconnect."""
    reader = Reader()

    async def read() -> None:
        await stream(scope_of("GET", "/api/events", []), reader.receive, reader.send)
        reader.over.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            yield reader
            reader.leave()


@given(st.integers(1, 2**53), st.text("abcdefgh_", min_size=1), st.dictionaries(st.text(), st.text()))
def test_event_has_three_lines_and_is_read_back(seq: int, kind: str, data: dict[str, str]) -> None:
    event = Event(seq, "2026-01-01T00:00:00.000+00:00", kind, dict(data))
    try:
        frame = encode(event)
    except TypeError:  # a lone surrogate is not JSON, and no event has one
        return
    number, name, payload, *end = frame.split(b"\n")
    assert (number, name, end) == (f"id: {seq}".encode(), f"event: {kind}".encode(), [b"", b""])
    assert b"\r" not in frame
    assert orjson.loads(payload.removeprefix(b"data: ")) == event.to_json()


async def test_stream_replays_and_continues_live_without_gap_or_repeat() -> None:
    feed = Feed()
    for number in range(5):
        feed.publish("notice", {"number": number})
    async with reading(EventStream(feed, 2)) as reader:
        await reader.until(b"id: 5\n")
        feed.publish("notice", {"number": 5})
        feed.publish("notice", {"number": 6})
        await reader.until(b"id: 7\n")
        assert [event["seq"] for event in reader.events()] == [3, 4, 5, 6, 7]
        assert [event["number"] for event in reader.events()] == [2, 3, 4, 5, 6]
    headers = dict(reader.start["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in headers


async def test_stream_without_a_number_begins_with_the_request() -> None:
    feed = Feed()
    feed.publish("notice", {})
    stream = EventStream(feed, None)
    feed.publish("notice", {"after": "the request"})
    async with reading(stream) as reader:
        await reader.until(b"id: 2\n")
        assert [event["seq"] for event in reader.events()] == [2]


@pytest.mark.parametrize("after", [0, 3, 11, 10**15])
async def test_expired_event_number_is_reported_as_gone(after: int) -> None:
    feed = Feed(capacity=5)
    for _ in range(10):
        feed.publish("notice", {})
    with pytest.raises(NotFound) as gone:
        EventStream(feed, after)
    assert (gone.value.code, gone.value.status) == ("feed.gone", 410)


async def test_stream_ends_when_the_feed_closes() -> None:
    feed = Feed()
    async with reading(EventStream(feed, None)) as reader:
        feed.publish("notice", {})
        feed.close()
        await reader.over.wait()
        assert len(reader.events()) == 1


async def test_stream_ends_when_its_client_disconnects() -> None:
    async with reading(EventStream(Feed(), None)) as reader:
        reader.leave()
        await reader.over.wait()


async def test_stream_ends_with_its_credential() -> None:
    ended = anyio.Event()
    async with reading(EventStream(Feed(), None, ended=ended)) as reader:
        ended.set()
        await reader.over.wait()


async def test_stream_ends_when_its_client_falls_behind() -> None:
    feed = Feed(capacity=2)
    stream = EventStream(feed, None)
    for _ in range(5):
        feed.publish("notice", {})
    async with reading(stream) as reader:
        await reader.over.wait()
        assert reader.events() == []


async def test_idle_stream_is_kept_alive_by_comments() -> None:
    async with reading(EventStream(Feed(), None, ping_seconds=0.01)) as reader:
        await reader.until(b": ping\n\n: ping\n\n")
        assert reader.events() == []


@pytest.mark.parametrize(
    ("header", "after", "expected"), [(None, None, None), (None, 7, 7), ("9", None, 9), ("9", 7, 9), ("", 7, 7)]
)
def test_last_event_id_overrides_the_query(header: str | None, after: int | None, expected: int | None) -> None:
    headers = [] if header is None else [("last-event-id", header)]
    assert resume_point(Request(scope_of("GET", "/", headers)), after) == expected


@pytest.mark.parametrize("header", ["x", "-1", "1.5", "9" * 30, "\u00b2"])
def test_invalid_event_number_is_rejected(header: str) -> None:
    with pytest.raises(InvalidRequest):
        resume_point(Request(scope_of("GET", "/", [("last-event-id", header)])), None)
