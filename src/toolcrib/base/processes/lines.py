"""Splits the output of a pipe into lines of limited length, and counts lines that are not messages.

Must never hold more of a line than the limit, or look at a byte twice: endless output costs no more than reading it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

LINE_LIMIT: Final = 16 * 1024 * 1024
"""Maximum length of a line; longer lines are rejected individually."""
FLOOD_LIMIT: Final = 4 * LINE_LIMIT
"""A line that has not ended after this many bytes is not a message."""
GARBAGE_LINES: Final = 1_000
GARBAGE_BYTES: Final = 1024 * 1024

_EDGE = 512
_SAMPLES = 5
_SAMPLE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line over the limit: reported once when it exceeds it, and again when it ends.

    `head` and `tail` are its edges, where the id of a reply is found; `size` is the number of bytes received.
    """

    size: int
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    over: bool


Line = bytes | OversizedLine


class Lines:
    """Splits chunks at line feeds and keeps incomplete lines."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Number of bytes received of an incomplete line."""
        return self._size

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that end in this chunk, without line feeds, including empty ones."""
        if not self._size and data.find(b"\n") == len(data) - 1 <= self._limit:
            return [data[:-1]]  # the common case: one complete message
        first, *others = data.split(b"\n")
        if not others:
            return self._keep(first)
        lines: list[Line] = [self._finish(first)]
        rest = others.pop()
        lines += others if len(data) <= self._limit else map(self._check, others)
        return lines + self._keep(rest)

    def end(self) -> list[Line]:
        """Return the incomplete last line, if any, after the pipe is closed."""
        return [self._finish(b"")] if self._size else []

    def _keep(self, part: bytes) -> list[Line]:
        before = self._size
        self._size += len(part)
        if before > self._limit:
            self._tail = (self._tail + part)[-_EDGE:]
        elif part:
            self._parts.append(part)
            if self._size > self._limit:
                self._head, self._tail = _edges(self._parts)
                self._parts.clear()
                return [OversizedLine(self._size, self._head, self._tail, over=False)]
        return []

    def _finish(self, part: bytes) -> Line:
        if not self._size:
            return self._check(part)
        size = self._size + len(part)
        skipped = self._size > self._limit
        self._size = 0
        if skipped:
            return OversizedLine(size, self._head, (self._tail + part)[-_EDGE:], over=True)
        self._parts.append(part)
        line = b"".join(self._parts)
        self._parts.clear()
        return self._check(line)

    def _check(self, line: bytes) -> Line:
        return line if len(line) <= self._limit else OversizedLine(len(line), line[:_EDGE], line[-_EDGE:], over=True)


def _edges(parts: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return both ends of the joined parts without joining them, which would block the event loop."""
    head = tail = b""
    for part in parts:
        head += part[:_EDGE]
        if len(head) >= _EDGE:
            break
    for part in reversed(parts):
        tail = part[-_EDGE:] + tail
        if len(tail) >= _EDGE:
            break
    return head[:_EDGE], tail[-_EDGE:]


@dataclass(slots=True)
class Garbage:
    """Output that is not a message: its amount, and the first lines as samples."""

    lines: int = 0
    size: int = 0
    samples: list[str] = field(default_factory=list[str])

    def add(self, line: bytes) -> None:
        """Count a line."""
        self.lines += 1
        self.size += len(line) + 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(line[:_SAMPLE_LENGTH].decode("utf-8", "replace").strip())

    def add_blank(self) -> None:
        """Count an empty line by size only: some servers end each message twice."""
        self.size += 1

    def add_refused(self) -> None:
        """Count a line that was too long, without its size: it may have been meant as a message."""
        self.lines += 1

    @property
    def is_too_much(self) -> bool:
        """Whether the output is more than an occasional stray print."""
        return self.lines > GARBAGE_LINES or self.size > GARBAGE_BYTES
