"""What is known of the link to one upstream server, as a value: for lists, for the API, for whoever repairs it."""

from dataclasses import dataclass
from typing import Literal

from toolcrib.model.protocol import Era

LinkState = Literal["not_checked", "connecting", "connected", "needs_auth", "failed"]


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The state of a link, in a word and in a sentence, with one thing to do next where something is to be done.

    `is_known` says that the server told what it offers, perhaps in an earlier run; `tools` counts it. `latency_ms` is
    how long the last answer to a ping or list took. `last_error` stays after the link has recovered. `retry_at` is a
    moment (seconds of the system's clock) if another attempt is planned.
    """

    state: LinkState = "not_checked"
    sentence: str = ""
    action: str | None = None
    is_known: bool = False
    tools: int = 0
    latency_ms: float | None = None
    last_error: str | None = None
    exited_with: int | None = None
    stderr: tuple[str, ...] = ()
    era: Era | None = None
    version: str | None = None
    server_title: str | None = None
    pid: int | None = None
    retry_at: float | None = None
