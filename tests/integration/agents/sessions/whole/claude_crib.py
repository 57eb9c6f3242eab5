"""A whole crib whose agents are the real Claude Code on the scripted model.

Only public surfaces are used: the events of a session, the audit, and the requests to the model.
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
TIMEOUT = 60.0
"""Seconds that a test waits for anything, on a busy machine."""


@dataclass
class Lab:
    """A server whose tools record their arguments; `wait` runs once `started` is set."""

    calls: list[JsonObject] = field(default_factory=list[JsonObject])
    started: anyio.Event = field(default_factory=anyio.Event)

    def server(self) -> ToolServer:
        """Return the server `lab`."""

        @tool(read_only=True)
        async def look() -> str:
            """Look at a page."""
            self.calls.append({"tool": "look"})
            return "looked"

        @tool(read_only=True, open_world=True)
        async def browse() -> str:
            """Look at a page of the web."""
            return "browsed"

        @tool
        async def change(text: str, times: int = 1) -> str:
            """Change a text."""
            self.calls.append({"text": text, "times": times})
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
    """One call of the model in a turn, from its events."""

    id: str
    name: str
    arguments: JsonObject
    parent: str | None
    approval: JsonObject | None
    result: JsonObject

    @property
    def is_error(self) -> bool:
        """Return whether it failed or was refused."""
        return self.result["isError"] is True

    @property
    def text(self) -> str:
        """The content of the result as JSON."""
        return json.dumps(self.result["content"], ensure_ascii=False)

    @property
    def outcome(self) -> str:
        """`asked`, `ran` or `denied`."""
        if self.approval is not None:
            return "asked"
        return "denied" if self.is_error else "ran"


class Turn(list[SessionEvent]):
    """The events of one prompt and its answer."""

    def of(self, *kinds: str) -> list[JsonObject]:
        """Return the data of the events of these kinds."""
        return [event.data for event in self if event.kind in kinds]

    @property
    def text(self) -> str:
        """All text of the model."""
        return "\n".join(str(data["text"]) for data in self.of("text_message"))

    @property
    def reason(self) -> Json:
        """The reason of the turn's end."""
        return self[-1].data["reason"]

    @property
    def calls(self) -> list[Call]:
        """The calls, in the order of their start."""
        ends = {data["toolCallId"]: data["arguments"] for data in self.of("tool_call_end")}
        results = {data["toolCallId"]: data for data in self.of("tool_result")}
        asked = {data["toolCallId"]: data for data in self.of("approval_required")}
        return [
            Call(id, event.data["toolName"], ends[id], event.parent, asked.get(id), results[id])
            for event in self
            if event.kind == "tool_call_start" and (id := event.data["toolCallId"])
        ]


Answer = Callable[[Crib, SessionEvent], Awaitable[None]]


async def approve_all(crib: Crib, event: SessionEvent) -> None:
    """Approve every pending call."""
    if event.kind == "approval_required":
        await crib.approvals.answer(event.data["approvalId"], "approve", by=crib.owner("cli"))


def deny_all(reason: str) -> Answer:
    """Return a function that denies every pending call with this reason."""

    async def answer(crib: Crib, event: SessionEvent) -> None:
        if event.kind == "approval_required":
            await crib.approvals.answer(event.data["approvalId"], "deny", by=crib.owner("cli"), reason=reason)

    return answer


async def read(events: AsyncIterator[SessionEvent], crib: Crib, answer: Answer = approve_all) -> Turn:
    """Read a turn to its end; `answer` responds to its approvals."""
    turn = Turn()
    with anyio.fail_after(TIMEOUT):
        async for event in events:
            turn.append(event)
            await answer(crib, event)
            if event.kind == "done":
                break
    return turn


@dataclass
class ClaudeCrib:
    """The crib, its model, the directory its agents work in, and the server `lab`."""

    crib: Crib
    model: ScriptedModel
    project: Path
    lab: Lab

    def script(self, name: str, *steps: JsonObject) -> str:
        """Set the model's steps and return the prompt for them."""
        self.model.scripts[name] = list(steps)
        return prompt(name)

    async def send(self, id: str, content: str, answer: Answer = approve_all) -> Turn:
        """Send a prompt to a session and return its turn."""
        sent = await self.crib.sessions.send(id, content)
        log = await self.crib.sessions.events(id)

        async def events() -> AsyncGenerator[SessionEvent]:
            async for batch in log.follow(sent.seq - 1):
                for event in batch:
                    yield event

        return await read(events(), self.crib, answer)

    async def records(self, session: str) -> dict[str, list[JsonObject]]:
        """Return the audit records of a session by call, oldest first."""
        calls: dict[str, list[JsonObject]] = {}
        for record in reversed(await self.crib.audit.find(Filters(session=session, limit=1000))):
            calls.setdefault(record["call"], []).append(record)
        return calls

    def model_call_ids(self) -> set[str]:
        """Return the ids of the calls in the requests to the model, which it waited for."""
        return {block["id"] for block in blocks(self.model.bodies, "tool_use")}

    def tool_results(self) -> str:
        """Return the tool results that the model received, as JSON."""
        results = blocks(self.model.bodies, "tool_result")
        return json.dumps([block.get("content") for block in results], ensure_ascii=False)

    async def wait_until_ready(self, *servers: str) -> None:
        """Wait until these servers have listed their tools."""
        with anyio.fail_after(TIMEOUT):
            for server in servers:
                await self.crib.ready(self.crib.owner("api"), server)


def blocks(bodies: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    """Return the blocks of a type in requests to the model."""
    return [
        block
        for body in bodies
        for message in body["messages"]
        if is_array(message["content"])
        for block in message["content"]
        if block["type"] == kind
    ]


def tool_block(name: str, **arguments: Json) -> JsonObject:
    """Return a block that calls a tool."""
    return {"tool": name, "input": arguments}


def bash_block(command: str) -> JsonObject:
    """Return a block that runs a command."""
    return tool_block("Bash", command=command, description="d")


def kill_claude() -> None:
    """Kill the process of Claude Code."""
    (pid,) = (pid for pid, name in descendants().items() if name == "claude")
    os.kill(pid, signal.SIGKILL)


def upstream(*words: str) -> JsonObject:
    """Return the definition of a test server, as in `mcp.json`."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", *words],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }


@asynccontextmanager
async def open_claude_crib(
    folder: Path,
    environment: Environment,
    model: ScriptedModel,
    servers: Mapping[str, JsonObject] | None = None,
    more: Collection[ToolServer] = (),
    max_sessions: int = 8,
) -> AsyncGenerator[ClaudeCrib]:
    """Open a crib in this folder with the lab, these upstream servers, and `more`."""
    home, project = prepare_home(folder / "home"), folder / "project"
    project.mkdir(exist_ok=True)
    if servers:
        (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    settings = Settings(home=home.root, port=0, default_cwd=project, max_sessions=max_sessions)
    async with Crib(settings, environment=environment) as crib:
        lab = Lab()
        for server in (lab.server(), *more):
            crib.register(server)
        claude = ClaudeCrib(crib, model, project, lab)
        await claude.wait_until_ready(*(servers or ()))
        yield claude
