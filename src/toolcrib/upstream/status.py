"""The status of an upstream as text: each state has a sentence and, where useful, one next step.

Must never name a command that does not exist.
"""

import time

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ConfigError, Denied, ToolcribError
from toolcrib.model.servers import ServerSpec, UpstreamState, UpstreamStatus
from toolcrib.upstream.http.refused import HttpRefused
from toolcrib.upstream.offer import Offer
from toolcrib.upstream.opener import OpenConnection

_SETUP_CODES = frozenset({"server.ended", "server.flood", "server.protocol", "server.reply_invalid"})
"""A program that exits, prints text that is not MCP, or a page in place of MCP."""
_WRONG_REQUEST = frozenset(range(400, 500)) - {408, 425, 429}


class Report:
    """The state of one upstream, as last reported."""

    def __init__(self) -> None:
        self.failure: ToolcribError | None = None
        self._state: UpstreamState = "not_checked"
        self._latency_ms: float | None = None
        self._opened: OpenConnection | None = None
        self._retry_at: float | None = None
        self._connecting_since: float | None = None
        self._retries = False

    @property
    def is_failed(self) -> bool:
        """Whether the latest attempt failed."""
        return self._state in ("failed", "needs_auth")

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._state == "connected"

    @property
    def is_connecting(self) -> bool:
        """Whether an attempt is in progress."""
        return self._state == "connecting"

    @property
    def tries_again(self) -> bool:
        """Whether the upstream retries on its own after the last failure."""
        return self._retries

    def connecting(self) -> None:
        """Record the start of an attempt."""
        self._state, self._retry_at = "connecting", None
        self._connecting_since = time.time()

    def connected(self, opened: OpenConnection) -> None:
        """Record an open connection."""
        self._state, self._opened, self._retry_at = "connected", opened, None

    def closed(self) -> None:
        """Record that an unused connection was closed."""
        self._state, self._opened = "not_checked", None

    def failed(self, failure: ToolcribError, wait: float | None = None, *, retries: bool = False) -> None:
        """Record a failed attempt or a broken connection. It may be retried after `wait`; with `retries` it will be."""
        self.failure = failure
        self._state = "needs_auth" if failure.code == "oauth.required" else "failed"
        self._opened = None
        self._retries = retries
        self._retry_at = time.time() + wait if wait is not None else None

    def answered(self, milliseconds: float) -> None:
        """Record the latency of the last response."""
        self._latency_ms = round(milliseconds, 3)

    def status(self, spec: ServerSpec, offer: Offer | None) -> UpstreamStatus:
        """Return the status as a value."""
        failure, name = self.failure, spec.alias or spec.name
        sentence, action = self._words(name, offer)
        return UpstreamStatus(
            state=self._state,
            sentence=sentence,
            action=action,
            is_known=offer is not None,
            tools=len(offer.checked_tools[0]) if offer is not None else 0,
            latency_ms=self._latency_ms,
            last_error=_brief(failure) if failure is not None else None,
            error_code=failure.code if failure is not None else None,
            is_setup=failure is not None and _is_setup(failure),
            exited_with=failure.exited_with if isinstance(failure, ServerFailed) else None,
            stderr=failure.stderr if isinstance(failure, ServerFailed) else (),
            era=offer.era if offer is not None else None,
            version=offer.version if offer is not None else None,
            server_title=offer.title if offer is not None else None,
            pid=self._opened.pid if self._opened is not None else None,
            retry_at=self._retry_at,
            connecting_since=self._connecting_since if self._state == "connecting" else None,
        )

    def _words(self, name: str, offer: Offer | None) -> tuple[str, str]:
        test = f"toolcrib mcp test {name}"
        match self._state:
            case "connecting":
                return "Connecting.", f"toolcrib mcp get {name}"
            case "connected":
                tools = len(offer.checked_tools[0]) if offer is not None else 0
                count = "1 tool" if tools == 1 else f"{tools} tools"
                return f"Connected · {count}", f"toolcrib tools list --server {name}"
            case "needs_auth":
                return self._reason, f"toolcrib mcp auth {name}"
            case "failed":
                return self._reason, f"toolcrib mcp get {name}" if isinstance(self.failure, ConfigError) else test
            case "not_checked" if offer is not None:
                return "Not connected. Connects on first use.", test
            case _:
                return "Not connected yet.", test

    @property
    def _reason(self) -> str:
        failure = self.failure
        assert failure is not None
        parts = (_brief(failure), failure.hint)
        reason = " ".join(part if part.endswith((".", "!", "?", "…")) else f"{part}." for part in parts if part)
        return f"{reason} Retrying automatically." if self._retries else reason


def _is_setup(failure: ToolcribError) -> bool:
    """Return whether trying again is pointless before the definition or the server changes."""
    if isinstance(failure, HttpRefused):
        return failure.http_status in _WRONG_REQUEST
    return isinstance(failure, ConfigError | Denied) or failure.code in _SETUP_CODES


def _brief(failure: ToolcribError) -> str:
    """Return what happened, without the process's stderr, which is reported separately."""
    return failure.brief if isinstance(failure, ServerFailed) else failure.message
