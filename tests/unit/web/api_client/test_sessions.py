"""The client's part on sessions: what it asks for, and that a stream is taken up again where it broke off."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from toolcrib.model.errors import NotFound, Unavailable
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

ID = "11111111-2222-3333-4444-555555555555"


def frame(seq: int, kind: str = "text_delta", **data: Json) -> bytes:
    shape: JsonObject = {**data, "seq": seq, "at": "T", "sessionId": ID, "kind": kind}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind.encode(), orjson.dumps(shape))


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[tuple[ApiClient, list[str]]]:
    """A client of something that gives these answers one after the other, each on a connection that then ends."""
    left, asked = list(answers), list[str]()

    async def answer(stream: SocketStream) -> None:
        async with stream:
            head, _, body = (await stream.receive()).partition(b"\r\n\r\n")
            asked.append(f"{head.split(b' HTTP')[0].decode()} {body.decode()}".strip())
            await stream.send(left.pop(0))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        async with ApiClient(url, "token", source="cli", cwd="/here") as client:
            with anyio.fail_after(20):
                yield client, asked
        tasks.cancel_scope.cancel()


def whole(value: Json, status: str = "200 OK") -> bytes:
    body = b"" if value is None else orjson.dumps(value)
    head = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def stream(*frames: bytes, is_whole: bool) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in frames)
    return head + chunks + (b"0\r\n\r\n" if is_whole else b"")


async def test_a_list_is_of_all_directories_unless_one_is_named() -> None:
    async with answering(whole([]), whole([])) as (client, asked):
        await client.sessions.list()
        await client.sessions.list(cwd="/there", agent="a", state="idle", limit=5, found=True)
    assert asked[0] == "GET /api/sessions?source=cli&cwd="
    assert asked[1] == "GET /api/sessions?source=cli&cwd=%2Fthere&agentId=a&state=idle&limit=5&found=true"


async def test_every_request_goes_to_its_place() -> None:
    answers = [whole({"interrupted": True}), *(whole({}) for _ in range(6)), whole(None, "204 No Content")]
    async with answering(*answers) as (client, asked):
        sessions = client.sessions
        assert await sessions.interrupt("a b") is True
        await sessions.create({"title": "x"})
        await sessions.get("i")
        await sessions.send("i", "hé")
        await sessions.answer("i", "q/1", {"Which?": ["A"]})
        await sessions.change("i", {"mode": "plan"})
        await sessions.fork("i", "t")
        assert await sessions.delete("i") is None
    places = [line.replace("?source=cli&cwd=%2Fhere", "") for line in asked]
    assert places == [
        "POST /api/sessions/a%20b/interrupt",
        'POST /api/sessions {"title": "x"}',
        "GET /api/sessions/i",
        'POST /api/sessions/i/messages {"content": "h\\u00e9"}',
        'POST /api/sessions/i/questions/q%2F1 {"answers": {"Which?": ["A"]}}',
        'PATCH /api/sessions/i {"mode": "plan"}',
        'POST /api/sessions/i/fork {"title": "t"}',
        "DELETE /api/sessions/i",
    ]


async def test_a_broken_stream_goes_on_after_the_last_event_and_a_whole_one_ends() -> None:
    first = stream(frame(1, text="a"), frame(2, text="b", parentToolCallId="c"), is_whole=False)
    second = stream(b": ping\n\n", is_whole=False)
    third = stream(frame(3, "done", reason="completed"), is_whole=True)
    async with answering(first, second, third) as (client, asked):
        events = [event async for event in client.sessions.events(ID, 0)]
    assert events == [
        SessionEvent(1, "T", ID, "text_delta", {"text": "a"}),
        SessionEvent(2, "T", ID, "text_delta", {"text": "b"}, "c"),
        SessionEvent(3, "T", ID, "done", {"reason": "completed"}),
    ]
    assert [line.rpartition("after=")[2] for line in asked] == ["0", "2", "2"]


async def test_from_now_on_is_after_the_last_event_there_is() -> None:
    async with answering(whole({"lastSeq": 41}), stream(frame(42), is_whole=True)) as (client, asked):
        assert [event.seq async for event in client.sessions.events(ID)] == [42]
    assert asked[1].endswith("after=41")


async def test_what_the_crib_refuses_is_raised_at_once() -> None:
    problem = whole({"code": "session.unknown", "detail": "No."}, "404 Not Found")
    async with answering(stream(frame(1), is_whole=False), problem) as (client, asked):
        with pytest.raises(NotFound):
            assert [event.seq async for event in client.sessions.events(ID, 0)]
    assert len(asked) == 2


async def test_a_crib_that_stays_away_is_raised_after_some_tries() -> None:
    async with answering(*(stream(is_whole=False) for _ in range(6))) as (client, asked):
        with pytest.raises(Unavailable):
            assert [event async for event in client.sessions.events(ID, 0)]
    assert len(asked) == 6
