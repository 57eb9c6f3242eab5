"""The transport-independent interface of a connection to a server.

Implemented by `stdio.StdioConnection` and the connections of `http`.

Must never name a transport: describe what only one of them supports by what the others do instead.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.sources import ReportProgress

OPEN_ENDED: Final = frozenset({"subscriptions/listen"})
"""Methods whose response is a stream that stays open as long as the connection."""
MESSAGES_LIMIT: Final = 200_000
"""Maximum number of messages a server may send before the response to a call."""

OnMessage = Callable[[str, JsonObject], None]
"""Receives the method and params of a notification that belongs to one request. Must not block."""
OnNotification = Callable[[str, JsonObject], None]
"""Receives the method and params of a notification, in the order of arrival. Must not block."""
OnRequest = Callable[[RequestId, str, JsonObject], None]
"""Receives a request from the server, to be answered with `answer` or `refuse`. Must not block."""


class Connection(Protocol):
    """An initialized connection. The owner of its `async with` block sets both hooks before the first call."""

    on_notification: OnNotification
    on_request: OnRequest

    @property
    def name(self) -> str:
        """Return the server's name."""
        ...

    @property
    def failure(self) -> ServerFailed | None:
        """Return why the connection ended, or None while it is open."""
        ...

    async def until_ended(self) -> ServerFailed:
        """Wait until the connection ends and return the reason."""
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
        """Send a request and return its result unchanged. Cancelling the call cancels the request at the server.

        Transports that cannot attribute notifications to a request ignore `on_message`; those without headers ignore
        `headers`. Raises `ProtocolError` if the server responds with an error, and `ServerFailed` or another
        `Unavailable` if there is no response.
        """
        ...

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification without blocking. Drops it where the transport or the era does not support it."""
        ...

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a pending request of the server without blocking. Ignored if it is no longer pending."""
        ...

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Reject a pending request of the server without blocking. Ignored if it is no longer pending."""
        ...
