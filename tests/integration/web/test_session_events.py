"""The events of a session as a stream: in order, resumable anywhere, for many readers, and with an end."""

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


async def spoken(sessions: SessionClient) -> tuple[str, list[JsonObject]]:
    """A session that has said something long, and all its events."""
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:long]]")
    return id, await sessions.until_done(id)


@asynccontextmanager
async def _cutting(port: int, chance: random.Random) -> AsyncGenerator[tuple[str, list[int]]]:
    """A way to the crib that breaks off after some bytes of every answer; gives its address and where it broke off."""
    cuts: list[int] = []

    async def carry(near: SocketStream) -> None:
        async with near, await anyio.connect_tcp("127.0.0.1", port) as far:
            address = f"127.0.0.1:{near.extra(SocketAttribute.local_port)}".encode()
            await far.send((await near.receive()).replace(address, f"127.0.0.1:{port}".encode()))
            left = chance.randint(1_500, 8_000)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while left > 0:
                    piece = (await far.receive())[:left]
                    left -= len(piece)
                    await near.send(piece)
                cuts.append(left)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", cuts
        tasks.cancel_scope.cancel()


async def test_every_call_is_announced_then_complete_then_answered_and_the_end_is_last(sessions: SessionClient) -> None:
    _, events = await spoken(sessions)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for call in {event["toolCallId"] for event in events if "toolCallId" in event}:
        told = [event["kind"] for event in events if event.get("toolCallId") == call]
        assert told == ["tool_call_start", "tool_call_end", "tool_result"]
    assert events[-1]["kind"] == "done"


async def test_a_reader_that_breaks_off_anywhere_goes_on_without_gap_or_repeat(sessions: SessionClient) -> None:
    id, events = await spoken(sessions)
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


async def test_a_reader_that_comes_and_goes_while_the_agent_speaks_misses_nothing(sessions: SessionClient) -> None:
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


async def test_what_the_browser_remembers_wins_over_the_address(sessions: SessionClient) -> None:
    id, events = await spoken(sessions)
    headers = {"last-event-id": str(len(events) - 1)}
    with anyio.fail_after(BOUND):
        async with sessions.client.stream("GET", f"/api/sessions/{id}/events?after=0", headers=headers) as stream:
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0]) == events[-1:]
                break


async def test_without_a_number_a_stream_begins_with_the_request(sessions: SessionClient) -> None:
    id, events = await spoken(sessions)
    with anyio.fail_after(BOUND):
        async with sessions.client.stream("GET", f"/api/sessions/{id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            await sessions.send(id, "[[script:hello]]")
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0])[0]["seq"] == events[-1]["seq"] + 1
                break


async def test_a_number_that_was_never_given_is_gone(sessions: SessionClient) -> None:
    id, events = await spoken(sessions)
    for after in (len(events) + 1, 2**52):
        problem = await sessions.request("GET", f"/api/sessions/{id}/events?after={after}", status=410)
        assert problem["code"] == "feed.gone"
    problem = await sessions.request("GET", f"/api/sessions/{id}/events?after=-1", status=422)
    assert problem["code"] == "request.invalid"
    answer = await sessions.client.get(f"/api/sessions/{id}/events", headers={"last-event-id": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "request.malformed")


async def test_many_readers_see_the_same(sessions: SessionClient) -> None:
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


async def test_old_events_are_read_after_a_restart(tmp_path: Path) -> None:
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


async def test_a_reader_that_left_is_not_counted_any_more(sessions: SessionClient) -> None:
    id, _ = await spoken(sessions)
    log = await sessions.running.holding.crib.sessions.events(id)
    await sessions.until(id, kind("user_message"))
    with anyio.fail_after(BOUND):
        while log.readers:
            await anyio.lowlevel.checkpoint()


async def test_the_client_takes_a_broken_stream_up_where_it_was(sessions: SessionClient) -> None:
    id, events = await spoken(sessions)
    chance = random.Random(3)
    async with _cutting(sessions.running.port, chance) as (url, cuts), ApiClient(url, sessions.running.token) as client:
        read: list[SessionEvent] = []
        with anyio.fail_after(BOUND):
            async for event in client.sessions.events(id, 0):
                read.append(event)
                if event.kind == "done":
                    break
    assert [event.shape for event in read] == events
    assert len(cuts) > 2


async def test_what_json_cannot_carry_does_not_stop_the_record(sessions: SessionClient) -> None:
    odd = {"text": "half \ud83d a sign", "times": 2**80}
    sessions.runner.scripts["odd"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": odd}]},
        {"blocks": [{"text": "It goes on."}]},
    ]
    id = await sessions.create(mode="acceptEdits")
    await sessions.send(id, "[[script:odd]]")
    events = await sessions.until_done(id)
    call = next(filter(kind("tool_call_end"), events))
    assert call["arguments"] == {"text": "half \\ud83d a sign", "times": 2**80}
    assert next(filter(kind("tool_result"), events))["isError"]
    assert events[-1]["reason"] == "completed"
