"""Records MCP sessions that their clients ended.

A session id is sealed state, so an ended id would remain valid if it were not recorded. Digests with their expiry are
kept in memory and in one small file of the home, the newest `KEPT` of them. A forgotten id works only with its own
credential, which could open a new session anyway.
"""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

KEPT = 10_000

logger = logging.getLogger(__name__)


class EndedSessions:
    """The ids of ended sessions. Without a file, they are kept in memory only."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._until: dict[str, float] = dict(self._read())
        self._lines = len(self._until)

    def __contains__(self, session_id: str) -> bool:
        return self._until.get(_digest(session_id), 0.0) > self._clock()

    def add(self, session_id: str, seconds: float) -> None:
        """Record that this session ended. The entry expires after this many seconds."""
        key, until = _digest(session_id), self._clock() + seconds
        self._until[key] = until
        self._lines += 1
        try:
            if self._lines > 2 * KEPT:
                self._compact()
            else:
                self._write(f"{key} {until:.0f}\n", os.O_APPEND)
        except OSError as error:
            logger.warning("Could not record the end of an MCP session: %s", error)

    def _compact(self) -> None:
        now = self._clock()
        left = [(key, until) for key, until in self._until.items() if until > now]
        self._until = dict(left[-KEPT:])
        self._lines = len(self._until)
        self._write("".join(f"{key} {until:.0f}\n" for key, until in self._until.items()), os.O_TRUNC)

    def _write(self, text: str, how: int) -> None:
        if self._file is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | how
        with os.fdopen(os.open(self._file, flags, 0o600), "w", encoding="ascii") as stream:
            stream.write(text)

    def _read(self) -> Iterator[tuple[str, float]]:
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            now = self._clock()
            for line in self._file.read_text(encoding="ascii", errors="replace").splitlines()[-2 * KEPT :]:
                key, _, until = line.partition(" ")
                if until.isdigit() and float(until) > now:
                    yield key, float(until)


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("latin-1", "replace")).hexdigest()[:32]
