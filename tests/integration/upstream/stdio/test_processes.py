"""Server processes: how they fail to start, and that they end."""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from integration.upstream.stdio.harness import HELLO, LOOPS, call, connect, is_alive, until_dead, upstream
from toolcrib.base.processes.process import Processes, ServerFailed
from toolcrib.model.errors import ConfigError, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ResolvedServer
from toolcrib.upstream.handshake import open_initialized, probe
from toolcrib.upstream.stdio import StdioConnection, open_stdio

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]


def script(path: Path, text: str, mode: int = 0o755) -> str:
    """Write an executable file and return its path."""
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


async def start_error(processes: Processes, resolved: ResolvedServer) -> ToolcribError:
    """Return the error of a server that cannot start."""
    with anyio.fail_after(5), pytest.raises(ToolcribError) as caught:
        async with open_stdio(processes, "faulty", resolved):
            pass
    assert '"faulty"' in caught.value.message
    return caught.value


async def test_missing_command_error_suggests_a_fix(processes: Processes, tmp_path: Path) -> None:
    error = await start_error(processes, ResolvedServer(command="no-such-program", env={"PATH": "/nowhere"}))
    assert (type(error), error.code) == (ConfigError, "server.command_not_found")
    assert error.message.endswith('did not start: command "no-such-program" not found.')
    assert error.hint == "Install no-such-program, or write its full path: it is not on the PATH (/nowhere)."
    hints = {
        "npx": "Install Node.js, which brings `npx`.",
        "~/bin/server": "`~` is not expanded: write the full path.",
        str(tmp_path / "missing"): "Install it, or correct the path in the definition.",
    }
    for command, hint in hints.items():
        error = await start_error(processes, ResolvedServer(command=command, env={"PATH": "/nowhere"}))
        assert (error.code, error.hint) == ("server.command_not_found", hint)
    assert (await start_error(processes, ResolvedServer())).code == "server.command_not_found"


async def test_missing_interpreter_of_a_script_is_reported(processes: Processes, tmp_path: Path) -> None:
    path = script(tmp_path / "server", "#!/nowhere/interpreter\n")
    for command, env in ((path, {}), ("server", {"PATH": str(tmp_path)})):
        error = await start_error(processes, ResolvedServer(command=command, env=env))
        assert error.code == "server.command_not_found"
        assert "the interpreter in its first line does not" in (error.hint or "")


async def test_command_that_cannot_run_is_reported_with_the_reason(processes: Processes, tmp_path: Path) -> None:
    cases = {
        script(tmp_path / "plain", "no program", 0o644): "Permission denied",
        str(tmp_path): "Permission denied",
        script(tmp_path / "foreign", "\x7fELF of another world"): "Exec format error",
        "with\0nul": "embedded null byte",
    }
    for command, reason in cases.items():
        error = await start_error(processes, ResolvedServer(command=command))
        assert (type(error), error.code) == (ConfigError, "server.command_unusable")
        assert reason in error.message
    error = await start_error(processes, ResolvedServer(command=sys.executable, args=("x" * 3_000_000,)))
    assert (error.code, error.hint) == (
        "server.command_unusable",
        "Its arguments and variables are too long in total: move the long ones into a file.",
    )


async def test_unusable_working_directory_is_reported(processes: Processes, tmp_path: Path) -> None:
    file = script(tmp_path / "file", "")
    for cwd, reason in ((str(tmp_path / "gone"), "does not exist"), (file, "is not a directory")):
        error = await start_error(processes, ResolvedServer(command=sys.executable, cwd=cwd))
        assert (type(error), error.code) == (ConfigError, "server.cwd_unusable")
        assert reason in error.message


