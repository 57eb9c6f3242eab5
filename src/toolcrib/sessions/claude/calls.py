"""The calls of a conversation while they run: told before they are made, kept when they are done, ended with the turn.

Claude Code's requests come beside its messages and may overtake those that announce them, so whoever acts on a request
waits here until its call was told.

Above: `servers` and `hooks`. Below: `mapping` and the desk. It must never let a call begin that was not told.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from toolcrib.model.json import JsonObject
from toolcrib.sessions.claude.mapping import Mapper, Outcome
from toolcrib.sessions.runner import Desk

T = TypeVar("T")

PATIENCE: Final = 2.0
"""Seconds to wait for the message that announces a call, before it is told without."""
SETTLING: Final = 5.0


class Calls:
    """Those of one conversation."""

    def __init__(self, desk: Desk, mapper: Mapper | None = None) -> None:
        """Without a mapper nobody reads the messages here, and calls are made at once: the loop is somebody else's."""
        self._desk = desk
        self._mapper = mapper
        self._told = anyio.Event()
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()

    def take(self) -> None:
        """More was told."""
        told, self._told = self._told, anyio.Event()
        told.set()

    def keep(self, tool_call: str, outcome: Outcome) -> None:
        """What became of a call."""
        if self._mapper is not None:
            self._mapper.keep(tool_call, outcome)

    async def make(
        self,
        tool_call: str | None,
        name: str,
        arguments: JsonObject,
        act: Callable[[str], Awaitable[T]],
        agent: str | None = None,
    ) -> T | None:
        """Wait until a call was told, then act on it by its id; None if the turn is over before that is done."""
        id, patience = (tool_call, PATIENCE) if tool_call else (f"call_{uuid.uuid4().hex}", 0.0)
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                if self._mapper is not None:
                    with anyio.move_on_after(patience):
                        while not self._mapper.is_told(id):
                            await self._told.wait()
                    for emission in self._mapper.announce(id, name, arguments, agent):
                        self._desk.emit(*emission)
                return await act(id)
            finally:
                self._running.discard(scope)
                ended, self._ended = self._ended, anyio.Event()
                ended.set()
        return None

    async def settle(self) -> None:
        """The turn is over: cancel what still runs, and wait for it."""
        with anyio.move_on_after(SETTLING):
            while self._running:
                for scope in self._running:
                    scope.cancel()
                await self._ended.wait()
