"""A crib with a crew whose sessions play scripts, and how tests call its tools. Not a test itself."""

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
SOON = 20.0
"""Seconds in which everything that a test waits for has happened."""


class ClaudePlayed(PlayedRunner):
    """Plays in the place of the usual runtime, so that sessions which name none play too."""

    name = "claude"


@dataclass(frozen=True, slots=True)
class Crew:
    """A crib with agents `captain`, `mate`, `cook` and `gull`; sessions play scripts."""

    crib: Crib
    runner: PlayedRunner

    def script(self, name: str, *steps: JsonObject) -> None:
        """A prompt with `[[script:name]]` is answered like this."""
        self.runner.scripts[name] = list(steps)

    async def use(self, tool: str, principal: Principal, **arguments: Json) -> CallResult:
        """Call a crew tool through the gate."""
        with anyio.fail_after(SOON):
            return await self.crib.call(f"crew/{tool}", arguments, principal=principal)

    async def ok(self, tool: str, principal: Principal, **arguments: Json) -> Any:
        """What a crew tool gives; fails where it fails."""
        result = await self.use(tool, principal, **arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def wrong(self, tool: str, principal: Principal, **arguments: Json) -> str:
        """What a crew tool says where it fails."""
        result = await self.use(tool, principal, **arguments)
        assert result.is_error, result.structured_content
        return str(result.content[0]["text"])

    async def session(
        self, agent: str | None = "captain", *, mode: Mode = "bypassPermissions", source: Source = "api", **more: Any
    ) -> Session:
        """A session of an agent, which has not spoken yet."""
        return await self.crib.sessions.create(NewSession(source, agent=agent, mode=mode, **more))

    async def turn(self, session: str, prompt: str) -> list[SessionEvent]:
        """Everything that happens until a prompt is answered."""
        log = await self.crib.sessions.events(session)
        sent = await self.crib.sessions.send(session, prompt)
        events: list[SessionEvent] = []
        with anyio.fail_after(SOON):
            async for batch in log.follow(sent.seq - 1):
                events += batch
                if any(event.kind == "done" for event in batch):
                    return events
        raise AssertionError("The session was closed.")

    async def until(self, look: Callable[[], Found | None]) -> Found:
        """What is found by looking, once it is; looked for whenever something happens in the crib."""
        with anyio.fail_after(SOON):
            async for _ in self.crib.feed.follow(0):
                if found := look():
                    return found
        raise AssertionError("The feed has ended.")

    async def question(self) -> AgentQuestion:
        """The question that an agent asks, once it does."""
        with anyio.fail_after(SOON):
            async for _ in self.crib.feed.follow(0):
                for question in await self.crib.sessions.questions():
                    return question
        raise AssertionError("The feed has ended.")

    async def transcript(self, session: str) -> list[SessionEvent]:
        """All that is on record of a session."""
        return [event async for event in self.crib.sessions.transcript(session)]


def agent(id: str, mode: Mode | None = None, permissions: list[str] | None = None) -> AgentInput:
    """An agent to be made."""
    given = {"id": id, "name": id.title(), "description": f"Is {id}.", "mode": mode, "toolPermissions": permissions}
    return parse(AgentInput, given)


def say(text: str) -> JsonObject:
    """A step that says something."""
    return {"blocks": [{"text": text}]}


def do(tool: str, **arguments: Json) -> JsonObject:
    """A step that calls a crew tool."""
    return {"blocks": [{"tool": f"mcp__crew__{tool}", "input": arguments}]}


HEARD = say("Heard: {{last_tool_result}}")
"""A step that repeats what the last tool gave."""


def texts(events: list[SessionEvent]) -> list[str]:
    """What was said, one text a message."""
    return [str(event.data["text"]) for event in events if event.kind == "text_message"]


def results(events: list[SessionEvent]) -> list[str]:
    """What tools gave."""
    return [str(event.data["content"]) for event in events if event.kind == "tool_result"]


@asynccontextmanager
async def open_crew(scripts: Mapping[str, Json] | None = None) -> AsyncGenerator[Crew]:
    """A crew for a test."""
    async with open_crib() as crib:
        runner = ClaudePlayed({"hello": [say("Hello from here.")], **(scripts or {})})
        crib.runners.add(runner)
        for id in ("captain", "mate", "cook", "gull"):
            await crib.zoo.create(agent(id), by="test")
        yield Crew(crib, runner)
