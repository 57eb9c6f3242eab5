"""The port between a session and the runtime that thinks for it: the Claude Agent SDK, or any agent that speaks ACP.

A runner opens conversations; a conversation answers one prompt at a time. Everything a runtime does on the way is told
to the desk, which is also the only way to tools, to permission and to the person.

Above: the manager. Below: `model`. What every runner has to keep to is written as a test suite in `testing.runners`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import NO_LIMITS, ServerHealth, SessionEventKind, SessionLimits, TurnEnd
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, Tool


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as this session's model is shown it: `server` and `name` are the two parts of the name it sees."""

    server: str
    name: str
    tool: Tool


@dataclass(frozen=True, slots=True)
class Brief:
    """All that a conversation begins with.

    `prompt` is added to the runtime's own. `own_tools` are the tools of the coding agent itself that it may have.
    `resume` is the runtime's id of the conversation to go on with, or to begin a copy of if `fork`.
    """

    session: str
    cwd: str
    mode: Mode
    prompt: str
    tools: tuple[Offered, ...]
    own_tools: tuple[str, ...]
    model: str | None = None
    resume: str | None = None
    fork: bool = False
    limits: SessionLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back, and how long it took."""

    result: CallResult
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a coding agent's own tool may run, and with which arguments; `reason` is told to the model if not."""

    allowed: bool
    arguments: JsonObject
    reason: str = ""


class Desk(Protocol):
    """What a runtime may ask of the crib while it works. Nothing here raises but cancellation."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Tell what happens. A call is announced with its start and end before anything else is said of it."""
        ...

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Call one of the crib's tools through the gate, which may ask a person first. A refusal is an error result.

        `progress` is where a runtime hears how far it is, and that it still waits.
        """
        ...

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Ask whether one of the runtime's own tools may run; the intent is on record when this says yes."""
        ...

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """One of the runtime's own tools that was permitted has ended; its outcome is on record after this."""
        ...

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Put the agent's questions to the person; the answers by question, None if nobody will answer."""
        ...


class Conversation(Protocol):
    """A conversation that is open in its runtime; one turn at a time."""

    @property
    def runtime(self) -> str | None:
        """The id by which the runtime can resume it, if that is known already; kept before the first turn begins.

        A runner that is told to resume an id of which its runtime has kept nothing begins anew under it.
        """
        ...

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt. Returns once nothing more of it will happen; does not raise for what the runtime does."""
        ...

    async def interrupt(self) -> None:
        """End the running turn soon."""
        ...

    async def set_mode(self, mode: Mode) -> None:
        """From now on work in this mode."""
        ...

    async def set_model(self, model: str | None) -> None:
        """From now on think with this model; None is the runtime's own choice."""
        ...

    async def servers(self) -> tuple[ServerHealth, ...]:
        """How the runtime sees the servers of this session."""
        ...


class Runner(Protocol):
    """One kind of runtime."""

    @property
    def name(self) -> str:
        """What sessions call it (`claude`, or the name of a configured agent)."""
        ...

    def open(self, brief: Brief, desk: Desk) -> AbstractAsyncContextManager[Conversation]:
        """Start the runtime. Raises `Unavailable` with a sentence and a next step where that does not work."""
        ...
