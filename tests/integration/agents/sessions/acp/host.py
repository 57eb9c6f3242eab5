"""A listening crib with the scripted agent of `agent.py` as a runtime."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib import Crib, ToolServer, tool
from toolcrib.agents.sessions.acp.runtime import AcpRuntime
from toolcrib.agents.sessions.programs import Program
from toolcrib.agents.sessions.runtime import Offered
from toolcrib.agents.sessions.runtimes import EndpointAccess
from toolcrib.base.processes.process import Processes
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.servers import ResolvedServer
from toolcrib.testing.environments import bare_environment
from toolcrib.web.run import hold

AGENT = Path(__file__).with_name("agent.py")


@dataclass(slots=True)
class Scripted:
    """The folder of the scripted agent, with its scripts and stored sessions."""

    folder: Path
    scripts: dict[str, Json] = field(default_factory=dict[str, Json])

    def script(self, name: str, steps: list[JsonObject]) -> None:
        """Set the steps for prompts that name this script."""
        self.scripts[name] = steps
        (self.folder / "scripts.json").write_text(json.dumps(self.scripts), encoding="utf-8")

    def seen(self) -> JsonObject:
        """Return what the agent was started with."""
        return json.loads((self.folder / "seen.json").read_text(encoding="utf-8"))

    def command(self, *habits: str) -> tuple[str, ...]:
        """Return the command that starts the agent."""
        return (sys.executable, str(AGENT), str(self.folder), *habits)

    def program(self) -> Program:
        """Return the agent as a program."""
        return Program("scripted", self.command())

    def toml(self, *habits: str, more: str = "") -> str:
        """Return the agent's table for the settings file."""
        return f"[runners.scripted]\ncommand = {json.dumps(self.command(*habits))}\n{more}\n"


@tool(read_only=True)
async def echo(text: str = "", n: int = 0) -> str:
    """Return the text."""
    return f"pong {text}"


@tool
async def other(text: str = "") -> str:
    """Return another text."""
    return f"other {text}"


@asynccontextmanager
async def listening(tmp_path: Path, environment: Environment | None = None, toml: str = "") -> AsyncGenerator[Crib]:
    """Run a listening crib with an own home and user, and the tools `lab/echo` and `shed/other`."""
    user, home, project = (tmp_path / name for name in ("user", "crib", "project"))
    for folder in (user, home, project):
        folder.mkdir(mode=0o700, exist_ok=True)
    (home / "toolcrib.toml").write_text(toml, encoding="utf-8")
    settings = Settings(home=home, port=0, default_cwd=project)
    async with hold(settings, kind="serve", port=0, environment=environment or bare_environment(user)) as holding:
        holding.crib.register(ToolServer("lab", tools=[echo]))
        holding.crib.register(ToolServer("shed", tools=[other]))
        yield holding.crib


@asynccontextmanager
async def runner_of(crib: Crib, program: Program, environment: Environment) -> AsyncGenerator[AcpRuntime]:
    """Open the runtime of a program that may see all tools of this crib."""
    endpoint_access = EndpointAccess(
        url=lambda: f"http://127.0.0.1:{crib.port}/mcp",
        tokens=crib.session_tokens,
        name=lambda ref: crib.gate.name("endpoint", ref),
    )
    async with Processes(environment, f"test-{crib.port}", crib.home.root / "agents.txt") as processes:
        async with processes.child("first", ResolvedServer("true"), str):
            pass  # the first process starts the guard, which stays
        yield AcpRuntime(program, environment, processes, endpoint_access)


def endpoint_name(offered: Offered) -> str:
    """Return the name by which the agent's model calls a tool."""
    return f"mcp__toolcrib__{offered.server}_{offered.name}"
