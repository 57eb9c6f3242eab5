"""The SDK's legacy sessions, with our own ids and limits.

The SDK generates its own ids, keeps sessions in memory only and refuses every client at its limit. Here a session is
opened with a given id and restored by replaying its client's handshake. `McpSessions` limits their number.

Uses private parts of mcp 2.3: how the session manager registers, serves and discards a session. The tests with the
official clients verify them.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from mcp.types import JSONRPCMessage
from starlette.types import Message, Receive, Scope, Send

from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.web.mcp.resumable_streams import RETRY_MS

MESSAGES_KEPT = 200
"""Messages of one session that can be sent again when its own stream is resumed."""

_OK = 300


class SessionMessages(EventStore):
    """The newest messages of one session, for streams that are resumed by `Last-Event-ID`."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(4)
        self._count = 0
        self._kept: OrderedDict[str, tuple[str, JSONRPCMessage | None]] = OrderedDict()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._kept

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message and return its id."""
        self._count += 1
        event_id = f"{self._nonce}-{self._count}"
        self._kept[event_id] = stream_id, message
        if len(self._kept) > MESSAGES_KEPT:
            self._kept.popitem(last=False)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the messages of the same stream that followed this one, and return the stream."""
        if last_event_id not in self._kept:
            return None
        stream_id, _ = self._kept[last_event_id]
        ids = list(self._kept)
        for event_id in ids[ids.index(last_event_id) + 1 :]:
            its_stream, message = self._kept[event_id]
            if its_stream == stream_id and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream_id


class LegacySessions(StreamableHTTPSessionManager):
    """The SDK's session manager. `on_end` is called with the id of each ended session."""

    def __init__(self, server: Server[Any], on_end: Callable[[str], None]) -> None:
        super().__init__(server, max_sessions=None)
        self._on_end = on_end
        self._messages: dict[str, SessionMessages] = {}

    async def open(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an `initialize` request and register its session with this id."""
        messages = self._messages[session_id] = SessionMessages()
        transport = StreamableHTTPServerTransport(
            session_id, event_store=messages, retry_interval=RETRY_MS, idle_timeout=self.session_idle_timeout
        )
        user = scope["user"]
        assert isinstance(user, AuthenticatedUser)
        self._session_owners[session_id] = authorization_context(user)
        self._server_instances[session_id] = transport
        await self._serve_opening_request(transport, scope, receive, send)

    async def restore(self, session_id: str, hello: JsonObject, scope: Scope) -> bool:
        """Restore a session by replaying its handshake; `scope` is that of the current request.

        Returns whether the SDK accepted it.
        """
        opened = _Repeated({"id": 0, "method": "initialize", "params": hello})
        await self.open(session_id, opened.scope(scope), opened.receive, opened.send)
        if session_id not in self._server_instances:
            return False
        version = str(opened.result.get("protocolVersion", ""))
        ready = _Repeated({"method": "notifications/initialized"})
        headers = [(b"mcp-session-id", session_id.encode()), (b"mcp-protocol-version", version.encode())]
        await self.handle_request(ready.scope(scope, headers), ready.receive, ready.send)
        if not opened.result or not ready.is_taken:
            await self.discard(session_id)
        return session_id in self._server_instances

    async def discard(self, session_id: str) -> None:
        """End a session. Idempotent."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def find(self, session_id: str, owner: str) -> StreamableHTTPServerTransport | None:
        """Return the open session with this id, or None if it belongs to another owner."""
        transport = self._server_instances.get(session_id)
        if transport is None or transport.is_terminated or self._session_owners[session_id]["client_id"] != owner:
            return None
        return transport

    def can_resume(self, session_id: str, event_id: str) -> bool:
        """Return whether the session's own stream can be resumed after this event."""
        return event_id in self._messages.get(session_id, ())

    def is_open(self, session_id: str) -> bool:
        """Return whether this session is open."""
        transport = self._server_instances.get(session_id)
        return transport is not None and not transport.is_terminated

    def has_stream(self, session_id: str) -> bool:
        """Return whether the session's own stream is open."""
        transport = self._server_instances.get(session_id)
        return transport is not None and GET_STREAM_KEY in transport._request_streams  # pyright: ignore[reportPrivateUsage]

    def is_busy(self, session_id: str) -> bool:
        """Return whether a request or stream of this session is open."""
        transport = self._server_instances.get(session_id)
        return transport is not None and transport._requests_in_flight > 0  # pyright: ignore[reportPrivateUsage]

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        # An ended session may have been restored with the same id: that one stays open.
        if self._server_instances.get(session_id) is transport:
            await super()._discard_session(session_id, transport)
            self._messages.pop(session_id, None)
            self._on_end(session_id)
        elif not transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await transport.terminate()


def stay_open(transport: StreamableHTTPServerTransport) -> None:
    """Reset a session's idle timeout, because calls that the endpoint answers do not pass the transport."""
    if transport.idle_scope is not None and transport.idle_scope.deadline != float("inf"):
        transport.idle_scope.deadline = anyio.current_time() + DEFAULT_SESSION_IDLE_TIMEOUT


class _Repeated:
    """A client's message, replayed by the crib. Captures the response instead of sending it."""

    def __init__(self, message: JsonObject) -> None:
        self._message = dumps({"jsonrpc": "2.0", **message})
        self._is_read = False
        self._status = 0
        self._body = b""

    def scope(self, scope: Scope, headers: list[tuple[bytes, bytes]] | None = None) -> Scope:
        """Return the scope of the message, with the same principal and address."""
        own = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
        return {**scope, "method": "POST", "headers": [*own, *(headers or ())]}

    async def receive(self) -> Message:
        """Return the whole body, then block."""
        if self._is_read:
            await anyio.sleep_forever()
        self._is_read = True
        return {"type": "http.request", "body": self._message, "more_body": False}

    async def send(self, message: Message) -> None:
        """Capture a part of the response."""
        self._status = message.get("status", self._status)
        self._body += message.get("body", b"")

    @property
    def is_taken(self) -> bool:
        """Whether the message was accepted."""
        return 0 < self._status < _OK

    @property
    def result(self) -> JsonObject:
        """The result in the response, or an empty object."""
        for line in self._body.splitlines():
            if line.startswith(b"data:") and (data := line.removeprefix(b"data:").strip()):
                answer = loads(data)
                return answer.get("result") or {}
        return {}
