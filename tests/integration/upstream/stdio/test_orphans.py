"""No server process outlives its crib: the guard ends them, and the next crib sweeps the rest."""

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
from integration.upstream.stdio.harness import HELLO, TESTS, call, connect, is_alive, until_dead, upstream
from toolcrib.base.processes import guard
from toolcrib.base.processes.orphans import Noted, Records, Swept, leftovers, read_records, sweep
from toolcrib.base.processes.process import Processes
from toolcrib.base.processes.start import MARKER
from toolcrib.upstream.handshake import probe
from toolcrib.upstream.stdio import StdioConnection

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="Needs /proc.")]


@asynccontextmanager
async def crib(records: Path, *servers: tuple[str, ...]) -> AsyncGenerator[tuple[anyio.abc.Process, list[int]]]:
    """Run a crib process with these servers; yield it and the process ids of the servers."""
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
    """Return the guard process of a crib."""
    children = [child for child in psutil.Process(crib_pid).children() if child.status() != psutil.STATUS_ZOMBIE]
    (found,) = (child for child in children if "toolcrib-guard" in child.cmdline())
    return found


async def test_killed_crib_leaves_no_server_processes(tmp_path: Path) -> None:
    servers = (("term", "eof"), ("stops",), ("term", "child"), ("forks", "eof"), ())
    async with crib(tmp_path / "children.json", *servers) as (process, pids):
        assert len(pids) == 7
        assert all(map(is_alive, pids))
        pids.append(guard_of(process.pid).pid)
        process.kill()
        await until_dead(*pids)


async def test_terminated_crib_leaves_no_server_processes(tmp_path: Path) -> None:
    async with crib(tmp_path / "children.json", ("term", "eof")) as (process, pids):
        process.send_signal(signal.SIGTERM)
        await until_dead(*pids)


async def test_killed_guard_is_replaced(processes: Processes) -> None:
    async with connect(processes, "ignores_shutdown"):
        first = guard_of(os.getpid())
        first.kill()
        await until_dead(first.pid)
        async with connect(processes, "ignores_shutdown"):
            assert guard_of(os.getpid()) != first


async def test_servers_start_without_a_guard_and_a_warning_is_logged(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "SHELL", "/nowhere/sh")
    async with connect(processes, "well_behaved") as connection:
        await call(connection, "echo")
    assert "The guard of server processes did not start" in caplog.text


async def test_next_crib_sweeps_what_a_killed_crib_and_guard_left(tmp_path: Path) -> None:
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
async def test_descendants_in_their_own_session_end_with_their_server(processes: Processes, way: str) -> None:
    async with connect(processes, "ignores_shutdown") as other_server:
        async with connect(processes, "ignores_shutdown", way) as connection:
            pids = await call(connection)
            assert is_alive(pids[way])
        assert not is_alive(pids[way])
        assert not is_alive(pids["server"])
        assert is_alive((await call(other_server))["server"]), "other servers keep running"


async def test_descendants_of_several_servers_end_with_the_crib(processes: Processes) -> None:
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connect(processes, "ignores_shutdown", "daemon", "clean")) for _ in range(3)
        ]
        pids = [pid for connection in connections for pid in (await call(connection)).values()]
        assert len(set(filter(is_alive, pids))) == 9
    assert not any(map(is_alive, pids))


async def test_leftovers_of_a_killed_crib_are_listed_before_they_are_swept(tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    async with crib(records, ("clean", "daemon")) as (process, pids):
        process.kill()
        await process.wait()
        detached = sorted(pids[1:])
        with anyio.fail_after(10):
            while leftovers(records, marker_of(records)) != tuple(detached):  # noqa: ASYNC110 the guard ends the server
                await anyio.sleep(0.01)
        assert sweep(records, marker_of(records)).ended == tuple(detached)


async def test_detached_descendants_of_a_coding_agent_outlive_it(processes: Processes) -> None:
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


def test_reused_process_id_is_not_swept(tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    command = (sys.executable, "-c", "import signal; signal.pause()")
    environments: tuple[dict[str, str], ...] = ({}, {MARKER: "ours"}, {MARKER: "ours-too"})
    others = [subprocess.Popen(command, env=environment, start_new_session=True) for environment in environments]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        for started in (1, int(psutil.Process(others[0].pid).create_time())):
            children = [{"pid": other.pid, "started": started, "server": "x"} for other in others]
            records.write_bytes(b"\n".join(map(orjson.dumps, ({"boot": boot}, *children))))
            swept = sweep(records, "ours")
            assert swept == Swept((), (others[1].pid,))
        assert all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[]", b'{"boot":"another"}\n{"pid":1,"started":1,"server":"x"}', b'{"pid":3}']
)
def test_unusable_records_are_ignored(tmp_path: Path, content: bytes) -> None:
    records = tmp_path / "children.json"
    records.write_bytes(content)
    assert sweep(records, "no-such-crib") == Swept()


async def test_records_are_private_and_list_only_running_processes(processes: Processes, tmp_path: Path) -> None:
    records = tmp_path / "children.json"
    async with connect(processes, "ignores_shutdown") as connection:
        pid = (await call(connection))["server"]
        assert [each.pid for each in read_records(records)] == [pid]
        assert records.stat().st_mode & 0o777 == 0o600
    assert records.exists()
    assert read_records(records) == ()


def test_records_of_many_short_lived_servers_are_compacted(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    records = Records(path)
    records.add(1, 10, "stays")
    for pid in range(2, 3_000):
        records.add(pid, 10, "comes and goes")
        records.remove(pid)
    records.close()
    assert read_records(path) == (Noted(1, 10, "stays"),)
    assert len(path.read_bytes().splitlines()) < 1_100


def test_truncated_record_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    records = Records(path)
    records.add(1, 10, "one")
    records.add(2, 20, "two")
    records.close()
    path.write_bytes(path.read_bytes()[:-9])
    assert read_records(path) == (Noted(1, 10, "one"),)
