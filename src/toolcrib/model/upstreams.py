"""Status of the connection to one upstream server, for lists, the API and troubleshooting."""

from dataclasses import dataclass
from typing import Literal

from toolcrib.model.problems import Problem
from toolcrib.model.protocol import Era
from toolcrib.model.sandbox import RefusedAccess

UpstreamState = Literal["not_checked", "connecting", "connected", "needs_auth", "failed"]


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """State of a connection, with a message and, if needed, the next step.

    `is_known`: the server's tools have been listed, possibly in an earlier run; `tools` is their number. `latency_ms`
    is the duration of the last ping or list. `last_error` is kept after recovery; `error_code` is its code, `is_setup`
    whether the definition or the server has to change, in contrast to a server that cannot be reached. `retry_at` is
    the time of the next attempt (Unix seconds), if one is planned, `connecting_since` the start of the current one.
    `refused` is what its sandbox refused, `problems` the same for people.
    """

    state: UpstreamState = "not_checked"
    sentence: str = ""
    action: str | None = None
    is_known: bool = False
    tools: int = 0
    latency_ms: float | None = None
    last_error: str | None = None
    error_code: str | None = None
    is_setup: bool = False
    exited_with: int | None = None
    stderr: tuple[str, ...] = ()
    era: Era | None = None
    version: str | None = None
    server_title: str | None = None
    pid: int | None = None
    retry_at: float | None = None
    connecting_since: float | None = None
    refused: tuple[RefusedAccess, ...] = ()
    problems: tuple[Problem, ...] = ()
