"""The port between the catalog and whatever offers tools: Python functions in this process, and upstream servers.

The gate is the only caller of `prepare`, of what it returns, and of `request`. Splitting a call in two lets arguments
be checked before anybody is asked to approve them, and lets exactly the checked arguments run afterwards.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from toolcrib.model.json import Json, JsonObject, no_members
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tools import CallResult, ContentItem, ServerKind, Tool

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells the caller how far a call has come: progress, total if known, a message."""


Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Puts a server's own request (method, params) to the client of the call, and gives its result.

Raises `ProtocolError` where the client refuses or cannot do it."""
Tell = Callable[[str, JsonObject], Awaitable[None]]
"""Passes a notification (method, params) of the server on to the client of the call."""


class ProtocolError(Exception):
    """An error of the protocol that one side answered the other with: its code, message and data, to be passed on."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


_NOTHING: JsonObject = {}
"""Stays empty: whoever has it does not change what it was given."""


class Client(NamedTuple):
    """What the client behind a call can do for a server while the call runs.

    `capabilities` and `info` are the client's own, as it gave them. `session` names the conversation the client has
    with us, for servers that are not shared between conversations. `ask` is missing where nobody could answer.
    `answers_by_retry` says that the client takes an `input_required` result and asks again with the answers, which are
    then in `responses` and `state`. `meta` is the rest of the request's `_meta`, to be passed on.
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


class CallContext(NamedTuple):
    """What a running call may know of its surroundings. `client` is None for calls that no MCP client made."""

    principal: Principal
    call_id: str
    report_progress: ReportProgress | None = None
    client: Client | None = None


RunCall = Callable[[CallContext], Awaitable[CallResult]]
"""A call whose arguments were checked. A failure of the tool is an error result; cancellation stays cancellation."""


class ToolSource(Protocol):
    """One server's tools. `tools` and `problems` may change; whoever changes them tells the catalog."""

    @property
    def name(self) -> str:
        """The server's name: safe characters, unique in the crib."""
        ...

    @property
    def kind(self) -> ServerKind:
        """Built-in, plugin or upstream."""
        ...

    def tools(self) -> Sequence[Tool]:
        """The tools as they are now."""
        ...

    def problems(self) -> Sequence[Problem]:
        """What is wrong with the server as a whole, or with tools it could not offer."""
        ...

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        """Check the arguments and bind them; `canonical` is their canonical JSON.

        Raises `InvalidRequest` (`tool.arguments_invalid`) naming field and reason, `NotFound` for a tool that is gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a server said of itself when it was last met: what it can do, who it is, how it wants to be used."""

    capabilities: JsonObject = field(default_factory=no_members)
    info: JsonObject = field(default_factory=no_members)
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a server says by itself, outside of any call.

    `kind` is the method of its notification without `notifications/` (`resources/updated`, `message`). `session` names
    the conversation that it is meant for; it is None where it is meant for whoever asked to hear of it.
    """

    kind: str
    server: str
    params: JsonObject
    session: str | None = None


ContentMethod = Literal[
    "resources/read",
    "prompts/get",
    "completion/complete",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
]


@runtime_checkable
class ContentSource(ToolSource, Protocol):
    """A source that offers more than tools: prompts, resources and templates of resources."""

    def prompts(self) -> Sequence[ContentItem]:
        """The prompts as they are now; the key of each is its name."""
        ...

    def resources(self) -> Sequence[ContentItem]:
        """The resources as they are now; the key of each is its URI."""
        ...

    def templates(self) -> Sequence[ContentItem]:
        """The templates of resources as they are now; the key of each is its URI template."""
        ...

    async def request(self, method: ContentMethod, params: JsonObject, context: CallContext) -> JsonObject:
        """Ask the server for content, by its own names; gives the result as it came, all members kept.

        Raises `ProtocolError` if it answers with an error, `Unavailable` if it cannot be reached.
        """
        ...


@runtime_checkable
class ConditionalSource(Protocol):
    """A source that offers some of its tools only where what they need is there."""

    def lacks(self, tool: str) -> str | None:
        """What a tool needs that is not there, in words; None for one that is offered, or not known at all."""
        ...
