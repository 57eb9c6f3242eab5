"""Conversations with servers that do not behave: each fault stays with its own call, or ends its own server only."""

import resource
import time

import anyio
import pytest

from integration.upstream.stdio.harness import HELLO, call, talk, upstream
from loop_turns import counted_turns
from toolcrib.base.processes.process import Processes, ServerFailed
from toolcrib.base.processes.stderr import STDERR_LIMIT
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.upstream import stdio
from toolcrib.upstream.handshake import open_initialized, probe
from toolcrib.upstream.stdio import StdioConnection, open_stdio

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("step", ["start", "discover", "initialize"])
async def test_an_exit_during_the_greeting_is_told_with_code_and_last_words(processes: Processes, step: str) -> None:
    with anyio.fail_after(10), pytest.raises(ServerFailed) as caught:
        async with open_stdio(processes, "exits_early", upstream("exits_early", step)) as connection:
            await probe(connection, HELLO)
    assert caught.value.code == "server.ended"
    assert caught.value.exited_with == 3
    assert 'Server "exits_early" ended with exit code 3.' in caught.value.message
    assert f"I leave at {step}" in caught.value.message


async def test_a_server_that_ends_on_the_unknown_question_is_greeted_in_the_old_way(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_initialized(processes, "exits_early", upstream("exits_early", "discover"), HELLO) as (
            _,
            introduction,
        ):
            assert introduction.era == "legacy"


@pytest.mark.parametrize(("era", "version"), [("modern", "2026-07-28"), ("legacy", "2025-03-26")])
async def test_a_refusal_that_names_a_known_version_is_followed_by_one_request_with_it(
    processes: Processes, era: str, version: str
) -> None:
    with anyio.fail_after(10):
        async with open_initialized(processes, "version_negotiation", upstream("version_negotiation", era), HELLO) as (
            _,
            introduction,
        ):
            assert (introduction.era, introduction.version) == (era, version)


async def test_an_exit_during_calls_fails_all_of_them_at_once(processes: Processes) -> None:
    failures: list[ServerFailed] = []
    hidden = "***"

    async def one() -> None:
        with pytest.raises(ServerFailed) as caught:
            await call(connection)
        failures.append(caught.value)

    def mask(line: str) -> str:
        return line.replace("hunter2", hidden)

    with anyio.fail_after(10):
        async with open_stdio(processes, "exits_early", upstream("exits_early", "call"), mask) as connection:
            await probe(connection, HELLO, era="legacy")
            with anyio.fail_after(3):
                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(one)
            with pytest.raises(ServerFailed):
                await call(connection)
            assert (await connection.until_ended()).exited_with == 3
    assert {failure.exited_with for failure in failures} == {3}
    assert all("token=***" in failure.message and "hunter2" not in failure.message for failure in failures)
    assert len({id(failure) for failure in failures}) == 10


async def test_a_reply_right_before_the_exit_counts(processes: Processes) -> None:
    with anyio.fail_after(10):
        for step, expected in (
            ("after", {"content": [{"type": "text", "text": "done"}]}),
            ("unterminated", {"last": True}),
        ):
            async with talk(processes, "exits_early", step) as connection:
                assert await call(connection) == expected
                assert (await connection.until_ended()).exited_with == 3


async def test_an_exit_on_the_cancellation_is_the_end_and_no_more(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "exits_early", "cancel") as connection:
            with anyio.move_on_after(0.05):
                await call(connection)
            assert (await connection.until_ended()).exited_with == 3


async def test_a_closed_output_is_the_end_although_the_process_lives(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "exits_early", "closes") as connection:
            with anyio.fail_after(3), pytest.raises(ServerFailed, match="closed the connection"):
                await call(connection)


@pytest.mark.parametrize("step", ["discover", "call"])
async def test_a_hang_at_discovery_falls_back_once_and_a_hang_at_a_call_can_be_left(
    processes: Processes, step: str
) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", step)) as connection:
            introduction = await probe(connection, HELLO, probe_wait=0.2)
            assert introduction.era == "legacy"
            with pytest.raises(TimeoutError), anyio.fail_after(0.05):
                await call(connection)


async def test_a_modern_server_that_is_slow_to_start_stays_modern(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", "modern")) as connection:
            introduction = await probe(connection, HELLO, probe_wait=0.05)
    assert (introduction.era, introduction.version) == ("modern", "2026-07-28")


async def test_a_hang_at_the_greeting_ends_with_a_sentence(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", "initialize")) as connection:
            with pytest.raises(Unavailable, match="did not complete the handshake within") as caught:
                await probe(connection, HELLO, probe_wait=0.1, connect_wait=0.3)
    assert caught.value.code == "server.timeout"


async def test_messages_in_odd_clothes_are_understood(processes: Processes) -> None:
    kinds = ("banner", "progress bar", "colours", "crlf", "bom", "blank lines", "few lines", "in pieces", "batch")
    with anyio.fail_after(10):
        async with talk(processes, "malformed_messages") as connection:
            for kind in kinds:
                assert await call(connection, kind=kind) == {"text": kind}
    assert connection.garbage.lines == 5
    assert connection.garbage.samples == ["\x1b[32mready\x1b[0m", "debug: one", "debug: two", "[]", "3"]


async def test_characters_that_cannot_be_carried_are_replaced_and_nothing_else(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "malformed_messages") as connection:
            assert await call(connection, kind="bad utf-8") == {"text": "caf\ufffd \ufffd\ufffd"}
            assert await call(connection, kind="half a pair") == {"text": "\ufffd and \ufffd, 😀, \\ud800"}
            assert await call(connection, kind="separators") == {"text": "a\u2028b\u0085c"}


@pytest.mark.parametrize("kind", ["nul", "nan", "deep"])
async def test_a_reply_that_cannot_be_read_fails_its_call_at_once_and_no_other(processes: Processes, kind: str) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "malformed_messages") as connection:
            with anyio.fail_after(2), pytest.raises(ServerFailed, match="cannot be read") as caught:
                await call(connection, kind=kind)
            assert caught.value.code == "server.reply_invalid"
            await call(connection, kind="echo")
    assert connection.dropped.malformed == 1


@pytest.mark.parametrize("kind", ["many lines", "much"])
async def test_a_server_that_writes_garbage_without_end_is_given_up(processes: Processes, kind: str) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "malformed_messages") as connection:
            with pytest.raises(ServerFailed, match="other than messages") as caught:
                await call(connection, kind=kind)
    assert caught.value.code == "server.flood"
    assert caught.value.hint == "Make it log to standard error, not to standard output."


@pytest.mark.parametrize("kind", ["line", "last", "open"])
async def test_a_line_of_fifty_megabytes_is_refused_alone_in_bounded_memory(processes: Processes, kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with anyio.fail_after(20):
        async with talk(processes, "oversized_answers") as connection:
            with pytest.raises(ServerFailed, match="more than 16777216 bytes") as caught:
                await call(connection, kind=kind)
            assert caught.value.code == "server.reply_invalid"
            if kind != "open":
                result = await call(connection, kind="echo")
                assert result["content"][0]["text"] == "small"
                assert connection.dropped.oversized == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * 16 * 1024


async def test_a_line_just_below_the_limit_is_delivered(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with talk(processes, "oversized_answers") as connection:
            result = await call(connection, kind="fits", megabytes=15)
    assert len(result["text"]) == 15 << 20


async def test_output_that_is_no_message_ends_the_server_at_the_size_limit(processes: Processes) -> None:
    """60 MB without a line feed, and then silence: less than the limit for lines that may be messages."""
    async with talk(processes, "oversized_answers") as connection:
        with anyio.fail_after(30), pytest.raises(ServerFailed, match="without ending the line") as caught:
            await call(connection, kind="shapeless", megabytes=60)
    assert caught.value.code == "server.flood"


@pytest.mark.parametrize("kind", ["open", "last open"])
async def test_a_line_over_the_limit_that_does_not_end_fails_its_call_and_then_the_server(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """60 MB of what may be a message: its call fails at once, though the id is to come last."""
    monkeypatch.setattr(stdio, "OVERLONG_WAIT", 2.0)
    async with talk(processes, "oversized_answers") as connection:
        with anyio.fail_after(30):
            with pytest.raises(ServerFailed, match="more than 16777216 bytes"):
                await call(connection, kind=kind, megabytes=60)
            failure = await connection.until_ended()
    assert failure.code == "server.flood"


async def test_a_line_without_end_ends_the_server(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with talk(processes, "oversized_answers") as connection:
            with pytest.raises(ServerFailed):
                await call(connection, kind="endless")
            failure = await connection.until_ended()
    assert failure.code == "server.flood"
    assert "without ending the line" in failure.message


@pytest.mark.parametrize(
    ("kind", "counter", "count"),
    [
        ("duplicate", "unknown", 1),
        ("foreign", "unknown", 2),
        ("string", "unknown", 1),
        ("float", "malformed", 1),
        ("true", "malformed", 1),
        ("null", "malformed", 2),
        ("no id", "malformed", 1),
        ("odd id", "malformed", 2),
        ("odd method", "malformed", 3),
        ("both", "malformed", 1),
        ("neither", "malformed", 1),
    ],
)
async def test_a_reply_under_another_id_is_dropped_and_counted(
    processes: Processes, kind: str, counter: str, count: int
) -> None:
    with anyio.fail_after(10):
        async with talk(processes, "wrong_replies") as connection:
            assert await call(connection, kind=kind) == {"truth": True}
            with pytest.raises(ServerFailed, match="not an object"):
                await call(connection, kind="no object")
    assert getattr(connection.dropped, counter) == count


async def test_a_hundred_thousand_notifications_are_heard_in_passing(processes: Processes) -> None:
    heard = 0

    def on_notification(method: str, params: JsonObject) -> None:
        nonlocal heard
        heard += 1

    with anyio.fail_after(20):
        async with talk(processes, "message_flood") as connection:
            connection.on_notification = on_notification
            await call(connection, kind="notifications", count=100_000)
    assert 0 < heard <= 100_000, "what came together is heard once"


async def test_a_flood_of_messages_takes_little_of_each_turn_of_the_loop(processes: Processes) -> None:
    def on_notification(method: str, params: JsonObject) -> None:
        turns.count()
        until = time.perf_counter() + 0.00001  # so a fast machine needs several turns for one chunk too
        while time.perf_counter() < until:
            pass

    async with talk(processes, "message_flood") as connection, counted_turns() as turns:
        connection.on_notification = on_notification
        with anyio.fail_after(60):
            await call(connection, kind="messages", count=20_000)
    assert turns.total == 20_000, "all of them come before the answer"
    assert turns.most < 1_000, "a chunk of a pipe has more"


async def test_messages_without_end_while_a_call_waits_end_the_server(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MESSAGES_LIMIT", 5_000)
    async with talk(processes, "message_flood") as connection:
        with anyio.fail_after(60), pytest.raises(ServerFailed, match="more than 5,000 messages") as caught:
            await call(connection, kind="messages", count=20_000)
    assert caught.value.code == "server.message_limit"


def forget(request_id: RequestId, method: str, params: JsonObject) -> None:
    """Hear a request and never answer."""


async def test_more_requests_than_a_server_may_have_open_are_refused(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with talk(processes, "message_flood") as connection:
            connection.on_request = forget
            result = await call(connection, kind="requests", count=500)
    assert result["content"][0]["text"] == "400"


async def test_standard_error_is_always_read_and_only_its_end_is_kept(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with processes.child("message_flood", upstream("message_flood"), str) as child:
            connection = StdioConnection(child)
            await probe(connection, HELLO, era="legacy")
            await call(connection, kind="stderr", count=64 * 1024)
            await call(connection, kind="none")
        assert child.stderr.total > 64 * STDERR_LIMIT
        assert child.stderr.tail()[-1] == "the very last line"
        assert sum(map(len, child.stderr.tail(100_000))) <= STDERR_LIMIT


async def test_a_server_that_stops_reading_is_given_up_and_nobody_waits_for_it(processes: Processes) -> None:
    with anyio.fail_after(15):
        async with open_stdio(processes, "ignores_shutdown", upstream("ignores_shutdown", "deaf")) as connection:
            await probe(connection, HELLO, era="legacy")
            await call(connection)
            with pytest.raises(ServerFailed, match="does not read") as caught:
                await call(connection, data="x" * 5_000_000)
    assert caught.value.code == "server.stuck"


async def test_a_slow_reader_is_not_a_stuck_one(processes: Processes) -> None:
    with anyio.fail_after(15):
        async with talk(processes, "well_behaved") as connection:
            data = "x" * 5_000_000
            assert (await call(connection, "echo", data=data))["structuredContent"]["data"] == data


async def suffer(sick: StdioConnection) -> None:
    """Call a server that never stops talking."""
    with pytest.raises(ServerFailed):
        await call(sick, kind="endless")


async def test_a_fault_of_one_server_is_not_felt_by_another(processes: Processes) -> None:
    calls = 0
    with anyio.fail_after(20):
        async with (
            talk(processes, "well_behaved") as healthy,
            talk(processes, "oversized_answers") as sick,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(suffer, sick)
            while sick.failure is None:
                with anyio.fail_after(3):
                    await call(healthy, "echo")
                calls += 1
    assert calls > 10
