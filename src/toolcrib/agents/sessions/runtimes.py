"""The runtimes of a crib by name; each is loaded when a session first needs it.

The Claude Agent SDK takes a second and 70 MB to import and may not be installed; the rest of Toolcrib works without it.
The same applies to the Agent Client Protocol, which drives other coding agents.
"""

import importlib
import importlib.util
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anyio.to_thread

from toolcrib.agents.sessions.programs import Programs
from toolcrib.agents.sessions.runtime import Brief, Conversation, Runtime, SessionHost
from toolcrib.base.processes.process import Processes
from toolcrib.base.settings import Environment
from toolcrib.gate.principals import SessionTokens
from toolcrib.model.errors import NotFound, Unavailable
from toolcrib.model.tools import ToolRef

CLAUDE = "claude"


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """How a runtime in its own process reaches the session's tools: over the network, with a token.

    `url` returns the endpoint, None while the crib does not listen; `name` a tool's name there.
    """

    url: Callable[[], str | None]
    tokens: SessionTokens
    name: Callable[[ToolRef], str]


class Runtimes:
    """All runtimes. `directory` is a private directory for the files they need to start."""

    def __init__(
        self,
        environment: Environment,
        directory: Path,
        programs: Programs,
        processes: Processes,
        endpoint_access: EndpointAccess,
    ) -> None:
        """`programs` are the agents that run as `processes` of their own and connect back through `endpoint_access`."""
        self._environment = environment
        self._directory = directory
        self._programs = programs
        self._processes = processes
        self._endpoint_access = endpoint_access
        self._known: dict[str, Runtime] = {CLAUDE: _LazyRuntime(CLAUDE, self._claude)}

    def add(self, runtime: Runtime) -> None:
        """Add or replace a runtime."""
        self._known[runtime.name] = runtime

    def remove(self, name: str) -> None:
        """Remove a runtime that was added. Idempotent."""
        self._known.pop(name, None)

    def get(self, name: str) -> Runtime:
        """Return the runtime of this name; raises `runner.unknown`, `runner.invalid`."""
        if name in self._known:
            return self._known[name]
        if self._programs.find(name) is None:
            available = ", ".join((*self._known, *self._programs.names()))
            raise NotFound("runner.unknown", f"There is no runtime {name!r}.", f"Available: {available}.")
        return _LazyRuntime(name, lambda: self._acp(name))

    def _claude(self) -> Runtime:
        return load_claude().ClaudeRuntime(self._environment, self._directory)

    def _acp(self, name: str) -> Runtime:
        program = self._programs.find(name)
        if program is None:
            raise NotFound("runner.unknown", f"Runtime {name!r} was removed.")
        return load_acp().AcpRuntime(program, self._environment, self._processes, self._endpoint_access)


def load_claude() -> ModuleType:
    """Import the runtime for the Claude Agent SDK; raises `runner.missing` if that is not installed."""
    try:
        return importlib.import_module("toolcrib.agents.sessions.claude.runtime")
    except ModuleNotFoundError as error:
        if error.name != "claude_agent_sdk":
            raise
        raise Unavailable("runner.missing", "The Claude Agent SDK is not installed.") from error


def load_acp() -> ModuleType:
    """Import the runtime for the Agent Client Protocol; raises `runner.missing` if that is not installed."""
    try:
        return importlib.import_module("toolcrib.agents.sessions.acp.runtime")
    except ModuleNotFoundError as error:
        if error.name != "acp":
            raise
        message = "The Agent Client Protocol is not installed."
        raise Unavailable("runner.missing", message, "pip install 'toolcrib[acp]'") from error


def has_runtime() -> bool:
    """Return whether any runtime is installed, without importing it."""
    return any(importlib.util.find_spec(name) is not None for name in ("claude_agent_sdk", "acp"))


class _LazyRuntime:
    """A runtime that is loaded in a thread when first opened, so that the event loop is not blocked."""

    def __init__(self, name: str, load: Callable[[], Runtime]) -> None:
        self.name = name
        self._load = load
        self._loaded: Runtime | None = None

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Open a conversation."""
        if self._loaded is None:
            self._loaded = await anyio.to_thread.run_sync(self._load)
        async with self._loaded.open(brief, host) as conversation:
            yield conversation
