"""The interface between a session and its runtime: the Claude Agent SDK, or any agent that speaks ACP.

A runtime opens conversations; a conversation answers one prompt at a time. A runtime reports all its activity to the
`SessionHost`, which is also its only access to tools, permissions and the person. `testing.runners` is the conformance
test suite for runtimes.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from toolcrib.model.agents import ListingMode
from toolcrib.model.approvals import with_edited, without_structure
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import NO_LIMITS, ServerHealth, SessionEventKind, SessionLimits, TurnEnd
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, Tool, ToolRef


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as shown to the session's model; `server` and `name` are the two parts of the displayed name."""

    server: str
    name: str
    tool: Tool


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything a conversation starts with.

    `prompt` is appended to the runtime's own. `own_tools` are the permitted tools of the coding agent itself. `resume`
    is the runtime's id of the conversation to continue, or to copy if `fork`. `variables` are added to the environment
    of the runtime's process. `listing` is what `tools` contains: all tools, or those that find and call the others.
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
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    listing: ListingMode = "all"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool and its duration.

    `edited` are the arguments that ran if a person changed them; the model must be informed of this.
    """

    result: CallResult
    duration_ms: float
    edited: bytes | None = None

    @property
    def for_model(self) -> CallResult:
        """Return the result as sent to the model."""
        return self.result if self.edited is None else with_edited(without_structure(self.result), self.edited)


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a coding agent's own tool may run, and with which arguments; the model receives `reason` on a refusal.

    In a replay, `instead` is the recorded result, which is shown in place of the refusal.
    """

    allowed: bool
    arguments: JsonObject
    reason: str = ""
    instead: Result | None = None


class SessionHost(Protocol):
    """What a runtime may request from the crib. No method raises, except for cancellation."""

    def principal(self) -> Principal:
        """Return the session's current principal."""
        ...

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Report an event. `tool_call_start` and `tool_call_end` precede all other events of a call."""
        ...

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Call one of the crib's tools through the gate, which may require approval. A refusal is an error result.

        `progress` receives progress reports, also while the call is waiting.
        """
        ...

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Return whether one of the runtime's own tools may run; if allowed, the intent is already in the audit log."""
        ...

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Report that a permitted own tool has ended; returns once the outcome is in the audit log."""
        ...

    async def refused(self, tool: ToolRef | str, arguments: JsonObject) -> None:
        """Record a call that the runtime refused itself: the session has no tool of this name."""
        ...

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Ask the person the agent's questions; return the answers by question, None if there are none."""
        ...


class Conversation(Protocol):
    """An open conversation in its runtime; one turn at a time."""

    @property
    def runtime(self) -> str | None:
        """Return the id with which the runtime can resume it, if known already; stored before the first turn starts.

        A runtime asked to resume an unknown id starts a new conversation with that id.
        """
        ...

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt. Returns once the turn is completely over; does not raise for failures of the runtime."""
        ...

    async def interrupt(self) -> None:
        """Interrupt the running turn."""
        ...

    async def set_mode(self, mode: Mode) -> None:
        """Switch to this mode."""
        ...

    async def set_model(self, model: str | None) -> None:
        """Switch to this model; None means the runtime's own choice."""
        ...

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return the runtime's view of the session's servers."""
        ...


@runtime_checkable
class RuntimeDetails(Protocol):
    """Optional information about a conversation, if its runtime provides it."""

    @property
    def model(self) -> str | None:
        """Return the model in use."""
        ...

    @property
    def writes_as(self) -> str | None:
        """Return the id under which the runtime records it, even if it cannot be resumed yet."""
        ...


class Runtime(Protocol):
    """One kind of runtime."""

    @property
    def name(self) -> str:
        """Return the name sessions use for it (`claude`, or a configured agent's name)."""
        ...

    def open(self, brief: Brief, host: SessionHost) -> AbstractAsyncContextManager[Conversation]:
        """Start the runtime. Raises `Unavailable` with a reason and a next step on failure."""
        ...
