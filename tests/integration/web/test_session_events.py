"""The event stream of a session: ordered, resumable and shared by several readers."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute, SocketStream

from integration.web.crib import Running, running_crib
from integration.web.session_client import BOUND, SessionClient, frames, kind, open_session_client
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sessions(running: Running, tmp_path: Path) -> AsyncGenerator[SessionClient]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with open_session_client(running, cwd) as sessions:
        sessions.runner.scripts["long"] = [
            {"blocks": [{"text": f"Step {number}."}, {"tool": "mcp__bench__echo", "input": {"text": str(number)}}]}
            for number in range(30)
        ] + [{"blocks": [{"text": "The end."}]}]
        yield sessions


async def run_long_script(sessions: SessionClient) -> tuple[str, list[JsonObject]]:
    """Run a long script in a new session; return its id and all events."""
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:long]]")
    return id, await sessions.until_done(id)


@asynccontextmanager
async def _unreliable_proxy(port: int, chance: random.Random) -> AsyncGenerator[tuple[str, list[int]]]:
    """A proxy that cuts every response after some bytes; yield its address and where it cut."""
    cuts: list[int] = []

    async def carry(client: SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", port) as server:
            address = f"127.0.0.1:{client.extra(SocketAttribute.local_port)}".encode()
            await server.send((await client.receive()).replace(address, f"127.0.0.1:{port}".encode()))
            left = chance.randint(1_500, 8_000)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while left > 0:
                    piece = (await server.receive())[:left]
                    left -= len(piece)
                    await client.send(piece)
                cuts.append(left)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", cuts
        tasks.cancel_scope.cancel()


async def test_call_events_are_in_order_and_done_is_last(sessions: SessionClient) -> None:
    _, events = await run_long_script(sessions)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for call in {event["toolCallId"] for event in events if "toolCallId" in event}:
        call_events = [event["kind"] for event in events if event.get("toolCallId") == call]
        assert call_events == ["tool_call_start", "tool_call_end", "tool_result"]
    assert events[-1]["kind"] == "done"


async def test_interrupted_reader_resumes_without_gap_or_repeat(sessions: SessionClient) -> None:
    id, events = await run_long_script(sessions)
    chance = random.Random(7)
    for by_header in (False, True):
        seen: list[JsonObject] = []
        while not seen or seen[-1]["kind"] != "done":
            cut = chance.randint(1, 25) + (seen[-1]["seq"] if seen else 0)
            last = min(cut, len(events))
            seen += await sessions.until(
                id, lambda event, last=last: event["seq"] == last, seen[-1]["seq"] if seen else 0, by_header=by_header
            )
        assert seen == events


async def test_reader_that_reconnects_during_an_answer_misses_nothing(sessions: SessionClient) -> None:
    sessions.runner.scripts["slow"] = [
        {"blocks": [{"text": "word " * 12}, {"tool": "mcp__bench__echo", "input": {"text": "x"}}], "chunk_delay_ms": 2}
        for _ in range(15)
    ] + [{"blocks": [{"text": "The end."}]}]
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:slow]]")
    chance = random.Random(11)
    seen: list[JsonObject] = []
    while not seen or seen[-1]["kind"] != "done":
        upto = chance.randint(1, 8) + (seen[-1]["seq"] if seen else 0)
        seen += await sessions.until(
            id,
            lambda event, upto=upto: event["seq"] == upto or event["kind"] == "done",
            seen[-1]["seq"] if seen else 0,
        )
    assert seen == await sessions.until_done(id)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))


async def test_last_event_id_header_overrides_the_after_parameter(sessions: SessionClient) -> None:
    id, events = await run_long_script(sessions)
    headers = {"last-event-id": str(len(events) - 1)}
    with anyio.fail_after(BOUND):
        async with sessions.client.stream("GET", f"/api/sessions/{id}/events?after=0", headers=headers) as stream:
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0]) == events[-1:]
                break


async def test_stream_without_a_position_starts_with_the_request(sessions: SessionClient) -> None:
    id, events = await run_long_script(sessions)
    with anyio.fail_after(BOUND):
        async with sessions.client.stream("GET", f"/api/sessions/{id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            await sessions.send(id, "[[script:hello]]")
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0])[0]["seq"] == events[-1]["seq"] + 1
                break


async def test_invalid_event_position_is_refused(sessions: SessionClient) -> None:
    id, events = await run_long_script(sessions)
    for after in (len(events) + 1, 2**52):
        problem = await sessions.request("GET", f"/api/sessions/{id}/events?after={after}", status=410)
        assert problem["code"] == "feed.gone"
    problem = await sessions.request("GET", f"/api/sessions/{id}/events?after=-1", status=422)
    assert problem["code"] == "request.invalid"
    answer = await sessions.client.get(f"/api/sessions/{id}/events", headers={"last-event-id": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "request.malformed")


async def test_several_readers_get_the_same_events(sessions: SessionClient) -> None:
    id = await sessions.create(mode="acceptEdits")
    seen: list[list[JsonObject]] = []

    async def read() -> None:
        seen.append(await sessions.until_done(id))

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(read)
            await sessions.send(id, "[[script:long]]")
    assert len(seen) == 20
    assert all(each == seen[0] for each in seen)


async def test_old_events_are_readable_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_crib(home) as running, open_session_client(running, tmp_path) as sessions:
        id = await sessions.create()
        await sessions.send(id, "[[script:hello]]")
        events = await sessions.until_done(id)
    async with running_crib(home) as running, open_session_client(running, tmp_path) as sessions:
        assert await sessions.until_done(id) == events
        await sessions.send(id, "[[script:hello]]")
        more = await sessions.until_done(id, events[-1]["seq"])
        assert more[0]["seq"] == events[-1]["seq"] + 1


async def test_disconnected_reader_is_no_longer_counted(sessions: SessionClient) -> None:
    id, _ = await run_long_script(sessions)
    log = await sessions.running.holding.crib.sessions.events(id)
    await sessions.until(id, kind("user_message"))
    with anyio.fail_after(BOUND):
        while log.readers:
            await anyio.lowlevel.checkpoint()


async def test_api_client_resumes_a_broken_stream(sessions: SessionClient) -> None:
    id, events = await run_long_script(sessions)
    chance = random.Random(3)
    async with (
        _unreliable_proxy(sessions.running.port, chance) as (url, cuts),
        ApiClient(url, sessions.running.token) as client,
    ):
        read: list[SessionEvent] = []
        with anyio.fail_after(BOUND):
            async for event in client.sessions.events(id, 0):
                read.append(event)
                if event.kind == "done":
                    break
    assert [event.shape for event in read] == events
    assert len(cuts) > 2


async def test_invalid_unicode_and_large_integers_do_not_stop_the_event_log(sessions: SessionClient) -> None:
    unusual = {"text": "half \ud83d a sign", "times": 2**80}
    sessions.runner.scripts["odd"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": unusual}]},
        {"blocks": [{"text": "It goes on."}]},
    ]
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:odd]]")
    events = await sessions.until_done(id)
    call = next(filter(kind("tool_call_end"), events))
    assert call["arguments"] == {"text": "half \\ud83d a sign", "times": 2**80}
    assert next(filter(kind("tool_result"), events))["isError"]
    assert events[-1]["reason"] == "completed"
