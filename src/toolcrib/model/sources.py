"""The port between the catalog and whatever offers tools: Python functions in this process, and upstream servers.

The gate is the only caller of `prepare` and of what it returns. Splitting a call in two lets arguments be checked
before anybody is asked to approve them, and lets exactly the checked arguments run afterwards.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.tools import CallResult, ServerKind, Tool

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells the caller how far a call has come: progress, total if known, a message."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a running call may know of its surroundings."""

    principal: Principal
    call_id: str
    report_progress: ReportProgress | None = None


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
