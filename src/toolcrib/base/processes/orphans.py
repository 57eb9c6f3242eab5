"""Ends processes that an earlier crib left running, found by pid, start time and marker.

The guard normally ends a crib's children with it. This handles the case that the guard was killed too, and descendants
that left their process group. A process is ended if it carries the mark of a recorded server (`descendants`), or if its
environment contains the crib's marker and it is a recorded child (same pid, start time and boot) or belongs to the
session of one. Processes with only the crib's marker, such as a daemon that a coding agent started, are listed.

Linux only: elsewhere the owner of a process cannot be verified, so nothing is ended.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from toolcrib.base.home import MARKER
from toolcrib.base.processes.descendants import SeenProcess, carries, end, look, processes
from toolcrib.model.json import Json, JsonObject, is_object

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_ROUNDS = 5
_DEATH_WAIT = 2.0
_RECORDS_LIMIT = 1024 * 1024
_LINES_KEPT = 1000
"""Lines of exited children after which the file is rewritten."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A recorded child. The pid is only unique together with the start time (ticks since boot)."""

    pid: int
    started: int
    server: str
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of a sweep: ended pids, and pids that carry the crib's marker but belong to no server."""

    ended: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


class Records:
    """The file in which a crib records its children, one line for each start and each exit.

    Not synced: it has to outlive the crib, not the machine. A failed write is ignored, since servers must start even on
    a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: dict[int, Noted] = {}
        self._file: int | None = None
        self._lines = 0

    def add(self, pid: int, started: int, server: str, mark: str | None = None) -> None:
        """Record a child that was just started, and the mark of its descendants."""
        noted = self._noted[pid] = Noted(pid, started, server, mark)
        self._write(_line(noted))

    def remove(self, pid: int) -> None:
        """Record that a child has exited."""
        if self._noted.pop(pid, None) is not None:
            self._write(orjson.dumps({"gone": pid}))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, line: bytes) -> None:
        if self._file is None or self._lines > len(self._noted) + _LINES_KEPT:
            self._begin()
            return
        self._lines += 1
        try:
            os.write(self._file, line + b"\n")
        except OSError:
            self.close()  # the next write recreates the file

    def _begin(self) -> None:
        """Write a new file and replace the old one."""
        self.close()
        beside = self._path.with_name(f"{self._path.name}.new")
        lines = (orjson.dumps({"boot": _boot()}), *map(_line, self._noted.values()), b"")
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
            self._file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            os.write(self._file, b"\n".join(lines))
            self._lines = len(lines)
            beside.replace(self._path)


def _line(noted: Noted) -> bytes:
    mark: JsonObject = {"mark": noted.mark} if noted.mark else {}
    return orjson.dumps({"pid": noted.pid, "started": noted.started, "server": noted.server, **mark})


def read_records(path: Path) -> tuple[Noted, ...]:
    """Return the children recorded since this boot; none if the file is missing, unreadable or of an earlier boot."""
    try:
        with path.open("rb") as file:
            boot, *lines = [_object(line) for line in file.read(_RECORDS_LIMIT).split(b"\n")]
    except OSError:
        return ()
    if boot.get("boot") != _boot():
        return ()
    noted: dict[int, Noted] = {}
    for line in lines:
        match line:
            case {"pid": int(pid), "started": int(started), "server": str(server)}:
                mark: Json = line.get("mark")
                noted[pid] = Noted(pid, started, server, mark if isinstance(mark, str) else None)
            case {"gone": int(pid)}:
                noted.pop(pid, None)
            case _:  # the last line may be incomplete if the crib was killed
                pass
    return tuple(noted.values())


def _object(line: bytes) -> JsonObject:
    try:
        content: Json = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return content if is_object(content) else {}


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, or None if unknown."""
    seen = look(pid)
    return seen.started if seen is not None else None


def leftovers(records: Path, marker: str) -> tuple[int, ...]:
    """Return the processes that an earlier crib with this marker left. Blocking."""
    if sys.platform != "linux":
        return ()
    marks = _marks(read_records(records))
    return tuple(sorted(seen.pid for seen in processes() if _is_marked(seen, marker) or carries(seen.pid, marks)))


def sweep(records: Path, marker: str) -> Swept:
    """End the processes that an earlier crib with this marker left, and remove its records. Blocking."""
    if sys.platform != "linux":
        return Swept()
    noted = read_records(records)
    marks, started = _marks(noted), {each.pid: each.started for each in noted}

    def is_ours(seen: SeenProcess) -> bool:
        is_noted = started.get(seen.pid) == seen.started or _is_in_noted_session(seen, started)
        return (is_noted and _is_marked(seen, marker)) or carries(seen.pid, marks)

    ended: set[int] = set()
    left: set[int] = set()
    for _ in range(_ROUNDS):  # processes may fork while they are killed
        found = [seen for seen in processes() if seen.pid not in ended]
        own = [seen for seen in found if is_ours(seen)]
        left = {seen.pid for seen in found if seen not in own and _is_marked(seen, marker)}
        if not own:
            break
        ended |= end(own, is_ours, signal.SIGKILL, _DEATH_WAIT)
    records.unlink(missing_ok=True)
    return Swept(tuple(sorted(ended)), tuple(sorted(left)))


def _marks(noted: Iterable[Noted]) -> frozenset[str]:
    return frozenset(each.mark for each in noted if each.mark)


def _is_marked(seen: SeenProcess, marker: str) -> bool:
    try:
        variables = Path(f"/proc/{seen.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARKER}={marker}".encode() in variables


def _is_in_noted_session(seen: SeenProcess, noted: dict[int, int]) -> bool:
    # A session id is not reused while the session has members; a newer leader would have started later.
    return seen.session != seen.pid and seen.session in noted and seen.started >= noted[seen.session]


def _boot() -> str | None:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return None
