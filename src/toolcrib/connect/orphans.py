"""What an earlier crib left running: the children it noted, found again by pid, start time and marker, and ended.

The guard ends a crib's children with it; this is the second net, for when the guard was killed too. A process is ended
only if it carries our marker in its environment and is a noted child (same pid, same start time, same boot) or still
belongs to the session of one. What carries the marker but made a session of its own (a daemon, a browser) is listed.

Above: `process`. Below: /proc; elsewhere than on Linux nothing proves whose a process is, so nothing is ended. It must
never signal by number: a handle is opened first, then checked, then used, so a reused pid is never hit.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from toolcrib.connect.start import MARKER
from toolcrib.model.json import Json, JsonObject, is_object

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_ROUNDS = 5
_DEATH_WAIT = 2.0
_RECORDS_LIMIT = 1024 * 1024
_LINES_KEPT = 1000
"""Lines of children that are gone, after which the file is written anew."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A child as it was noted: its number means nothing without its start time (in ticks since the boot)."""

    pid: int
    started: int
    server: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did: pids it ended, and pids that carry the marker but are in sessions of their own."""

    ended: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Seen:
    pid: int
    session: int
    started: int


class Records:
    """The small file in which a crib notes its children, one line for each that starts and each that is gone.

    Not synced: it has to outlive us, not the machine. A note that cannot be written weakens the second net only;
    servers must still start on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: dict[int, Noted] = {}
        self._file: int | None = None
        self._lines = 0

    def add(self, pid: int, started: int, server: str) -> None:
        """Note a child that was just started."""
        noted = self._noted[pid] = Noted(pid, started, server)
        self._write(_line(noted))

    def remove(self, pid: int) -> None:
        """Forget a child that is gone."""
        if self._noted.pop(pid, None) is not None:
            self._write(orjson.dumps({"gone": pid}))

    def close(self) -> None:
        """Write no more."""
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
            self.close()  # the next note begins anew with all of them

    def _begin(self) -> None:
        """Write a whole new file, and put it in the place of the old one."""
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
    return orjson.dumps({"pid": noted.pid, "started": noted.started, "server": noted.server})


def read_records(path: Path) -> tuple[Noted, ...]:
    """The children noted since this boot; none if the file is missing, of an earlier boot or not ours to read."""
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
                noted[pid] = Noted(pid, started, server)
            case {"gone": int(pid)}:
                noted.pop(pid, None)
            case _:  # the last line, if the crib was killed while it wrote it
                pass
    return tuple(noted.values())


def _object(line: bytes) -> JsonObject:
    try:
        content: Json = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return content if is_object(content) else {}


def start_time(pid: int) -> int | None:
    """When a process of this number started, in ticks since the boot; None where that cannot be told."""
    seen = _look(pid)
    return seen.started if seen is not None else None


def marked(marker: str) -> tuple[int, ...]:
    """The processes that carry this marker, whoever started them. Blocks: it is for a worker thread."""
    if sys.platform != "linux":
        return ()
    return tuple(sorted(seen.pid for seen in _processes() if _is_marked(seen.pid, marker)))


def sweep(records: Path, marker: str) -> Swept:
    """End what an earlier crib of this marker left, and forget its notes. Blocks: it is for a worker thread."""
    if sys.platform != "linux":
        return Swept()
    noted = {each.pid: each.started for each in read_records(records)}
    ended: set[int] = set()
    left: set[int] = set()
    for _ in range(_ROUNDS):  # what is being ended may just have forked
        marked = [seen for seen in _processes() if seen.pid not in ended and _is_marked(seen.pid, marker)]
        ours = [seen for seen in marked if noted.get(seen.pid) == seen.started or _is_in_noted_session(seen, noted)]
        left = {seen.pid for seen in marked if seen not in ours}
        if not ours:
            break
        ended |= _end(ours, marker)
    records.unlink(missing_ok=True)
    return Swept(tuple(sorted(ended)), tuple(sorted(left)))


def _is_in_noted_session(seen: _Seen, noted: dict[int, int]) -> bool:
    # The number of a session is not given again while anybody is in it; a newer leader would have started later.
    return seen.session != seen.pid and seen.session in noted and seen.started >= noted[seen.session]


def _end(processes: list[_Seen], marker: str) -> set[int]:
    ended: set[int] = set()
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for process in processes:
            handle = _handle(process.pid)
            if handle is None:
                continue
            stack.callback(os.close, handle)
            # Only now is it certain that handle, start time and marker are of one and the same process.
            if _look(process.pid) == process and _is_marked(process.pid, marker):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    poll.register(handle, select.POLLIN)
                    ended.add(process.pid)
        _await_deaths(poll, len(ended))
    return ended


def _await_deaths(poll: "select.poll", count: int) -> None:
    until = time.monotonic() + _DEATH_WAIT
    while count and (rest := until - time.monotonic()) > 0:
        for handle, _ in poll.poll(rest * 1000):
            poll.unregister(handle)
            count -= 1


def _handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _processes() -> Iterator[_Seen]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and (seen := _look(int(entry.name))):
            yield seen


def _look(pid: int) -> _Seen | None:
    try:
        # The name, in parentheses, may hold anything; the numbers stand after it.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(words) < 20 or words[0] in (b"Z", b"X"):
        return None
    return _Seen(pid, session=int(words[3]), started=int(words[19]))


def _is_marked(pid: int, marker: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARKER}={marker}".encode() in variables


def _boot() -> str | None:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return None
