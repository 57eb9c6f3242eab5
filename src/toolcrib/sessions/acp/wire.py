"""The Agent Client Protocol on the pipes of a process: one message a line, both ways.

Above: `runner`. Below: the process in `connect`, the package's connection. It must never hold more of what an agent
writes than one line of the limit, nor take for a message what is none.
"""

import asyncio
from typing import Any, Final

import orjson

from toolcrib.connect.lines import Garbage, Lines, Oversized
from toolcrib.connect.process import Child, ServerFailed
from toolcrib.model.json import Json, is_object

_TOO_LONG: Final = "said more in one line than a message may have"
_NO_PROTOCOL: Final = "does not speak the Agent Client Protocol on its output"


class ChildTransport:
    """What the package's connection reads and writes; `failure` says why nothing more comes."""

    def __init__(self, child: Child) -> None:
        self.failure: ServerFailed | None = None
        self._child = child
        self._lines = Lines()
        self._garbage = Garbage()
        self._inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        child.listen(self)

    def received(self, data: bytes) -> None:
        """Bytes of its output."""
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                self._child.give_up("runner.died", _TOO_LONG)
                return
            if line.strip():
                self._take(line)

    def ended(self, failure: ServerFailed) -> None:
        """It came to its end."""
        self.failure = failure
        self._inbox.put_nowait(None)

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self._child.write(orjson.dumps(message, default=str) + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end."""
        return await self._inbox.get()

    async def close(self) -> None:
        """Whoever has the process ends it."""
        self._inbox.put_nowait(None)

    def give_up(self, reason: str) -> None:
        """End the conversation for a reason of ours."""
        self._child.give_up("runner.died", reason)

    def _take(self, line: bytes) -> None:
        try:
            message: Json = orjson.loads(line)
        except orjson.JSONDecodeError:
            message = None
        if is_object(message):
            self._inbox.put_nowait(message)
            return
        self._garbage.add(line)
        if self._garbage.is_too_much:
            self._child.give_up("runner.died", _NO_PROTOCOL)
