"""Finds and ends all descendants of a server, by a mark that they inherit.

A server's process group ends with the server. A descendant can leave the group by creating its own session, and lose
its ancestors by forking twice. The mark stays: a resource limit without effect (CPU time of realtime threads), set to a
random number of decades for each start of a server. Limits are inherited by fork and exec. Alternatives: an environment
variable is lost by programs that clean their environment; a cgroup needs delegation; `PR_SET_CHILD_SUBREAPER` does not
identify the server, and makes the crib reap processes it did not start.

A program that changes this limit on purpose is not found. Only Linux exposes the limits of other processes; elsewhere
only the process group is ended.

Invariant: no signal by pid. A handle is opened first, then checked, then used, so a reused pid is never signalled.
"""

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""

_KILL_ROUNDS = 5
_DEATH_WAIT = 2.0
_PROC = Path("/proc")
_LIMIT = b"Max realtime timeout"
_MICROSECONDS = 10**15  # 31 years of uninterrupted work
_STARTING = threading.Lock()


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process as observed. The pid is only unique together with the start time (ticks since boot)."""

    pid: int
    session: int
    started: int


def new_mark() -> str:
    """Return a mark for one start of a server."""
    return str(_MICROSECONDS + secrets.randbelow(_MICROSECONDS))


if sys.platform == "win32":

    def start_marked(start: Callable[[], subprocess.Popen[bytes]], mark: str | None) -> subprocess.Popen[bytes]:
        """Start a process without a mark: Windows has no resource limits."""
        return start()
else:
    import resource

    def start_marked(start: Callable[[], subprocess.Popen[bytes]], mark: str | None) -> subprocess.Popen[bytes]:
        """Start a process that carries a mark from the beginning; with None, one without a mark.

        A limit is inherited from the whole process, so the crib itself has it while the child starts. It is removed
        from children that other threads started meanwhile. On systems without such limits, the process has no mark.
        """
        if sys.platform != "linux":
            return start()
        with _STARTING:
            before = resource.getrlimit(resource.RLIMIT_RTTIME)
            if mark is None or resource.RLIM_INFINITY != before[1] < int(mark):
                return start()
            resource.setrlimit(resource.RLIMIT_RTTIME, (int(mark), before[1]))
            try:
                process = start()
            finally:
                resource.setrlimit(resource.RLIMIT_RTTIME, before)
            for pid in _own_children() - {process.pid}:
                if _mark_of(pid) == mark:
                    with contextlib.suppress(OSError, ValueError):
                        resource.prlimit(pid, resource.RLIMIT_RTTIME, before)
        return process


def _own_children() -> set[int]:
    """Return the children started by any thread of this process."""
    found: set[int] = set()
    for file in _PROC.glob("self/task/*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, file.read_bytes().split()))
    return found


def find_marked(marks: Set[str]) -> list[SeenProcess]:
    """Return the processes of this user that carry one of these marks. Blocking."""
    if sys.platform != "linux" or not marks:
        return []
    return [seen for seen in processes() if carries(seen.pid, marks)]


def carries(pid: int, marks: Set[str]) -> bool:
    """Return whether a process carries one of these marks."""
    return bool(marks) and _mark_of(pid) in marks


def ask_to_end(marks: Set[str], wait: float = 0.0) -> None:
    """Send SIGTERM to all processes with these marks, and wait for them to exit. Blocking."""
    end(find_marked(marks), lambda seen: carries(seen.pid, marks), signal.SIGTERM, wait)


def kill_marked(marks: Set[str]) -> tuple[int, ...]:
    """Kill all processes with these marks. Returns those that do not exit. Blocking."""
    for _ in range(_KILL_ROUNDS):  # processes may fork while they are killed
        found = find_marked(marks)
        if not found:
            return ()
        end(found, lambda seen: carries(seen.pid, marks), signal.SIGKILL, _DEATH_WAIT)
    return tuple(seen.pid for seen in find_marked(marks))


class Descendants:
    """Ends descendants of a crib's servers. One scan of all processes serves all concurrent requests."""

    def __init__(self) -> None:
        self._asked = _Batch()
        self._ended = {True: _Batch(), False: _Batch()}  # keyed by whether SIGTERM was sent already
        self._left: set[str] = set()

    def of(self, mark: str) -> "MarkedProcesses":
        """Return the processes with one mark."""
        return MarkedProcesses(self, mark)

    async def ask_to_end(self, mark: str) -> None:
        """Send SIGTERM to all processes with this mark."""
        await self._asked.do(mark, ask_to_end)

    async def end(self, mark: str, *, was_asked: bool) -> bool:
        """Kill all processes with this mark, after some grace unless SIGTERM was sent. Returns whether all exited."""

        def work(marks: Set[str]) -> None:
            if not was_asked:
                ask_to_end(marks, GRACE)
            if kill_marked(marks):
                self._left |= {mark for mark in marks if find_marked({mark})}

        await self._ended[was_asked].do(mark, work)
        return mark not in self._left


@dataclass(frozen=True, slots=True)
class MarkedProcesses:
    """The descendants of one server."""

    _all: Descendants
    _mark: str

    async def ask_to_end(self) -> None:
        """Send SIGTERM to all of them."""
        await self._all.ask_to_end(self._mark)

    async def end(self, *, was_asked: bool) -> bool:
        """Kill them, after a grace period unless SIGTERM was sent. Returns whether all exited."""
        return await self._all.end(self._mark, was_asked=was_asked)


class _Batch:
    """Handles concurrent requests for single marks together."""

    def __init__(self) -> None:
        self._due: set[str] = set()
        self._working = anyio.Lock()

    async def do(self, mark: str, work: Callable[[Set[str]], None]) -> None:
        if sys.platform != "linux":
            return
        self._due.add(mark)
        async with self._working:
            if mark in self._due:  # otherwise another task has handled it since
                due, self._due = self._due, set()
                await anyio.to_thread.run_sync(work, due)


def end(
    processes: Iterable[SeenProcess], is_still: Callable[[SeenProcess], bool], number: signal.Signals, wait: float
) -> set[int]:
    """Signal processes and wait for them to exit. Returns those that were signalled."""
    signalled: set[int] = set()
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for process in processes:
            handle = _handle(process.pid)
            if handle is None:
                continue
            stack.callback(os.close, handle)
            # Checked after the handle was opened: only then do handle, start time and mark belong to the same process.
            if look(process.pid) == process and is_still(process):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(handle, number)
                    poll.register(handle, select.POLLIN)
                    signalled.add(process.pid)
        _await_deaths(poll, len(signalled), wait)
    return signalled


def processes() -> Iterator[SeenProcess]:
    """Yield all processes of this user except our own."""
    own, user = os.getpid(), os.geteuid()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == user and (seen := look(int(entry.name))):
                yield seen


def look(pid: int) -> SeenProcess | None:
    """Return the state of a process, or None if it has exited."""
    try:
        # The name, in parentheses, may contain anything; the numbers follow it.
        words = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(words) < 20 or words[0] in (b"Z", b"X"):
        return None
    return SeenProcess(pid, session=int(words[3]), started=int(words[19]))


def _mark_of(pid: int) -> str | None:
    try:
        lines = (_PROC / str(pid) / "limits").read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(_LIMIT):
            return line.removeprefix(_LIMIT).split()[0].decode()
    return None


def _handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _await_deaths(poll: "select.poll", count: int, wait: float) -> None:
    until = time.monotonic() + wait
    while count and (rest := until - time.monotonic()) > 0:
        for handle, _ in poll.poll(rest * 1000):
            poll.unregister(handle)
            count -= 1
