"""What was said with one server: the last messages of its protocol, for whoever wants to see why it behaves so.

Only that something was said, when, how long the answer took and how it ended; a server that stops in the middle of a
call is seen there. Above: `exchange` and `opening` note, `pool` shows. Below: nothing. It must never keep arguments or
results, and noting must cost a call no more than one appended tuple.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from toolcrib.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sources import ProtocolError

KEPT: Final = 200
OK: Final = "ok"
CANCELLED: Final = "cancelled"
Direction = Literal["out", "in"]
Note = tuple[float, float | None, Direction, str, Json, str | None]
"""When it began and ended (the system's clock), the direction, the method, the tool's name, how it ended."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message. `milliseconds` and `ended` are those of a request; `ended` is `ok`, `cancelled` or a code."""

    at: float
    direction: Direction
    method: str
    tool: str | None
    milliseconds: float | None
    ended: str | None

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {
            "at": self.at,
            "direction": self.direction,
            "method": self.method,
            "tool": self.tool,
            "milliseconds": self.milliseconds,
            "ended": self.ended,
        }


class Talk:
    """The last messages with one server, over all its conversations. `note` takes one."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=KEPT)
        self.note = self._notes.append

    def said(self) -> tuple[Said, ...]:
        """What is kept, the newest first."""
        return tuple(_said(*note) for note in reversed(self._notes))


def named(method: str, params: JsonObject) -> Json:
    """The tool that a request is about, as whoever asks calls it."""
    return params.get("name") if method == "tools/call" else None


def ending(error: BaseException) -> str:
    """How a request ended that gave no result, in a word."""
    if isinstance(error, ProtocolError):
        return str(error.code)
    if isinstance(error, ToolcribError):
        return error.code
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _said(began: float, over: float | None, direction: Direction, method: str, tool: Json, ended: str | None) -> Said:
    milliseconds = round(max(0.0, over - began) * 1000, 1) if over is not None else None
    return Said(began, direction, method, tool if isinstance(tool, str) else None, milliseconds, ended)
