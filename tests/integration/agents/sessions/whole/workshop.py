"""A whole crib whose agents are the real Claude Code on the scripted model, and a person who answers.

Not a test itself. Everything is asked of the crib's own surface: what happened is read from the events of a session,
from the audit, and from what the model was sent.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from toolcrib import Crib, Settings, ToolServer, tool
from toolcrib.base.home import prepare_home
from toolcrib.base.settings import Environment
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.sessions import SessionEvent
from toolcrib.store.audit import Filters
from toolcrib.testing.processes import descendants
from toolcrib.testing.runner_rig import prompt
from toolcrib.testing.scripted_model.server import ScriptedModel

TESTS = Path(__file__).parents[4]
MODEL = "claude-sonnet-4-5"
BOUND = 60.0
"""Seconds that anything is waited for, on a machine that has other things to do."""


@dataclass
class Lab:
    """A server of Python tools that note what they were called with; `wait` is under way once `started` is set."""

    noted: list[JsonObject] = field(default_factory=list[JsonObject])
    started: anyio.Event = field(default_factory=anyio.Event)

    def server(self) -> ToolServer:
        """The server `lab`."""

        @tool(read_only=True)
        async def look() -> str:
            """Look at something."""
            self.noted.append({"tool": "look"})
            return "looked"

        @tool(read_only=True, open_world=True)
        async def browse() -> str:
            """Look at something far away."""
            return "browsed"

        @tool
        async def change(text: str, times: int = 1) -> str:
            """Change something."""
            self.noted.append({"text": text, "times": times})
            return f"changed {text}"

        @tool
        async def wait() -> str:
            """Never answer."""
            self.started.set()
            await anyio.sleep_forever()
            return "never"

        return ToolServer("lab", tools=[look, browse, change, wait])


@dataclass(frozen=True)
class Call:
    """One call of the model in a turn: what was told of it."""

    id: str
    name: str
    arguments: JsonObject
    parent: str | None
    approval: JsonObject | None
    result: JsonObject

    @property
    def is_error(self) -> bool:
        """Whether it failed or was refused."""
        return self.result["isError"] is True

    @property
    def text(self) -> str:
        """What came of it."""
        return json.dumps(self.result["content"], ensure_ascii=False)

    @property
    def became(self) -> str:
        """`asked`, `ran` or `denied`."""
        if self.approval is not None:
            return "asked"
        return "denied" if self.is_error else "ran"


class Turn(list[SessionEvent]):
    """The events of one prompt and its answer."""

    def of(self, *kinds: str) -> list[JsonObject]:
        """What the events of these kinds say."""
        return [event.data for event in self if event.kind in kinds]

    @property
    def text(self) -> str:
        """All that the model said."""
        return "\n".join(str(data["text"]) for data in self.of("text_message"))

    @property
    def reason(self) -> Json:
        """How it ended."""
        return self[-1].data["reason"]

    @property
    def calls(self) -> list[Call]:
        """The calls, in the order in which they began."""
        ends = {data["toolCallId"]: data["arguments"] for data in self.of("tool_call_end")}
        results = {data["toolCallId"]: data for data in self.of("tool_result")}
        asked = {data["toolCallId"]: data for data in self.of("approval_required")}
        return [
            Call(id, event.data["toolName"], ends[id], event.parent, asked.get(id), results[id])
            for event in self
            if event.kind == "tool_call_start" and (id := event.data["toolCallId"])
        ]


Person = Callable[[Crib, SessionEvent], Awaitable[None]]


async def agrees(crib: Crib, event: SessionEvent) -> None:
    """A person who approves whatever is asked."""
    if event.kind == "approval_required":
        await crib.approvals.answer(event.data["approvalId"], "approve", by=crib.owner("cli"))


def disagrees(reason: str) -> Person:
    """A person who refuses whatever is asked, and says why."""

    async def person(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            await crib.approvals.answer(event.data["approvalId"], "deny", by=crib.owner("cli"), reason=reason)

    return person


async def read(events: AsyncIterator[SessionEvent], crib: Crib, person: Person = agrees) -> Turn:
    """Follow a turn to its end; the person answers what is asked meanwhile."""
    turn = Turn()
    with anyio.fail_after(BOUND):
        async for event in events:
            turn.append(event)
            await person(crib, event)
            if event.kind == "done":
                break
    return turn


@dataclass
class Workshop:
    """The crib, its model, the directory its agents work in, and the server `lab`."""

    crib: Crib
    model: ScriptedModel
    project: Path
    lab: Lab

    def script(self, name: str, *steps: JsonObject) -> str:
        """Let the model take these steps; gives the prompt that it takes them for."""
        self.model.scripts[name] = list(steps)
        return prompt(name)

    async def say(self, id: str, content: str, person: Person = agrees) -> Turn:
        """Send a prompt to a session, and follow it to its end."""
        sent = await self.crib.sessions.send(id, content)
        log = await self.crib.sessions.events(id)

        async def events() -> AsyncGenerator[SessionEvent]:
            async for batch in log.follow(sent.seq - 1):
                for event in batch:
                    yield event

        return await read(events(), self.crib, person)

    async def records(self, session: str) -> dict[str, list[JsonObject]]:
        """What the audit has of a session, by call, oldest first."""
        calls: dict[str, list[JsonObject]] = {}
        for record in reversed(await self.crib.audit.find(Filters(session=session, limit=1000))):
            calls.setdefault(record["call"], []).append(record)
        return calls

    def made(self) -> set[str]:
        """The calls that the model made, as it was reminded of them: all that it waited for the result of."""
        return {block["id"] for block in blocks(self.model.bodies, "tool_use")}

    def heard(self) -> str:
        """The results of tools that the model was given."""
        results = blocks(self.model.bodies, "tool_result")
        return json.dumps([block.get("content") for block in results], ensure_ascii=False)

    async def know(self, *servers: str) -> None:
        """Wait until what these servers offer is known."""
        with anyio.fail_after(BOUND):
            for server in servers:
                await self.crib.ready(self.crib.owner("api"), server)


def blocks(bodies: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    """The blocks of a kind in requests to the model."""
    return [
        block
        for body in bodies
        for message in body["messages"]
        if is_array(message["content"])
        for block in message["content"]
        if block["type"] == kind
    ]


def use(name: str, **arguments: Json) -> JsonObject:
    """A block that calls a tool."""
    return {"tool": name, "input": arguments}


def bash(command: str) -> JsonObject:
    """A block that runs a command."""
    return use("Bash", command=command, description="d")


def kill_claude() -> None:
    """Kill the one process of Claude Code there is."""
    (pid,) = (pid for pid, name in descendants().items() if name == "claude")
    os.kill(pid, signal.SIGKILL)


def upstream(*words: str) -> JsonObject:
    """One of the small servers, as it stands in a file."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", *words],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }


@asynccontextmanager
async def open_workshop(
    folder: Path,
    environment: Environment,
    model: ScriptedModel,
    servers: Mapping[str, JsonObject] | None = None,
    more: Collection[ToolServer] = (),
    most: int = 8,
) -> AsyncGenerator[Workshop]:
    """A crib in this folder with the lab, these upstream servers, and `more`."""
    home, project = prepare_home(folder / "home"), folder / "project"
    project.mkdir(exist_ok=True)
    if servers:
        (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    settings = Settings(home=home.root, port=0, default_cwd=project, max_sessions=most)
    async with Crib(settings, environment=environment) as crib:
        lab = Lab()
        for server in (lab.server(), *more):
            crib.register(server)
        workshop = Workshop(crib, model, project, lab)
        await workshop.know(*(servers or ()))
        yield workshop
