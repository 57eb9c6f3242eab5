"""Interface between the catalog and sources of tools: Python functions in this process, and upstream servers.

Only the gate calls `prepare`, its result, and `request`. A call has two steps so that arguments are validated before a
person approves them, and exactly the validated arguments run.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from toolcrib.model.approvals import Approval
from toolcrib.model.json import Json, JsonObject, no_members
from toolcrib.model.observing import Trace
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.servers import ServerNames
from toolcrib.model.tools import CallResult, ContentItem, ServerKind, Tool

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Reports progress to the caller: progress, total if known, a message."""


Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Sends a server's request (method, params) to the client of the call and returns its result. Raises `ProtocolError` if
the client refuses or does not support it."""
OnApproval = Callable[[Approval | None], None]
"""Notices that a call waits for this approval, or with None that it no longer waits."""
Tell = Callable[[str, JsonObject], Awaitable[None]]
"""Forwards a server's notification (method, params) to the client of the call."""


class ProtocolError(Exception):
    """A protocol error from one side, to be forwarded to the other: code, message and data."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


_NOTHING: JsonObject = {}
"""Shared default; must stay empty."""


class Client(NamedTuple):
    """What the client of a call supports while the call runs.

    `capabilities` and `info` are as sent by the client. `session` identifies its MCP session, for servers that are not
    shared between sessions. `ask` is None if the client cannot answer. `answers_by_retry`: the client accepts an
    `input_required` result and retries with the answers, in `responses` and `state`. `meta` is the rest of the
    request's `_meta`, to be forwarded. `on_approval` is called when the call begins and ends to wait for an approval,
    `on_task` when the server answered with a task: it takes the server and the id of the task, and returns a function
    that decides whether the task goes on at the server if the call is cancelled.
    """

    capabilities: JsonObject = _NOTHING
    info: JsonObject | None = None
    session: str | None = None
    ask: Ask | None = None
    tell: Tell | None = None
    log_level: str | None = None
    answers_by_retry: bool = False
    responses: JsonObject | None = None
    state: str | None = None
    meta: Mapping[str, Json] = _NOTHING
    on_approval: OnApproval | None = None
    on_task: Callable[[str, str], Awaitable[Callable[[], bool]]] | None = None


class CallContext(NamedTuple):
    """Context of a running call. `client` is None for calls that no MCP client made. `trace` is sent to the server."""

    principal: Principal
    call_id: str
    report_progress: ReportProgress | None = None
    client: Client | None = None
    trace: Trace | None = None


RunCall = Callable[[CallContext], Awaitable[CallResult]]
"""A call with validated arguments. Returns an error result if the tool fails; cancellation propagates."""


class ToolSource(Protocol):
    """The tools of one server. A source whose `tools` or `problems` change notifies the catalog."""

    @property
    def name(self) -> str:
        """The server's name: safe characters, unique in the crib."""
        ...

    @property
    def kind(self) -> ServerKind:
        """Built-in, plugin or upstream."""
        ...

    def tools(self) -> Sequence[Tool]:
        """Return the current tools."""
        ...

    def problems(self) -> Sequence[Problem]:
        """Return problems with the server as a whole, or with tools it could not offer."""
        ...

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Validate and bind the arguments; `canonical` is their canonical JSON.

        Raises `InvalidRequest` (`tool.arguments_invalid`) with field and reason, `NotFound` for a removed tool.
        """
        ...


@runtime_checkable
class NamedSource(Protocol):
    """A source whose server is defined in files, possibly under several names."""

    @property
    def server_names(self) -> ServerNames:
        """The definition's identity and other names."""
        ...


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a server reported in its last handshake: capabilities, server info and instructions."""

    capabilities: JsonObject = field(default_factory=no_members)
    info: JsonObject = field(default_factory=no_members)
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification that a server sends outside of any call.

    `kind` is its method without `notifications/` (`resources/updated`, `message`). `session` is the MCP session it is
    addressed to, or None for all subscribers.
    """

    kind: str
    server: str
    params: JsonObject
    session: str | None = None


ContentMethod = Literal[
    "resources/read",
    "prompts/get",
    "skills/get",
    "completion/complete",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "tasks/get",
]
"""`tasks/get` waits for the end of a task of the server and returns the result of its call. `skills/get` adds a skill
that the server does not list to its skills, and returns nothing."""


@runtime_checkable
class ContentSource(ToolSource, Protocol):
    """A source that also offers prompts, resources and resource templates."""

    def prompts(self) -> Sequence[ContentItem]:
        """Return the current prompts; each key is a name."""
        ...

    def resources(self) -> Sequence[ContentItem]:
        """Return the current resources; each key is a URI."""
        ...

    def templates(self) -> Sequence[ContentItem]:
        """Return the current resource templates; each key is a URI template."""
        ...

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Request content from the server, by its own names. Returns the result unchanged.

        Raises `ProtocolError` if the server answers with an error, `Unavailable` if it cannot be reached.
        """
        ...


@runtime_checkable
class SkillSource(Protocol):
    """A source that also offers skills."""

    async def skills(self) -> Sequence[ContentItem]:
        """Return the current skills; each key is the URI of a `SKILL.md`, each definition an entry of `skills/list`."""
        ...


@runtime_checkable
class ConditionalSource(Protocol):
    """A source that offers some tools only if their requirements are met."""

    def lacks(self, tool: str) -> str | None:
        """Return the unmet requirements of a tool; None if it is offered or unknown."""
        ...


@runtime_checkable
class HoldingSource(Protocol):
    """A source that holds some tools until a person has accepted their definitions."""

    def holds(self, tool: str) -> bool:
        """Return whether a tool is held."""
        ...
