"""Processes of stdio servers: started, read, monitored, and ended together with their descendants.

`Processes` belongs to one crib: it ends leftovers of an earlier crib and owns the guard and the records. `Child` is one
process: its pipes, its recent standard error, and its exit. Every operation is bounded, even ending a child that is
stopped, ignores signals, or whose grandchildren hold its pipes.

Must never reap a child before the last signal to its group: until then its pid cannot be reused.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, Protocol, Self, cast

import anyio
import anyio.to_thread

from toolcrib.base.processes.descendants import Descendants, MarkedProcesses, new_mark
from toolcrib.base.processes.guard import ProcessGuard
from toolcrib.base.processes.orphans import Records, Swept, start_time, sweep
from toolcrib.base.processes.pipes import PipeReader, PipeWriter
from toolcrib.base.processes.start import PRIVATE, child_environment, start_server
from toolcrib.base.processes.stderr import Mask, StderrRing
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.model.servers import ResolvedServer

logger = logging.getLogger(__name__)

KILL_WAIT: Final = 2.0
"""Seconds for SIGKILL to take effect; only an unkillable process takes longer."""

_CODE_WAIT = 0.5
_LAST_OUTPUT = 2 * 1024 * 1024
_SHOWN_LINES = 5


@dataclass(frozen=True, slots=True)
class ProcessTimeouts:
    """Timeouts in seconds.

    `stop`: after a server's input is closed, and again after SIGTERM. `write`: while a server reads nothing of what is
    sent to it.
    """

    stop: float = 2.0
    write: float = 30.0


class ServerFailed(Unavailable):
    """A server exited or was given up.

    `brief` is the reason; the message adds the last lines of its standard error.
    """

    def __init__(
        self, code: str, brief: str, exited_with: int | None, stderr: tuple[str, ...], hint: str | None = None
    ) -> None:
        last = "\n".join(stderr[-_SHOWN_LINES:])
        super().__init__(code, f"{brief} The end of its standard error:\n{last}" if last else brief, hint)
        self.brief = brief
        self.exited_with = exited_with
        self.stderr = stderr

    def copy(self, brief: str | None = None) -> "ServerFailed":
        """Return a copy, with another reason if given. Each raised exception needs its own traceback."""
        return ServerFailed(self.code, brief or self.brief, self.exited_with, self.stderr, self.hint)


class ProcessListener(Protocol):
    """Receives the output and the exit of a child."""

    def received(self, data: bytes) -> None:
        """Handle bytes of its output."""
        ...

    def ended(self, failure: ServerFailed) -> None:
        """Handle the end, once: it exited, closed a pipe, or stopped reading."""
        ...


class Processes:
    """All server processes of one crib. Entering ends leftovers of an earlier crib; leaving ends those of this one.

    `marker` identifies the home; only one crib of a home runs at a time.
    """

    def __init__(
        self, environment: Mapping[str, str], marker: str, records: Path, waits: ProcessTimeouts | None = None
    ) -> None:
        self.swept = Swept()
        self._environment = environment
        self._marker = marker
        self._waits = waits or ProcessTimeouts()
        self._records_path = records
        self._records = Records(records)
        self._guard = ProcessGuard()
        self._descendants = Descendants()
        self._children: set[Child] = set()

    async def __aenter__(self) -> Self:
        self.swept = await anyio.to_thread.run_sync(sweep, self._records_path, self._marker)
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for child in tuple(self._children):
                    tasks.start_soon(child.stop)
        self._guard.close()
        self._records.close()

    @contextlib.asynccontextmanager
    async def child(
        self, name: str, resolved: ResolvedServer, mask: Mask, *, umask: int = PRIVATE, ends_descendants: bool = True
    ) -> AsyncGenerator["Child"]:
        """Start a server's process; it is stopped with all its descendants at the end of the block.

        `ends_descendants` is False for a coding agent: only its process group ends with it, not what it has detached.
        Raises `ConfigError` (`server.command_not_found`, …) or `Unavailable` (`server.no_room`) if it cannot start.
        """
        if os.name != "posix":
            raise ConfigError("server.command_unusable", "Stdio servers need Linux or macOS.")
        if not resolved.command:
            raise ConfigError("server.command_not_found", f'Server "{name}" has no command.')
        mark = new_mark() if ends_descendants else None
        environment = child_environment(self._environment, resolved.env, self._marker)
        words = (resolved.command, *resolved.args)
        process, started = await self._start(name, words, environment, resolved, umask, mark)
        descendants = self._descendants.of(mark) if mark is not None else None
        child = Child(name, process, mask, self._waits, descendants, self._forget)
        self._children.add(child)
        if started is not None:
            self._records.add(child.pid, started, name, mark)
        self._guard.add(child.pid)
        try:
            yield child
        finally:
            await child.stop()
            self._children.discard(child)

    async def _start(
        self,
        name: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        resolved: ResolvedServer,
        umask: int,
        mark: str | None,
    ) -> tuple[subprocess.Popen[bytes], int | None]:
        def begin() -> tuple[subprocess.Popen[bytes], int | None]:
            process = start_server(
                name, words, environment, resolved.cwd, umask, mark, resolved.sandbox, resolved.trace
            )
            return process, start_time(process.pid)

        try:
            # Not abandoned on cancellation: that would leave an untracked process.
            return await anyio.to_thread.run_sync(begin, abandon_on_cancel=False)
        except RuntimeError as error:  # no thread is available
            raise Unavailable("server.no_room", f'Server "{name}" did not start: {error}.') from None

    def _forget(self, pid: int) -> None:
        self._guard.remove(pid)
        self._records.remove(pid)


class Child:
    """One process, created by `Processes.child`. Its output is discarded until `listen` is called."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        mask: Mask,
        waits: ProcessTimeouts,
        descendants: MarkedProcesses | None,
        on_gone: Callable[[int], None],
    ) -> None:
        self.name = name
        self.pid = process.pid
        self.exited_with: int | None = None
        self.stderr = StderrRing(mask)
        self._process = process
        self._stop_wait = waits.stop
        self._descendants = descendants
        self._on_gone = on_gone
        self._listener: ProcessListener | None = None
        self._failure: ServerFailed | None = None
        self._has_exited = False
        self._is_stopped = False
        self._changed = asyncio.Event()
        self._stopping = anyio.Lock()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._input = PipeWriter(cast(FileIO, process.stdin), waits.write, self._stuck, self._closed_a_pipe)
        self.write = self._input.write
        """Sends bytes to its input. Does not block."""
        self._output = PipeReader(cast(FileIO, process.stdout), _discard, self._closed_a_pipe)
        self._errors = PipeReader(cast(FileIO, process.stderr), self.stderr.add, self._changed.set)
        self._watch_exit = _ExitWatch(process, self._on_process_exit)

    def listen(self, listener: ProcessListener) -> None:
        """Set the listener; earlier output is discarded."""
        self._listener = listener
        if self._failure is None:
            self._output.on_data = listener.received

    def hold(self) -> None:
        """Stop reading its output until `release`."""
        if self._failure is None:
            self._output.hold()

    def release(self) -> None:
        """Resume reading its output."""
        self._output.release()

    def give_up(self, code: str, reason: str) -> ServerFailed:
        """Give up this server for the given reason; the owner of the child then stops it."""
        self._output.pause()
        return self._end(code, reason)

    def failure(self, code: str, reason: str) -> ServerFailed:
        """Return a failure of this server, with its exit code and recent standard error."""
        return ServerFailed(code, f'Server "{self.name}" {reason}.', self.exited_with, self.stderr.tail())

    async def stop(self) -> None:
        """End it and its descendants: close its input, wait, SIGTERM, wait, SIGKILL. Idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._stopping:
                if not self._is_stopped:
                    await self._stop()
                    self._is_stopped = True

    async def _stop(self) -> None:
        self._end("server.ended", "was stopped")
        self._input.close()
        was_asked = False
        if not await self._is_gone_within(self._stop_wait):
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)  # a stopped process only reacts to SIGKILL
            if self._descendants is not None:
                await self._descendants.ask_to_end()
            was_asked = True
            await self._is_gone_within(self._stop_wait)
        # Also after a clean exit: a grandchild that has closed the pipes is still in the group.
        self._signal_group(signal.SIGKILL)
        with anyio.move_on_after(KILL_WAIT):
            await self._until(lambda: self._has_exited)
        self._output.close()
        self._errors.close()
        self._watch_exit.close()
        if not self._has_exited:
            # It stays on the guard's list and in the records.
            logger.warning("Process %d of server %s did not exit after SIGKILL.", self.pid, self.name)
            return
        if self._descendants is None or await self._descendants.end(was_asked=was_asked):
            self._on_gone(self.pid)
        else:
            logger.warning("A process that server %s started did not exit after SIGKILL.", self.name)
        self._process.poll()

    async def _is_gone_within(self, seconds: float) -> bool:
        """Wait for its exit, and for all processes that hold its pipes."""
        with anyio.move_on_after(seconds):
            await self._until(lambda: self._has_exited and self._output.is_done and self._errors.is_done)
            return True
        return False

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _stuck(self) -> None:
        self._end("server.stuck", "does not read its input")

    def _closed_a_pipe(self) -> None:
        """Wait a moment for the exit code, which is more useful than a closed pipe."""
        self._changed.set()
        if self._failure is None and self._timer is None:
            self._timer = self._loop.call_later(_CODE_WAIT, self._end, "server.ended", "closed the connection")

    def _on_process_exit(self, exit_code: int | None) -> None:
        self.exited_with = exit_code
        # The pipes may still contain its last output.
        self._output.drain(_LAST_OUTPUT)
        self._errors.drain(_LAST_OUTPUT)
        self._has_exited = True
        self._changed.set()
        self._end("server.ended", _exit_in_words(exit_code))

    def _end(self, code: str, reason: str) -> ServerFailed:
        if self._timer is not None:
            self._timer.cancel()
        if self._failure is None:
            self._failure = self.failure(code, reason)
            self._output.on_data = _discard
            self._output.release()  # so that the end of the pipe is noticed
            if self._listener is not None:
                self._listener.ended(self._failure)
        return self._failure


def _discard(data: bytes) -> None:
    """Discard output that nothing listens to."""


class _ExitWatch:
    """Calls back once when a process has exited, without reaping it if the system supports that."""

    def __init__(self, process: subprocess.Popen[bytes], on_exit: Callable[[int | None], None]) -> None:
        self._process = process
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._handle: int | None = None
        try:
            self._handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait, name=f"exit of {process.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._handle, self._ready)

    def close(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _ready(self) -> None:
        self.close()
        self._on_exit(_exit_code(self._process.pid, os.WNOHANG))

    def _wait(self) -> None:
        code = _exit_code(self._process.pid, 0) if hasattr(os, "waitid") else self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_exit, code)


def _exit_code(pid: int, options: int) -> int | None:
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | options)
    except ChildProcessError:  # it was reaped elsewhere
        return None
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _exit_in_words(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"was ended by signal {-exit_code}"
