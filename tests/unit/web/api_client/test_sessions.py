"""Sessions in the API client: its requests, and resuming of interrupted event streams."""

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
async def responding(*answers: bytes) -> AsyncGenerator[tuple[ApiClient, list[str]]]:
    """Yield a client and its requests; each response is sent on a connection that then closes."""
    left, requests = list(answers), list[str]()

    async def answer(stream: SocketStream) -> None:
        async with stream:
            head, _, body = (await stream.receive()).partition(b"\r\n\r\n")
            requests.append(f"{head.split(b' HTTP')[0].decode()} {body.decode()}".strip())
            await stream.send(left.pop(0))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        async with ApiClient(url, "token", source="cli", cwd="/here") as client:
            with anyio.fail_after(20):
                yield client, requests
        tasks.cancel_scope.cancel()


def json_response(value: Json, status: str = "200 OK") -> bytes:
    body = b"" if value is None else orjson.dumps(value)
    head = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def stream(*frames: bytes, is_whole: bool) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in frames)
    return head + chunks + (b"0\r\n\r\n" if is_whole else b"")


async def test_list_covers_all_directories_unless_one_is_given() -> None:
    async with responding(json_response([]), json_response([])) as (client, requests):
        await client.sessions.list()
        await client.sessions.list(cwd="/there", agent="a", state="idle", limit=5, found=True)
    assert requests[0] == "GET /api/sessions?source=cli&cwd="
    assert requests[1] == "GET /api/sessions?source=cli&cwd=%2Fthere&agentId=a&state=idle&limit=5&found=true"


async def test_each_method_sends_its_request() -> None:
    answers = [
        json_response({"interrupted": True}),
        *(json_response({}) for _ in range(6)),
        json_response(None, "204 No Content"),
    ]
    async with responding(*answers) as (client, requests):
        sessions = client.sessions
        assert await sessions.interrupt("a b") is True
        await sessions.create({"title": "x"})
        await sessions.get("i")
        await sessions.send("i", "hé")
        await sessions.answer("i", "q/1", {"Which?": ["A"]})
        await sessions.change("i", {"mode": "plan"})
        await sessions.fork("i", "t")
        assert await sessions.delete("i") is None
    places = [line.replace("?source=cli&cwd=%2Fhere", "") for line in requests]
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


async def test_interrupted_stream_resumes_after_the_last_event_and_a_complete_one_ends() -> None:
    first = stream(frame(1, text="a"), frame(2, text="b", parentToolCallId="c"), is_whole=False)
    second = stream(b": ping\n\n", is_whole=False)
    third = stream(frame(3, "done", reason="completed"), is_whole=True)
    async with responding(first, second, third) as (client, requests):
        events = [event async for event in client.sessions.events(ID, 0)]
    assert events == [
        SessionEvent(1, "T", ID, "text_delta", {"text": "a"}),
        SessionEvent(2, "T", ID, "text_delta", {"text": "b"}, "c"),
        SessionEvent(3, "T", ID, "done", {"reason": "completed"}),
    ]
    assert [line.rpartition("after=")[2] for line in requests] == ["0", "2", "2"]


async def test_events_without_a_number_start_after_the_last_one() -> None:
    async with responding(json_response({"lastSeq": 41}), stream(frame(42), is_whole=True)) as (client, requests):
        assert [event.seq async for event in client.sessions.events(ID)] == [42]
    assert requests[1].endswith("after=41")


async def test_error_of_the_crib_is_raised_without_a_retry() -> None:
    problem = json_response({"code": "session.unknown", "detail": "No."}, "404 Not Found")
    async with responding(stream(frame(1), is_whole=False), problem) as (client, requests):
        with pytest.raises(NotFound):
            assert [event.seq async for event in client.sessions.events(ID, 0)]
    assert len(requests) == 2


async def test_crib_that_stays_away_is_an_error_after_several_attempts() -> None:
    async with responding(*(stream(is_whole=False) for _ in range(6))) as (client, requests):
        with pytest.raises(Unavailable):
            assert [event async for event in client.sessions.events(ID, 0)]
    assert len(requests) == 6
