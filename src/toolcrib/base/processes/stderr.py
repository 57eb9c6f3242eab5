"""Reads a server's standard error and keeps the most recent part, for display as clean lines without secrets.

Must never keep more than its limit, or return a line before its secrets are masked.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Final

Mask = Callable[[str], str]
"""Masks the secrets in a line."""

STDERR_LIMIT: Final = 1024 * 1024
_LINE_LENGTH = 500
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class StderrRing:
    """The last bytes of a stream."""

    def __init__(self, mask: Mask, limit: int = STDERR_LIMIT) -> None:
        self._mask = mask
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_cut = False
        self.total = 0
        """Total number of bytes received."""

    def add(self, data: bytes) -> None:
        """Add a chunk; drops the oldest ones over the limit."""
        self.total += len(data)
        self._chunks.append(data[-self._limit :])
        self._size += len(self._chunks[-1])
        while self._size > self._limit:
            self._size -= len(self._chunks.popleft())
            self._is_cut = True

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """Return the last non-empty lines: masked first, then without control characters and shortened."""
        recent: list[bytes] = []
        size = 0
        for chunk in reversed(self._chunks):
            recent.append(chunk)
            size += len(chunk)
            if size > lines * 4 * _LINE_LENGTH + 65_536:
                break
        is_cut = self._is_cut or len(recent) < len(self._chunks)
        found = b"".join(reversed(recent)).decode("utf-8", "replace").splitlines()
        if is_cut and len(found) > 1:
            found = found[1:]
        masked = self._mask("\n".join(found[-4 * lines :])).split("\n")
        shown = (_CONTROL.sub("", line).strip() for line in masked)
        cut = [line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}…" for line in shown if line]
        return tuple(cut[-lines:])
