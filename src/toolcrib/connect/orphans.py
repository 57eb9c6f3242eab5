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
from toolcrib.model.json import Json, is_array, is_object

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_ROUNDS = 5
_DEATH_WAIT = 2.0
_RECORDS_LIMIT = 1024 * 1024


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
    """The small file in which a crib notes its children. Not synced: it has to outlive us, not the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: dict[int, Noted] = {}

    def add(self, pid: int, server: str) -> None:
        """Note a child that was just started."""
        seen = _look(pid)
        if seen is not None:
            self._noted[pid] = Noted(pid, seen.started, server)
            self._write()

    def remove(self, pid: int) -> None:
        """Forget a child that is gone."""
        if self._noted.pop(pid, None) is not None:
            self._write()

    def _write(self) -> None:
        children = [{"pid": each.pid, "started": each.started, "server": each.server} for each in self._noted.values()]
        beside = self._path.with_name(f"{self._path.name}.new")
        # A note that cannot be written weakens the second net only; servers must still start on a full disk.
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps({"boot": _boot(), "children": children}))
            beside.replace(self._path)


def read_records(path: Path) -> tuple[Noted, ...]:
    """The children noted since this boot; none if the file is missing, of an earlier boot or not ours to read."""
    try:
        with path.open("rb") as file:
            content: Json = orjson.loads(file.read(_RECORDS_LIMIT))
    except (OSError, ValueError):
        return ()
    if not is_object(content) or content.get("boot") != _boot() or not is_array(content.get("children")):
        return ()
    return tuple(
        Noted(each["pid"], each["started"], str(each.get("server")))
        for each in content["children"]
        if is_object(each) and type(each.get("pid")) is int and type(each.get("started")) is int
    )


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
