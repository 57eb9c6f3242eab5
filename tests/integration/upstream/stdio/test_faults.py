"""Faulty stdio servers: each fault fails only its own call, or ends only its own server."""

import resource
import time

import anyio
import pytest

from integration.upstream.stdio.harness import HELLO, call, connect, upstream
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
async def test_exit_during_the_handshake_reports_exit_code_and_stderr(processes: Processes, step: str) -> None:
    with anyio.fail_after(10), pytest.raises(ServerFailed) as caught:
        async with open_stdio(processes, "exits_early", upstream("exits_early", step)) as connection:
            await probe(connection, HELLO)
    assert caught.value.code == "server.ended"
    assert caught.value.exited_with == 3
    assert 'Server "exits_early" ended with exit code 3.' in caught.value.message
    assert f"I leave at {step}" in caught.value.message


async def test_server_that_exits_on_discovery_is_connected_in_the_legacy_era(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_initialized(processes, "exits_early", upstream("exits_early", "discover"), HELLO) as (
            _,
            introduction,
        ):
            assert introduction.era == "legacy"


@pytest.mark.parametrize(("era", "version"), [("modern", "2026-07-28"), ("legacy", "2025-03-26")])
async def test_version_refusal_is_retried_with_a_supported_version(
    processes: Processes, era: str, version: str
) -> None:
    with anyio.fail_after(10):
        async with open_initialized(processes, "version_negotiation", upstream("version_negotiation", era), HELLO) as (
            _,
            introduction,
        ):
            assert (introduction.era, introduction.version) == (era, version)


async def test_exit_during_calls_fails_each_of_them_with_masked_stderr(processes: Processes) -> None:
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


async def test_reply_before_the_exit_is_delivered(processes: Processes) -> None:
    with anyio.fail_after(10):
        for step, expected in (
            ("after", {"content": [{"type": "text", "text": "done"}]}),
            ("unterminated", {"last": True}),
        ):
            async with connect(processes, "exits_early", step) as connection:
                assert await call(connection) == expected
                assert (await connection.until_ended()).exited_with == 3


async def test_exit_on_a_cancellation_ends_the_connection(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "exits_early", "cancel") as connection:
            with anyio.move_on_after(0.05):
                await call(connection)
            assert (await connection.until_ended()).exited_with == 3


async def test_closed_stdout_ends_the_connection(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "exits_early", "closes") as connection:
            with anyio.fail_after(3), pytest.raises(ServerFailed, match="closed the connection"):
                await call(connection)


@pytest.mark.parametrize("step", ["discover", "call"])
async def test_hanging_discovery_falls_back_to_legacy_and_a_hanging_call_can_be_cancelled(
    processes: Processes, step: str
) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", step)) as connection:
            introduction = await probe(connection, HELLO, probe_wait=0.2)
            assert introduction.era == "legacy"
            with pytest.raises(TimeoutError), anyio.fail_after(0.05):
                await call(connection)


async def test_slow_modern_server_stays_modern(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", "modern")) as connection:
            introduction = await probe(connection, HELLO, probe_wait=0.05)
    assert (introduction.era, introduction.version) == ("modern", "2026-07-28")


async def test_hanging_handshake_times_out(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with open_stdio(processes, "never_answers", upstream("never_answers", "initialize")) as connection:
            with pytest.raises(Unavailable, match="did not complete the handshake within") as caught:
                await probe(connection, HELLO, probe_wait=0.1, connect_wait=0.3)
    assert caught.value.code == "server.timeout"


async def test_messages_between_other_output_are_parsed(processes: Processes) -> None:
    kinds = ("banner", "progress bar", "colours", "crlf", "bom", "blank lines", "few lines", "in pieces", "batch")
    with anyio.fail_after(10):
        async with connect(processes, "malformed_messages") as connection:
            for kind in kinds:
                assert await call(connection, kind=kind) == {"text": kind}
    assert connection.garbage.lines == 5
    assert connection.garbage.samples == ["\x1b[32mready\x1b[0m", "debug: one", "debug: two", "[]", "3"]


async def test_invalid_characters_are_replaced(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "malformed_messages") as connection:
            assert await call(connection, kind="bad utf-8") == {"text": "caf\ufffd \ufffd\ufffd"}
            assert await call(connection, kind="half a pair") == {"text": "\ufffd and \ufffd, 😀, \\ud800"}
            assert await call(connection, kind="separators") == {"text": "a\u2028b\u0085c"}


@pytest.mark.parametrize("kind", ["nul", "nan", "deep"])
async def test_unparseable_reply_fails_only_its_call(processes: Processes, kind: str) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "malformed_messages") as connection:
            with anyio.fail_after(2), pytest.raises(ServerFailed, match="cannot be read") as caught:
                await call(connection, kind=kind)
            assert caught.value.code == "server.reply_invalid"
            await call(connection, kind="echo")
    assert connection.dropped.malformed == 1


@pytest.mark.parametrize("kind", ["many lines", "much"])
async def test_endless_output_without_messages_ends_the_server(processes: Processes, kind: str) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "malformed_messages") as connection:
            with pytest.raises(ServerFailed, match="other than messages") as caught:
                await call(connection, kind=kind)
    assert caught.value.code == "server.flood"
    assert caught.value.hint == "Make it log to standard error, not to standard output."


@pytest.mark.parametrize("kind", ["line", "last", "open"])
async def test_oversized_line_is_refused_with_bounded_memory(processes: Processes, kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with anyio.fail_after(20):
        async with connect(processes, "oversized_answers") as connection:
            with pytest.raises(ServerFailed, match="more than 16777216 bytes") as caught:
                await call(connection, kind=kind)
            assert caught.value.code == "server.reply_invalid"
            if kind != "open":
                result = await call(connection, kind="echo")
                assert result["content"][0]["text"] == "small"
                assert connection.dropped.oversized == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * 16 * 1024


async def test_line_below_the_limit_is_delivered(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with connect(processes, "oversized_answers") as connection:
            result = await call(connection, kind="fits", megabytes=15)
    assert len(result["text"]) == 15 << 20


async def test_output_without_a_line_feed_ends_the_server_at_the_size_limit(processes: Processes) -> None:
    """Send 60 MB without a line feed, then nothing: less than the limit for lines that may be messages."""
    async with connect(processes, "oversized_answers") as connection:
        with anyio.fail_after(30), pytest.raises(ServerFailed, match="without ending the line") as caught:
            await call(connection, kind="shapeless", megabytes=60)
    assert caught.value.code == "server.flood"


@pytest.mark.parametrize("kind", ["open", "last open"])
async def test_unterminated_oversized_line_fails_its_call_and_then_the_server(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Send 60 MB of a possible message: its call fails at once, though the id would come last."""
    monkeypatch.setattr(stdio, "OVERLONG_WAIT", 2.0)
    async with connect(processes, "oversized_answers") as connection:
        with anyio.fail_after(30):
            with pytest.raises(ServerFailed, match="more than 16777216 bytes"):
                await call(connection, kind=kind, megabytes=60)
            failure = await connection.until_ended()
    assert failure.code == "server.flood"


async def test_endless_line_ends_the_server(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with connect(processes, "oversized_answers") as connection:
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
async def test_reply_with_an_unexpected_id_is_dropped_and_counted(
    processes: Processes, kind: str, counter: str, count: int
) -> None:
    with anyio.fail_after(10):
        async with connect(processes, "wrong_replies") as connection:
            assert await call(connection, kind=kind) == {"truth": True}
            with pytest.raises(ServerFailed, match="not an object"):
                await call(connection, kind="no object")
    assert getattr(connection.dropped, counter) == count


async def test_flood_of_notifications_is_received(processes: Processes) -> None:
    received = 0

    def on_notification(method: str, params: JsonObject) -> None:
        nonlocal received
        received += 1

    with anyio.fail_after(20):
        async with connect(processes, "message_flood") as connection:
            connection.on_notification = on_notification
            await call(connection, kind="notifications", count=100_000)
    assert 0 < received <= 100_000, "equal notifications in one chunk are delivered once"


async def test_message_flood_takes_bounded_work_per_loop_turn(processes: Processes) -> None:
    def on_notification(method: str, params: JsonObject) -> None:
        turns.count()
        until = time.perf_counter() + 0.00001  # so a fast machine needs several turns for one chunk too
        while time.perf_counter() < until:
            pass

    async with connect(processes, "message_flood") as connection, counted_turns() as turns:
        connection.on_notification = on_notification
        with anyio.fail_after(60):
            await call(connection, kind="messages", count=20_000)
    assert turns.total == 20_000, "all messages arrive before the result"
    assert turns.most < 1_000, "one chunk of a pipe has more"


async def test_messages_beyond_the_limit_during_a_call_end_the_server(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MESSAGES_LIMIT", 5_000)
    async with connect(processes, "message_flood") as connection:
        with anyio.fail_after(60), pytest.raises(ServerFailed, match="more than 5,000 messages") as caught:
            await call(connection, kind="messages", count=20_000)
    assert caught.value.code == "server.message_limit"


def ignore(request_id: RequestId, method: str, params: JsonObject) -> None:
    """Receive a request and never answer it."""


async def test_requests_beyond_the_limit_of_open_ones_are_refused(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with connect(processes, "message_flood") as connection:
            connection.on_request = ignore
            result = await call(connection, kind="requests", count=500)
    assert result["content"][0]["text"] == "400"


async def test_stderr_is_drained_and_only_its_end_is_kept(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with processes.child("message_flood", upstream("message_flood"), str) as child:
            connection = StdioConnection(child)
            await probe(connection, HELLO, era="legacy")
            await call(connection, kind="stderr", count=64 * 1024)
            await call(connection, kind="none")
        assert child.stderr.total > 64 * STDERR_LIMIT
        assert child.stderr.tail()[-1] == "the very last line"
        assert sum(map(len, child.stderr.tail(100_000))) <= STDERR_LIMIT


async def test_server_that_stops_reading_is_given_up(processes: Processes) -> None:
    with anyio.fail_after(15):
        async with open_stdio(processes, "ignores_shutdown", upstream("ignores_shutdown", "deaf")) as connection:
            await probe(connection, HELLO, era="legacy")
            await call(connection)
            with pytest.raises(ServerFailed, match="does not read") as caught:
                await call(connection, data="x" * 5_000_000)
    assert caught.value.code == "server.stuck"


async def test_slow_reader_is_not_given_up(processes: Processes) -> None:
    with anyio.fail_after(15):
        async with connect(processes, "well_behaved") as connection:
            data = "x" * 5_000_000
            assert (await call(connection, "echo", data=data))["structuredContent"]["data"] == data


async def call_endlessly(faulty: StdioConnection) -> None:
    """Call a server that never stops writing."""
    with pytest.raises(ServerFailed):
        await call(faulty, kind="endless")


async def test_fault_of_one_server_does_not_affect_another(processes: Processes) -> None:
    calls = 0
    with anyio.fail_after(20):
        async with (
            connect(processes, "well_behaved") as healthy,
            connect(processes, "oversized_answers") as faulty,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(call_endlessly, faulty)
            while faulty.failure is None:
                with anyio.fail_after(3):
                    await call(healthy, "echo")
                calls += 1
    assert calls > 10
