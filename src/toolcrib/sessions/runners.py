"""The runtimes a crib knows, by name; each is loaded when a session first needs it.

The Claude Agent SDK costs a second and 70 MB to import, and may not be installed at all: the rest of Toolcrib works
without it. The same holds for the Agent Client Protocol, by which other coding agents are driven.
"""

import importlib
import importlib.util
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anyio.to_thread

from toolcrib.connect import Processes
from toolcrib.errors import NotFound, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.principals import SessionTokens
from toolcrib.sessions.programs import Programs
from toolcrib.sessions.runner import Brief, Conversation, Desk, Runner
from toolcrib.settings import Environment

CLAUDE = "claude"


@dataclass(frozen=True, slots=True)
class Doorway:
    """How a runtime that is a process of its own comes to the session's tools: over the network, with a secret.

    `url` is where the tools are, None while the crib does not listen; `name` is what one is called there; `who` a
    session is now.
    """

    url: Callable[[], str | None]
    tokens: SessionTokens
    name: Callable[[ToolRef], str]
    who: Callable[[str], Principal | None]


class Runners:
    """All runtimes. `place` is a private directory for what they need to start."""

    def __init__(
        self, environment: Environment, place: Path, programs: Programs, processes: Processes, doorway: Doorway
    ) -> None:
        """`programs` are the agents that are started as `processes` of their own and come back by the `doorway`."""
        self._environment = environment
        self._place = place
        self._programs = programs
        self._processes = processes
        self._doorway = doorway
        self._known: dict[str, Runner] = {CLAUDE: _Late(CLAUDE, self._claude)}

    def add(self, runner: Runner) -> None:
        """Know another one, or another of the same name."""
        self._known[runner.name] = runner

    def get(self, name: str) -> Runner:
        """The runtime of this name; raises `runner.unknown`, `runner.invalid`."""
        if name in self._known:
            return self._known[name]
        if self._programs.find(name) is None:
            there = ", ".join((*self._known, *self._programs.names()))
            raise NotFound("runner.unknown", f"There is no runtime {name!r}.", f"There are: {there}.")
        return _Late(name, lambda: self._acp(name))

    def _claude(self) -> Runner:
        return load_claude().ClaudeRunner(self._environment, self._place)

    def _acp(self, name: str) -> Runner:
        program = self._programs.find(name)
        if program is None:
            raise NotFound("runner.unknown", f"There is no runtime {name!r} any more.")
        return load_acp().AcpRunner(program, self._environment, self._processes, self._doorway)


def load_claude() -> ModuleType:
    """The part that drives the Claude Agent SDK; raises `runner.missing` where that is not installed."""
    try:
        return importlib.import_module("toolcrib.sessions.claude")
    except ModuleNotFoundError as error:
        if error.name != "claude_agent_sdk":
            raise
        raise Unavailable("runner.missing", "The Claude Agent SDK is not installed.") from error


def load_acp() -> ModuleType:
    """The part that drives agents over their protocol; raises `runner.missing` where that is not installed."""
    try:
        return importlib.import_module("toolcrib.sessions.acp")
    except ModuleNotFoundError as error:
        if error.name != "acp":
            raise
        message = "The Agent Client Protocol is not installed."
        raise Unavailable("runner.missing", message, "pip install 'toolcrib[acp]'") from error


def has_runtime() -> bool:
    """Whether anything is installed that agents could run on; nothing is loaded to find out."""
    return any(importlib.util.find_spec(name) is not None for name in ("claude_agent_sdk", "acp"))


class _Late:
    """A runtime that is loaded in a thread when it is first opened, so that nothing else waits meanwhile."""

    def __init__(self, name: str, load: Callable[[], Runner]) -> None:
        self.name = name
        self._load = load
        self._loaded: Runner | None = None

    @asynccontextmanager
    async def open(self, brief: Brief, desk: Desk) -> AsyncGenerator[Conversation]:
        """Open a conversation."""
        if self._loaded is None:
            self._loaded = await anyio.to_thread.run_sync(self._load)
        async with self._loaded.open(brief, desk) as conversation:
            yield conversation
