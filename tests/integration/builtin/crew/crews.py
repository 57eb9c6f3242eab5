"""A crib with agents whose sessions play scripts, and helpers that call the crew tools."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from toolcrib import Crib
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import AgentQuestion, Session, SessionEvent
from toolcrib.model.tools import CallResult
from toolcrib.testing import crib as open_crib
from toolcrib.testing.played import PlayedRunner

Found = TypeVar("Found")
TIMEOUT = 20.0
"""Seconds that a test waits for anything."""


class PlayedClaude(PlayedRunner):
    """The scripted runtime under the default runtime's name, so that sessions which name no runtime use it."""

    name = "claude"


@dataclass(frozen=True, slots=True)
class Crew:
    """A crib with agents `captain`, `mate`, `cook` and `gull`; sessions play scripts."""

    crib: Crib
    runner: PlayedRunner

    def script(self, name: str, *steps: JsonObject) -> None:
        """Set the steps that answer a prompt with `[[script:name]]`."""
        self.runner.scripts[name] = list(steps)

    async def call(self, tool: str, principal: Principal, **arguments: Json) -> CallResult:
        """Call a crew tool through the gate."""
        with anyio.fail_after(TIMEOUT):
            return await self.crib.call(f"crew/{tool}", arguments, principal=principal)

    async def result_of(self, tool: str, principal: Principal, **arguments: Json) -> Any:
        """Return the structured result of a crew tool that must succeed."""
        result = await self.call(tool, principal, **arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def error_of(self, tool: str, principal: Principal, **arguments: Json) -> str:
        """Return the error text of a crew tool that must fail."""
        result = await self.call(tool, principal, **arguments)
        assert result.is_error, result.structured_content
        return str(result.content[0]["text"])

    async def session(
        self,
        agent: str | None = "captain",
        *,
        mode: Mode = "bypassPermissions",
        source: Source = "api",
        **more: Any,
    ) -> Session:
        """Create a session of an agent without sending a message."""
        return await self.crib.sessions.create(NewSession(source, agent=agent, mode=mode, **more))

    async def turn(self, session: str, prompt: str) -> list[SessionEvent]:
        """Send a prompt and return the session events until its turn is done."""
        log = await self.crib.sessions.events(session)
        sent = await self.crib.sessions.send(session, prompt)
        events: list[SessionEvent] = []
        with anyio.fail_after(TIMEOUT):
            async for batch in log.follow(sent.seq - 1):
                events += batch
                if any(event.kind == "done" for event in batch):
                    return events
        raise AssertionError("The session was closed.")

    async def until(self, look: Callable[[], Found | None]) -> Found:
        """Return the first truthy result of `look`; call it again after every event of the crib."""
        with anyio.fail_after(TIMEOUT):
            async for _ in self.crib.feed.follow(0):
                if found := look():
                    return found
        raise AssertionError("The feed has ended.")

    async def question(self) -> AgentQuestion:
        """Wait for the next question of an agent."""
        with anyio.fail_after(TIMEOUT):
            async for _ in self.crib.feed.follow(0):
                for question in await self.crib.sessions.questions():
                    return question
        raise AssertionError("The feed has ended.")

    async def transcript(self, session: str) -> list[SessionEvent]:
        """Return all recorded events of a session."""
        return [event async for event in self.crib.sessions.transcript(session)]


def agent_input(id: str, mode: Mode | None = None, permissions: list[str] | None = None) -> AgentInput:
    """Return the definition of a new agent."""
    fields = {"id": id, "name": id.title(), "description": f"Is {id}.", "mode": mode, "toolPermissions": permissions}
    return parse(AgentInput, fields)


def text_step(text: str) -> JsonObject:
    """Return a step that answers with a text."""
    return {"blocks": [{"text": text}]}


def call_step(tool: str, **arguments: Json) -> JsonObject:
    """Return a step that calls a crew tool."""
    return {"blocks": [{"tool": f"mcp__crew__{tool}", "input": arguments}]}


REPEAT_RESULT = text_step("Heard: {{last_tool_result}}")
"""A step that repeats the last tool result."""


def texts(events: list[SessionEvent]) -> list[str]:
    """Return the texts of the messages."""
    return [str(event.data["text"]) for event in events if event.kind == "text_message"]


def results(events: list[SessionEvent]) -> list[str]:
    """Return the contents of the tool results."""
    return [str(event.data["content"]) for event in events if event.kind == "tool_result"]


@asynccontextmanager
async def open_crew(scripts: Mapping[str, Json] | None = None) -> AsyncGenerator[Crew]:
    """Open a crew for a test."""
    async with open_crib() as crib:
        runner = PlayedClaude({"hello": [text_step("Hello from here.")], **(scripts or {})})
        crib.runners.add(runner)
        for id in ("captain", "mate", "cook", "gull"):
            await crib.zoo.create(agent_input(id), by="test")
        yield Crew(crib, runner)
