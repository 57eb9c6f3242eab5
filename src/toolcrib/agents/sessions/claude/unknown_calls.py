"""Records calls of tools that a session does not have, which Claude Code refuses itself.

Claude Code runs the hooks only for tools it knows. If a model calls another one, perhaps one hidden from it, Claude
Code returns an error immediately, and the gate would not know about it.
"""

from collections.abc import Collection
from typing import NamedTuple

from claude_agent_sdk import AssistantMessage, Message, ToolResultBlock, ToolUseBlock, UserMessage

from toolcrib.agents.sessions.claude.mapping import OWN_NAMES
from toolcrib.agents.sessions.runtime import SessionHost
from toolcrib.model.json import JsonObject


class _Call(NamedTuple):
    name: str
    arguments: JsonObject


class UnknownCalls:
    """The unknown calls of one conversation. `known` are the names of all its tools."""

    def __init__(self, known: Collection[str], host: SessionHost) -> None:
        self._known = frozenset(known)
        self._host = host
        self._open: dict[str, _Call] = {}
        self._refused: list[_Call] = []

    def decided(self, tool_call: str | None) -> None:
        """Forget a call that a hook decided after all: it has its own audit record."""
        self._open.pop(tool_call or "", None)

    def take(self, message: Message) -> None:
        """Detect unknown calls and their results."""
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock) and OWN_NAMES.get(block.name, block.name) not in self._known:
                    self._open[block.id] = _Call(block.name, block.input)
        elif isinstance(message, UserMessage) and not isinstance(message.content, str):
            ids = (block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock))
            self._refused += [call for id in ids if (call := self._open.pop(id, None)) is not None]

    async def record(self) -> None:
        """Record the refused calls."""
        while self._refused:
            call = self._refused.pop(0)
            await self._host.refused(call.name, call.arguments)
