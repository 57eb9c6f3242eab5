"""Lists descendant processes, to detect leaks.

Reads `/proc`, or runs `ps` where there is none.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TIMEOUT = 5.0
"""Seconds that processes get to exit."""

_PROC = Path("/proc")


class Process(NamedTuple):
    """One process of this machine; a zombie's state begins with Z."""

    pid: int
    parent: int
    state: str
    name: str


def descendants() -> dict[int, str]:
    """Return the running descendants of this process, by id with their names; without zombies."""
    processes = list(from_proc() if _PROC.joinpath("self", "stat").exists() else from_ps())
    found: dict[int, str] = {}
    parents = {os.getpid()}
    while parents:
        children = [each for each in processes if each.parent in parents and each.pid not in found]
        found |= {each.pid: each.name for each in children}
        parents = {each.pid for each in children}
    dead = {each.pid for each in processes if each.state.startswith("Z")}
    return {pid: name for pid, name in found.items() if pid not in dead}


def left_behind(before: dict[int, str], timeout: float = TIMEOUT) -> dict[int, str]:
    """Return the new processes that do not exit within this many seconds; they are killed."""
    deadline = time.monotonic() + timeout
    while left := {pid: name for pid, name in descendants().items() if pid not in before}:
        if time.monotonic() > deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return left
        time.sleep(0.02)
    return {}


def from_proc() -> Iterator[Process]:
    """Yield all processes from `/proc`."""
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):  # exited meanwhile
            # 12 (name, may contain blanks and parentheses) S 1 …
            start, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            state, parent = rest.split()[:2]
            yield Process(int(folder.name), int(parent), state, start.partition("(")[2])


def from_ps() -> Iterator[Process]:
    """Yield all processes from `ps`."""
    command = ["ps", "-axo", "pid=,ppid=,stat=,comm="]
    for line in subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines():
        pid, parent, state, name = line.split(None, 3)
        if name != "ps":
            yield Process(int(pid), int(parent), state, name)