async def test_start_without_free_descriptors_fails_and_the_next_start_works(processes: Processes) -> None:
    async with connect(processes, "well_behaved"):  # starts the guard, which needs descriptors
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        taken: list[int] = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            error = await start_error(processes, upstream("well_behaved"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken:
                os.close(descriptor)
        assert (type(error), error.code) == (Unavailable, "server.no_room")
        assert "Too many open files" in error.message
        async with connect(processes, "well_behaved") as connection:
            await call(connection, "echo")


async def test_server_that_reads_its_input_ends_at_once(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with processes.child("ignores_shutdown", upstream("ignores_shutdown"), str) as child:
            await probe(StdioConnection(child), HELLO, era="legacy")
            with anyio.fail_after(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(child.stop)
                    tasks.start_soon(child.stop)
        assert child.exited_with == 0
        assert not is_alive(child.pid)


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(("term", "eof"), id="ignores its input and SIGTERM"),
        pytest.param(("stops",), id="is stopped"),
        pytest.param(("stops", "term"), id="is stopped and ignores SIGTERM"),
        pytest.param(("child",), id="leaves a child with the pipes"),
        pytest.param(("forks", "eof"), id="forked twice"),
    ],
)
async def test_stubborn_server_is_killed_with_its_process_group(processes: Processes, ways: tuple[str, ...]) -> None:
    with anyio.fail_after(15):
        async with open_initialized(
            processes, "ignores_shutdown", upstream("ignores_shutdown", *ways), HELLO, era="legacy"
        ) as (
            connection,
            _,
        ):
            pids = await call(connection)
        with anyio.fail_after(2):
            await until_dead(*pids.values())
    assert [pid for pid in pids.values() if is_alive(pid)] == []


async def test_stopping_many_servers_is_bounded_and_idempotent(processes: Processes) -> None:
    pids: list[int] = []
    async with anyio.create_task_group() as tasks:
        ready = anyio.Semaphore(0)
        leave = anyio.Event()

        async def one() -> None:
            async with connect(processes, "ignores_shutdown", "term", "eof") as connection:
                pids.append((await call(connection))["server"])
                ready.release()
                await leave.wait()

        with anyio.fail_after(20):
            for _ in range(10):
                tasks.start_soon(one)
            for _ in range(10):
                await ready.acquire()
        with anyio.fail_after(6):
            await processes.__aexit__()
            leave.set()
    assert [pid for pid in pids if is_alive(pid)] == []


async def test_cancelled_owner_leaves_no_processes(processes: Processes) -> None:
    pids: list[int] = []
    with anyio.fail_after(10):
        with anyio.CancelScope() as scope:
            async with connect(processes, "ignores_shutdown", "child") as connection:
                pids += (await call(connection)).values()
                scope.cancel()
                await anyio.sleep_forever()
        await until_dead(*pids)


async def test_killed_server_error_names_the_signal(processes: Processes) -> None:
    pids: JsonObject = {}
    async with connect(processes, "ignores_shutdown", "child") as connection:
        pids |= await call(connection)
        os.kill(pids["server"], signal.SIGKILL)
        with anyio.fail_after(3), pytest.raises(ServerFailed, match="was ended by SIGKILL"):
            await call(connection)
    await until_dead(pids["child"])


async def test_servers_start_concurrently_with_few_threads(processes: Processes) -> None:
    threads = psutil.Process().num_threads()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            done = anyio.Event()
            ready = anyio.Semaphore(0)

            async def one() -> None:
                async with connect(processes, "well_behaved") as connection:
                    await call(connection, "echo")
                    ready.release()
                    await done.wait()

            for _ in range(20):
                tasks.start_soon(one)
            for _ in range(20):
                await ready.acquire()
            assert psutil.Process().num_threads() <= threads + 20
            done.set()


@pytest.mark.parametrize(
    "missing", [("pidfd_open",), ("pidfd_open", "waitid")], ids=["no handles", "no handles, no looks"]
)
async def test_exit_is_detected_without_pidfd_or_waitid(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name, raising=False)
    with anyio.fail_after(10):
        async with connect(processes, "exits_early", "call") as connection:
            with pytest.raises(ServerFailed, match="exit code 3"):
                await call(connection)
        async with connect(processes, "ignores_shutdown", "term", "eof") as connection:
            await call(connection)
