"""Recent protocol messages of one server, for diagnosis.

An entry records method, time, duration and outcome, so a server that stops in the middle of a call is visible.

Must never store arguments or results. Recording must cost a call no more than one appended tuple.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sources import ProtocolError

KEPT: Final = 200
OK: Final = "ok"
CANCELLED: Final = "cancelled"
Direction = Literal["out", "in"]
Note = tuple[float, float | None, Direction, str, Json, str | None]
"""Start and end (system clock), direction, method, the name in the params and outcome."""


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """One message. Only requests have `milliseconds` and `ended`; `ended` is `ok`, `cancelled` or an error code."""

    at: float
    direction: Direction
    method: str
    tool: str | None
    milliseconds: float | None
    ended: str | None

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "at": self.at,
            "direction": self.direction,
            "method": self.method,
            "tool": self.tool,
            "milliseconds": self.milliseconds,
            "ended": self.ended,
        }


class ProtocolLog:
    """The latest messages of one server, across all its connections. `note` adds one."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=KEPT)
        self.note = self._notes.append

    def entries(self) -> tuple[LoggedMessage, ...]:
        """Return the recorded messages, newest first."""
        return tuple(_entry(*note) for note in reversed(self._notes))


def ending(error: BaseException) -> str:
    """Return the outcome of a request that failed, in one word."""
    if isinstance(error, ProtocolError):
        return str(error.code)
    if isinstance(error, ToolcribError):
        return error.code
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _entry(
    began: float, over: float | None, direction: Direction, method: str, name: Json, ended: str | None
) -> LoggedMessage:
    milliseconds = round(max(0.0, over - began) * 1000, 1) if over is not None else None
    tool = name if method == "tools/call" and isinstance(name, str) else None
    return LoggedMessage(began, direction, method, tool, milliseconds, ended)
