"""The processes of a session (in the sense of the system) and their memory, as the system reports them."""

import os
from collections.abc import Collection
from pathlib import Path

_PROCESSES = Path("/proc")
_SESSION, _RESIDENT = 3, 21
"""Positions in `/proc/PID/stat` after the name of the program."""


def measure_sessions(leaders: Collection[int]) -> tuple[int, int] | None:
    """Return the number of processes in the sessions of these leaders, and their resident bytes.

    None if the system does not tell. Reads one file per process on the machine; call it in a worker thread.
    """
    if not (_PROCESSES / "self" / "stat").exists():
        return None
    count = pages = 0
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # the process ended meanwhile
            if int(fields[_SESSION]) in leaders:
                count += 1
                pages += int(fields[_RESIDENT])
    return count, pages * os.sysconf("SC_PAGE_SIZE")
