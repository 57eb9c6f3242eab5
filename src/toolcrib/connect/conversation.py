"""What a link needs of a conversation with a server, whichever wire carries it.

Two wires exist: `stdio.StdioConnection` and those of `http`. Above: the link. Below: nothing but the words both sides
use. It must never name a wire: what only one of them can do is said as what the others do instead.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from toolcrib.connect.process import ServerFailed
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sources import ReportProgress

OnMessage = Callable[[str, JsonObject], None]
"""Hears a notification that belongs to one request: method and params. Must not wait."""
OnNotification = Callable[[str, JsonObject], None]
"""Hears a notification: method and params. Called in the order of the wire; must not wait."""
OnRequest = Callable[[RequestId, str, JsonObject], None]
"""Hears a request of the server, to be answered with `answer` or `refuse`; must not wait."""


class Conversation(Protocol):
    """A greeted server. The owner of its `async with` sets the two hooks before the first call."""

    on_notification: OnNotification
    on_request: OnRequest

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    @property
    def failure(self) -> ServerFailed | None:
        """Why the conversation is over; None as long as it is not."""
        ...

    async def until_ended(self) -> ServerFailed:
        """Wait for the end of the conversation."""
        ...

    async def call(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: ReportProgress | None = None,
        on_message: OnMessage | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Send a request and wait for its result, given as it came. Being cancelled cancels it at the server.

        `on_message` and `headers` are for wires that know which request a notification belongs to, and that have
        headers; others pass over them. Raises `ProtocolError` if the server answers with an error, `ServerFailed` or
        another `Unavailable` if there is no answer to be had.
        """
        ...

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; never waits, and drops it where the wire or the era has none."""
        ...

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a request of the server, if it still waits for it; never waits."""
        ...

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Refuse a request of the server, if it still waits for it; never waits."""
        ...
