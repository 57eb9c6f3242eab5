"""The running calls of a conversation: emitted before they are made, and ended with their turn.

Claude Code's requests may overtake the messages that announce them, so the handler of a request waits here until its
call was emitted.

Must never let a call start that was not emitted.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from toolcrib.agents.sessions.claude.mapping import ClaudeMapper, ClaudeOutcome
from toolcrib.agents.sessions.runtime import SessionHost
from toolcrib.model.json import JsonObject

T = TypeVar("T")

TIMEOUT: Final = 2.0
"""Seconds to wait for the message that announces a call, before it is emitted without."""
SETTLING: Final = 5.0


class ClaudeCalls:
    """The calls of one conversation."""

    def __init__(self, host: SessionHost, mapper: ClaudeMapper | None = None) -> None:
        """Without a mapper, calls are made immediately: an external loop reads the messages."""
        self._host = host
        self._mapper = mapper
        self._told = anyio.Event()
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()

    def take(self) -> None:
        """Wake up requests that wait for their call to be emitted."""
        told, self._told = self._told, anyio.Event()
        told.set()

    def keep(self, tool_call: str, outcome: ClaudeOutcome) -> None:
        """Store the outcome of a call."""
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
        """Wait until a call was emitted, then `act` on its id; return None if the turn ends first."""
        id, timeout = (tool_call, TIMEOUT) if tool_call else (f"call_{uuid.uuid4().hex}", 0.0)
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                if self._mapper is not None:
                    with anyio.move_on_after(timeout):
                        while not self._mapper.is_announced(id):
                            await self._told.wait()
                    for emission in self._mapper.announce(id, name, arguments, agent):
                        self._host.emit(*emission)
                return await act(id)
            finally:
                self._running.discard(scope)
                ended, self._ended = self._ended, anyio.Event()
                ended.set()
        return None

    async def settle(self) -> None:
        """End the turn: cancel running calls and wait for them."""
        with anyio.move_on_after(SETTLING):
            while self._running:
                for scope in self._running:
                    scope.cancel()
                await self._ended.wait()
