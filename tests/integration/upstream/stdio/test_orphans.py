"""Nothing outlives a crib: not when it is killed, and what slipped through is found by the next one."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import orjson
import psutil
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.upstream.stdio.crib import marker_of
from integration.upstream.stdio.harness import HELLO, TESTS, call, is_alive, talk, until_dead, upstream
from toolcrib.base.processes import guard
from toolcrib.base.processes.orphans import Noted, Records, Swept, leftovers, read_records, sweep
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.start import MARKER
from toolcrib.upstream.handshake import probe
from toolcrib.upstream.stdio import StdioConnection

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="Needs /proc.")]


@asynccontextmanager
async def crib(records: Path, *servers: tuple[str, ...]) -> AsyncGenerator[tuple[anyio.abc.Process, list[int]]]:
    """A process that holds servers of these ways, and the ids of all of them."""
    words = [word for ways in servers for word in ("--", *ways)]
    command = [sys.executable, "-m", "integration.upstream.stdio.crib", str(records), *words]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None, env=environment) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(20):
                line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 100_000)
            yield process, orjson.loads(line)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def guard_of(crib_pid: int) -> psutil.Process:
    """The guard of a crib."""
    children = [child for child in psutil.Process(crib_pid).children() if child.status() != psutil.STATUS_ZOMBIE]
    (found,) = (child for child in children if "toolcrib-guard" in child.cmdline())
    return found


async def test_a_killed_crib_leaves_nobody(tmp_path: Path) -> None:
    servers = (("term", "eof"), ("stops",), ("term", "child"), ("forks", "eof"), ())
    async with crib(tmp_path / "children.json", *servers) as (process, pids):
        assert len(pids) == 7
        assert all(map(is_alive, pids))
        pids.append(guard_of(process.pid).pid)
        process.kill()
        await until_dead(*pids)


async def test_a_crib_that_is_ended_by_a_signal_leaves_nobody(tmp_path: Path) -> None:
    async with crib(tmp_path / "children.json", ("term", "eof")) as (process, pids):
        process.send_signal(signal.SIGTERM)
        await until_dead(*pids)


async def test_a_guard_that_was_killed_is_replaced(processes: Processes) -> None:
    async with talk(processes, "ignores_shutdown"):
        first = guard_of(os.getpid())
        first.kill()
        await until_dead(first.pid)
        async with talk(processes, "ignores_shutdown"):
            assert guard_of(os.getpid()) != first


async def test_without_a_guard_servers_still_start_and_it_is_said(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "SHELL", "/nowhere/sh")
    async with talk(processes, "well_behaved") as connection:
        await call(connection, "echo")
    assert "The guard of server processes did not start" in caplog.text


async def test_what_a_killed_crib_and_its_killed_guard_left_is_swept_by_the_next(tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    servers = [("term", "eof", "child"), ("term", "eof", "forks"), ("eof",), ("eof", "daemon"), ("eof", "clean")]
    async with crib(records, *servers) as (process, pids):
        guard_of(process.pid).kill()
        process.kill()
        await process.wait()
        assert all(map(is_alive, pids))
        with anyio.fail_after(10):
            async with Processes({}, "another-crib", tmp_path / "others.json") as another:
                assert another.swept == Swept()
            async with Processes({}, marker_of(records), records) as processes:
                assert processes.swept == Swept(tuple(sorted(pids)))
        assert not any(map(is_alive, pids))
        assert not records.exists()


@pytest.mark.parametrize("way", ["daemon", "clean"])
async def test_descendants_with_a_session_of_their_own_end_with_their_server(processes: Processes, way: str) -> None:
    async with talk(processes, "ignores_shutdown") as other:
        async with talk(processes, "ignores_shutdown", way) as connection:
            pids = await call(connection)
            assert is_alive(pids[way])
        assert not is_alive(pids[way])
        assert not is_alive(pids["server"])
        assert is_alive((await call(other))["server"]), "other servers go on"


async def test_descendants_of_many_servers_end_with_the_crib(processes: Processes) -> None:
    async with AsyncExitStack() as stack:
        talks = [
            await stack.enter_async_context(talk(processes, "ignores_shutdown", "daemon", "clean")) for _ in range(3)
        ]
        pids = [pid for connection in talks for pid in (await call(connection)).values()]
        assert len(set(filter(is_alive, pids))) == 9
    assert not any(map(is_alive, pids))


async def test_what_a_killed_crib_left_is_named_before_the_next_one_ends_it(tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    async with crib(records, ("clean", "daemon")) as (process, pids):
        process.kill()
        await process.wait()
        detached = sorted(pids[1:])
        with anyio.fail_after(10):
            while leftovers(records, marker_of(records)) != tuple(detached):  # noqa: ASYNC110 the guard ends the server
                await anyio.sleep(0.01)
        assert sweep(records, marker_of(records)).ended == tuple(detached)


async def test_what_a_coding_agent_detached_outlives_it(processes: Processes) -> None:
    async with processes.child(
        "ignores_shutdown", upstream("ignores_shutdown", "daemon"), str, ends_descendants=False
    ) as child:
        connection = StdioConnection(child)
        await probe(connection, HELLO, era="legacy")
        daemon = (await call(connection))["daemon"]
    try:
        assert is_alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_a_process_that_only_has_the_number_of_a_child_is_not_touched(tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    command = (sys.executable, "-c", "import signal; signal.pause()")
    environments: tuple[dict[str, str], ...] = ({}, {MARKER: "ours"}, {MARKER: "ours-too"})
    strangers = [subprocess.Popen(command, env=environment, start_new_session=True) for environment in environments]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        for started in (1, int(psutil.Process(strangers[0].pid).create_time())):
            children = [{"pid": stranger.pid, "started": started, "server": "x"} for stranger in strangers]
            records.write_bytes(b"\n".join(map(orjson.dumps, ({"boot": boot}, *children))))
            swept = sweep(records, "ours")
            assert swept == Swept((), (strangers[1].pid,))
        assert all(stranger.poll() is None for stranger in strangers)
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[]", b'{"boot":"another"}\n{"pid":1,"started":1,"server":"x"}', b'{"pid":3}']
)
def test_notes_that_cannot_be_used_are_no_reason_to_stop(tmp_path: Path, content: bytes) -> None:
    records = tmp_path / "children.json"
    records.write_bytes(content)
    assert sweep(records, "nobody") == Swept()


async def test_the_notes_are_private_and_name_only_what_runs(processes: Processes, tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    async with talk(processes, "ignores_shutdown") as connection:
        pid = (await call(connection))["server"]
        assert [each.pid for each in read_records(records)] == [pid]
        assert records.stat().st_mode & 0o777 == 0o600
    assert records.exists()
    assert read_records(records) == ()


def test_notes_of_servers_that_come_and_go_do_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    records = Records(path)
    records.add(1, 10, "stays")
    for pid in range(2, 3_000):
        records.add(pid, 10, "comes and goes")
        records.remove(pid)
    records.close()
    assert read_records(path) == (Noted(1, 10, "stays"),)
    assert len(path.read_bytes().splitlines()) < 1_100


def test_a_note_that_was_cut_short_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    records = Records(path)
    records.add(1, 10, "one")
    records.add(2, 20, "two")
    records.close()
    path.write_bytes(path.read_bytes()[:-9])
    assert read_records(path) == (Noted(1, 10, "one"),)
