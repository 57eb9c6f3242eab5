"""Where a link stands, in words: each state has a sentence, and one thing to do next where something is to be done.

Above: `link`. Below: `model.links`. It must never name a command that does not exist.
"""

import time

from toolcrib.connect.offer import Offer
from toolcrib.connect.opening import Opened
from toolcrib.connect.process import ServerFailed
from toolcrib.errors import ConfigError, ToolcribError
from toolcrib.model.links import LinkState, LinkStatus
from toolcrib.model.servers import ServerSpec


class Report:
    """The state of one link, as it was last told."""

    def __init__(self) -> None:
        self.failure: ToolcribError | None = None
        self._state: LinkState = "not_checked"
        self._latency_ms: float | None = None
        self._opened: Opened | None = None
        self._retry_at: float | None = None
        self._retries = False

    @property
    def is_failed(self) -> bool:
        """Whether the last attempt failed and nothing happened since."""
        return self._state in ("failed", "needs_auth")

    @property
    def is_connected(self) -> bool:
        """Whether the conversation stood, and nothing else was told since."""
        return self._state == "connected"

    def connecting(self) -> None:
        """An attempt began."""
        self._state, self._retry_at = "connecting", None

    def connected(self, opened: Opened) -> None:
        """The conversation stands."""
        self._state, self._opened, self._retry_at = "connected", opened, None

    def closed(self) -> None:
        """The conversation was closed because nobody needs it."""
        self._state, self._opened = "not_checked", None

    def failed(self, failure: ToolcribError, wait: float | None = None, *, retries: bool = False) -> None:
        """An attempt failed, or the conversation broke; after `wait` it may be tried again, or is by itself."""
        self.failure = failure
        self._state = "needs_auth" if failure.code == "oauth.required" else "failed"
        self._opened = None
        self._retries = retries
        self._retry_at = time.time() + wait if wait is not None else None

    def answered(self, milliseconds: float) -> None:
        """How long the last answer took."""
        self._latency_ms = round(milliseconds, 3)

    def status(self, spec: ServerSpec, offer: Offer | None) -> LinkStatus:
        """The whole as a value."""
        failure, name = self.failure, spec.alias or spec.name
        sentence, action = self._words(name, offer)
        return LinkStatus(
            state=self._state,
            sentence=sentence,
            action=action,
            is_known=offer is not None,
            tools=len(offer.judged[0]) if offer is not None else 0,
            latency_ms=self._latency_ms,
            last_error=_brief(failure) if failure is not None else None,
            exited_with=failure.exited_with if isinstance(failure, ServerFailed) else None,
            stderr=failure.stderr if isinstance(failure, ServerFailed) else (),
            era=offer.era if offer is not None else None,
            version=offer.version if offer is not None else None,
            server_title=offer.title if offer is not None else None,
            pid=self._opened.pid if self._opened is not None else None,
            retry_at=self._retry_at,
        )

    def _words(self, name: str, offer: Offer | None) -> tuple[str, str]:
        test = f"toolcrib mcp test {name}"
        match self._state:
            case "connecting":
                return "It is being connected.", f"toolcrib mcp get {name}"
            case "connected":
                tools = len(offer.judged[0]) if offer is not None else 0
                count = "1 tool" if tools == 1 else f"{tools} tools"
                return f"It is connected and offers {count}.", f"toolcrib tools list --server {name}"
            case "needs_auth":
                return self._reason, f"toolcrib mcp auth {name}"
            case "failed":
                return self._reason, f"toolcrib mcp get {name}" if isinstance(self.failure, ConfigError) else test
            case "not_checked" if offer is not None:
                return "It is known from before and is connected when it is first used.", test
            case _:
                return "It was not connected yet.", test

    @property
    def _reason(self) -> str:
        failure = self.failure
        assert failure is not None
        parts = (_brief(failure), failure.hint)
        said = " ".join(part if part.endswith((".", "!", "?", "…")) else f"{part}." for part in parts if part)
        return f"{said} It is tried again by itself." if self._retries else said


def _brief(failure: ToolcribError) -> str:
    """What happened; what a server's process wrote stands beside it."""
    return failure.brief if isinstance(failure, ServerFailed) else failure.message
