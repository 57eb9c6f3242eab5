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
from integration.web.talks import BOUND, Talk, frames, kind, talking
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def talk(running: Running, tmp_path: Path) -> AsyncGenerator[Talk]:
    """A crib whose sessions play scripts."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with talking(running, cwd) as talk:
        talk.runner.scripts["long"] = [
            {"blocks": [{"text": f"Step {number}."}, {"tool": "mcp__bench__echo", "input": {"text": str(number)}}]}
            for number in range(30)
        ] + [{"blocks": [{"text": "The end."}]}]
        yield talk


async def spoken(talk: Talk) -> tuple[str, list[JsonObject]]:
    """A session that has said something long, and all its events."""
    id = await talk.create(mode="acceptEdits")
    await talk.say(id, "[[script:long]]")
    return id, await talk.until_done(id)


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


async def test_every_call_is_announced_then_complete_then_answered_and_the_end_is_last(talk: Talk) -> None:
    _, events = await spoken(talk)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for call in {event["toolCallId"] for event in events if "toolCallId" in event}:
        told = [event["kind"] for event in events if event.get("toolCallId") == call]
        assert told == ["tool_call_start", "tool_call_end", "tool_result"]
    assert events[-1]["kind"] == "done"


async def test_a_reader_that_breaks_off_anywhere_goes_on_without_gap_or_repeat(talk: Talk) -> None:
    id, events = await spoken(talk)
    chance = random.Random(7)
    for by_header in (False, True):
        seen: list[JsonObject] = []
        while not seen or seen[-1]["kind"] != "done":
            cut = chance.randint(1, 25) + (seen[-1]["seq"] if seen else 0)
            last = min(cut, len(events))
            seen += await talk.until(
                id, lambda event, last=last: event["seq"] == last, seen[-1]["seq"] if seen else 0, by_header=by_header
            )
        assert seen == events


async def test_a_reader_that_comes_and_goes_while_the_agent_speaks_misses_nothing(talk: Talk) -> None:
    talk.runner.scripts["slow"] = [
        {"blocks": [{"text": "word " * 12}, {"tool": "mcp__bench__echo", "input": {"text": "x"}}], "chunk_delay_ms": 2}
        for _ in range(15)
    ] + [{"blocks": [{"text": "The end."}]}]
    id = await talk.create(mode="acceptEdits")
    await talk.say(id, "[[script:slow]]")
    chance = random.Random(11)
    seen: list[JsonObject] = []
    while not seen or seen[-1]["kind"] != "done":
        upto = chance.randint(1, 8) + (seen[-1]["seq"] if seen else 0)
        seen += await talk.until(
            id,
            lambda event, upto=upto: event["seq"] == upto or event["kind"] == "done",
            seen[-1]["seq"] if seen else 0,
        )
    assert seen == await talk.until_done(id)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))


async def test_what_the_browser_remembers_wins_over_the_address(talk: Talk) -> None:
    id, events = await spoken(talk)
    headers = {"last-event-id": str(len(events) - 1)}
    with anyio.fail_after(BOUND):
        async with talk.client.stream("GET", f"/api/sessions/{id}/events?after=0", headers=headers) as stream:
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0]) == events[-1:]
                break


async def test_without_a_number_a_stream_begins_with_the_request(talk: Talk) -> None:
    id, events = await spoken(talk)
    with anyio.fail_after(BOUND):
        async with talk.client.stream("GET", f"/api/sessions/{id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            await talk.say(id, "[[script:hello]]")
            async for piece in stream.aiter_bytes():
                assert frames(piece.rpartition(b"\n\n")[0])[0]["seq"] == events[-1]["seq"] + 1
                break


async def test_a_number_that_was_never_given_is_gone(talk: Talk) -> None:
    id, events = await spoken(talk)
    for after in (len(events) + 1, 2**52):
        problem = await talk.ask("GET", f"/api/sessions/{id}/events?after={after}", status=410)
        assert problem["code"] == "feed.gone"
    problem = await talk.ask("GET", f"/api/sessions/{id}/events?after=-1", status=422)
    assert problem["code"] == "request.invalid"
    answer = await talk.client.get(f"/api/sessions/{id}/events", headers={"last-event-id": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "request.malformed")


async def test_many_readers_see_the_same(talk: Talk) -> None:
    id = await talk.create(mode="acceptEdits")
    seen: list[list[JsonObject]] = []

    async def read() -> None:
        seen.append(await talk.until_done(id))

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(read)
            await talk.say(id, "[[script:long]]")
    assert len(seen) == 20
    assert all(each == seen[0] for each in seen)


async def test_old_events_are_read_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_crib(home) as running, talking(running, tmp_path) as talk:
        id = await talk.create()
        await talk.say(id, "[[script:hello]]")
        events = await talk.until_done(id)
    async with running_crib(home) as running, talking(running, tmp_path) as talk:
        assert await talk.until_done(id) == events
        await talk.say(id, "[[script:hello]]")
        more = await talk.until_done(id, events[-1]["seq"])
        assert more[0]["seq"] == events[-1]["seq"] + 1


async def test_a_reader_that_left_is_not_counted_any_more(talk: Talk) -> None:
    id, _ = await spoken(talk)
    log = await talk.running.holding.crib.sessions.events(id)
    await talk.until(id, kind("user_message"))
    with anyio.fail_after(BOUND):
        while log.readers:
            await anyio.lowlevel.checkpoint()


async def test_the_client_takes_a_broken_stream_up_where_it_was(talk: Talk) -> None:
    id, events = await spoken(talk)
    chance = random.Random(3)
    async with _cutting(talk.running.port, chance) as (url, cuts), ApiClient(url, talk.running.token) as client:
        read: list[SessionEvent] = []
        with anyio.fail_after(BOUND):
            async for event in client.sessions.events(id, 0):
                read.append(event)
                if event.kind == "done":
                    break
    assert [event.shape for event in read] == events
    assert len(cuts) > 2


async def test_what_json_cannot_carry_does_not_stop_the_record(talk: Talk) -> None:
    odd = {"text": "half \ud83d a sign", "times": 2**80}
    talk.runner.scripts["odd"] = [
        {"blocks": [{"tool": "mcp__bench__echo", "input": odd}]},
        {"blocks": [{"text": "It goes on."}]},
    ]
    id = await talk.create(mode="acceptEdits")
    await talk.say(id, "[[script:odd]]")
    events = await talk.until_done(id)
    call = next(filter(kind("tool_call_end"), events))
    assert call["arguments"] == {"text": "half \\ud83d a sign", "times": 2**80}
    assert next(filter(kind("tool_result"), events))["isError"]
    assert events[-1]["reason"] == "completed"
