"""The Agent Client Protocol over the pipes of a process: one message per line, both ways.

Must never buffer more of an agent's output than one line of the maximum length, nor accept invalid lines as messages.
"""

import asyncio
from typing import Any, Final

import orjson

from toolcrib.base.processes.pipes import Garbage, Lines, OversizedLine
from toolcrib.base.processes.process import Child, ServerFailed
from toolcrib.model.json import Json, dumps, is_object, loads

_TOO_LONG: Final = "wrote a line that is too long for a message"
_NO_PROTOCOL: Final = "does not speak the Agent Client Protocol on its output"


class ChildTransport:
    """The transport of the protocol's connection; `failure` is why it ended."""

    def __init__(self, child: Child) -> None:
        self.failure: ServerFailed | None = None
        self._child = child
        self._lines = Lines()
        self._garbage = Garbage()
        self._inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        child.listen(self)

    def received(self, data: bytes) -> None:
        """Process output of the process."""
        for line in self._lines.feed(data):
            if isinstance(line, OversizedLine):
                self._child.give_up("runner.died", _TOO_LONG)
                return
            if line.strip():
                self._take(line)

    def ended(self, failure: ServerFailed) -> None:
        """Record that the process ended."""
        self.failure = failure
        self._inbox.put_nowait(None)

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self._child.write(dumps(message, default=str) + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        return await self._inbox.get()

    async def close(self) -> None:
        """Stop receiving; the owner of the process ends it."""
        self._inbox.put_nowait(None)

    def give_up(self, reason: str) -> None:
        """End the process for the given reason."""
        self._child.give_up("runner.died", reason)

    def _take(self, line: bytes) -> None:
        try:
            message: Json = loads(line)
        except orjson.JSONDecodeError:
            message = None
        if is_object(message):
            self._inbox.put_nowait(message)
            return
        self._garbage.add(line)
        if self._garbage.is_too_much:
            self._child.give_up("runner.died", _NO_PROTOCOL)
