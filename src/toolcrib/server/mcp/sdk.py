"""The official SDK's server behind the endpoint: the only importer of `mcp`, loaded when first needed.

It serves the handshake and the event stream of the legacy era, and discovery and subscriptions of the modern one, for
all faces at once: who asks, and through which face, travels with each request. What a face says of itself is put into
the answers here; everything that is called, read or listed is answered by the endpoint and never comes this far.

Uses parts of mcp 2.3 that are provisional or private: `Server.middleware`, a session's connection, and the session
manager's table of sessions. The tests with the official client in both eras are the contract for them.
"""

import hashlib
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp.types as types
from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from starlette.types import Receive, Scope, Send

from toolcrib.errors import ToolcribError
from toolcrib.gate import Gate
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import META, SERVER_INFO_KEY
from toolcrib.model.sources import ContentMethod, Notice, ProtocolError
from toolcrib.server.mcp.face import SERVER_INFO, Face
from toolcrib.server.mcp.subscriptions import Holder, Subscriptions

logger = logging.getLogger(__name__)
SEND_TIMEOUT = 5.0
WATCHED_BY_ONE = 1_000
"""Resources that one stream may want to hear of."""

_FACE = "toolcrib.face"
_CHANGES: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


class _Audience:
    """Clients of one asker at one face that want to hear of changes, and what they were last told of."""

    def __init__(self, principal: Principal, face: Face) -> None:
        self.principal = principal
        self.face = face
        self.seen = self.look()
        self.connections: dict[str, Connection] = {}
        self.streams = 0
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)

    def look(self) -> dict[str, tuple[Sequence[object], ...]]:
        """What the face shows now."""
        shown = self.face.shown
        return {
            "tools": (shown("tools", self.principal),),
            "prompts": (shown("prompts", self.principal),),
            "resources": (shown("resources", self.principal), shown("resourceTemplates", self.principal)),
        }


class SdkServer:
    """One lowlevel server for all askers and faces."""

    def __init__(self, gate: Gate, subscriptions: Subscriptions, ended: Callable[[str], None]) -> None:
        """`ended` is told the name of every session that is found to be over."""
        self._gate = gate
        self._ended = ended
        self._subscriptions = subscriptions
        self._audiences: dict[tuple[Principal, str], _Audience] = {}
        self._listening: dict[Holder, _Audience] = {}
        self._streams = (str(number) for number in itertools.count(1))
        self._server: Server[Any] = Server(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            title=SERVER_INFO["title"],
            on_subscriptions_listen=self._listen,
        )
        self._server.middleware.append(self._speak_for_face)
        self._manager = StreamableHTTPSessionManager(self._server, max_sessions=1_000)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the sessions while the block runs; streams that are open at its end are ended in good order."""
        async with self._manager.run():
            try:
                yield
            finally:
                for audience in self._audiences.values():
                    audience.listen.close()

    async def handle(self, scope: Scope, receive: Receive, send: Send, principal: Principal, face: Face) -> None:
        """Serve one HTTP request; a session belongs to the asker who opened it, and to the face it was opened at."""
        token = AccessToken(token="", client_id=_owner(principal, face), scopes=[])
        scope = {**scope, "user": AuthenticatedUser(token), "toolcrib.principal": principal, _FACE: face}
        await self._manager.handle_request(scope, receive, send)

    def is_open(self, session_id: str) -> bool:
        """Whether there is such a session."""
        transport = self._manager._server_instances.get(session_id)  # pyright: ignore[reportPrivateUsage]
        return transport is not None and not transport.is_terminated

    def touch(self, session_id: str, principal: Principal, face: Face) -> bool:
        """Whether this is an open session of this asker at this face; if so it counts as used now."""
        transport = self._manager._server_instances.get(session_id)  # pyright: ignore[reportPrivateUsage]
        owner = self._manager._session_owners.get(session_id)  # pyright: ignore[reportPrivateUsage]
        if transport is None or transport.is_terminated or owner is None:
            return False
        if owner["client_id"] != _owner(principal, face):
            return False
        # Calls that the endpoint answers itself do not pass the transport, whose idle clock would run out on them.
        if transport.idle_scope is not None and transport.idle_scope.deadline != float("inf"):
            transport.idle_scope.deadline = anyio.current_time() + DEFAULT_SESSION_IDLE_TIMEOUT
        return True

    async def announce(self) -> None:
        """Tell every client whose lists are others now."""
        for key, audience in list(self._audiences.items()):
            seen, audience.seen = audience.seen, audience.look()
            for kind in _CHANGES:
                if seen[kind] != audience.seen[kind]:
                    await self._announce_list(audience, kind)
            if not audience.connections and not audience.streams:
                del self._audiences[key]

    async def _announce_list(self, audience: _Audience, kind: str) -> None:
        await audience.bus.publish(_CHANGES[kind])
        for session_id in list(audience.connections):
            await self._tell(audience, session_id, f"notifications/{kind}/list_changed", None)

    async def pass_on(self, notice: Notice) -> None:
        """Tell the clients that something a server said by itself is meant for."""
        method, uri = f"notifications/{notice.kind}", notice.params.get("uri")
        kind, _, happened = notice.kind.partition("/")
        if happened == "list_changed" and kind in _CHANGES:
            # Whoever looks at this server alone hears what it says, also where nothing came of it.
            for audience in list(self._audiences.values()):
                if audience.face.is_one_server and audience.face.reader(audience.principal, "") == notice.server:
                    await self._announce_list(audience, kind)
        elif notice.kind != "resources/updated":
            await self._tell_session(notice.session or "", method, notice.params)
        elif isinstance(uri, str):
            for holder, asked in self._subscriptions.holders(notice.server, uri):
                audience = self._listening.get(holder)
                if audience is not None:
                    await audience.bus.publish(ResourceUpdated(asked))
                elif notice.session in (None, holder.who):
                    await self._tell_session(holder.who, method, notice.params)

    async def _tell_session(self, session_id: str, method: str, params: JsonObject) -> None:
        for audience in self._audiences.values():
            if session_id in audience.connections:
                await self._tell(audience, session_id, method, params)
                return

    async def _tell(self, audience: _Audience, session_id: str, method: str, params: JsonObject | None) -> None:
        """Send on the session's own stream; one that has ended is cleared away."""
        if self.is_open(session_id):
            with anyio.move_on_after(SEND_TIMEOUT):
                await audience.connections[session_id].notify(method, params)
            return
        del audience.connections[session_id]
        self._subscriptions.forget(Holder(session_id))
        self._ended(session_id)

    def _audience(self, principal: Principal, face: Face) -> _Audience:
        key = (principal, face.key)
        if key not in self._audiences:
            self._audiences[key] = _Audience(principal, face)
        return self._audiences[key]

    async def _speak_for_face(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Put the face's own words into the answers of the handshake, and note sessions that begin."""
        result = await call_next(ctx)
        if ctx.request is None:
            return result
        principal, face = _asked_by(ctx)
        if ctx.method == "notifications/initialized":
            session_id = ctx.request.headers.get("mcp-session-id", "")
            # The connection is the session's own; what the SDK offers for it drops what it does not know.
            self._audience(principal, face).connections[session_id] = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        elif ctx.method in ("initialize", "server/discover") and is_object(result):
            return await _introduced(result, ctx.method, principal, face)
        return result

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        principal, face = _asked_by(ctx)
        audience = self._audience(principal, face)
        holder = Holder(principal.name, next(self._streams))
        self._listening[holder] = audience
        audience.streams += 1
        try:
            watched = await self._watch(audience, holder, params.notifications.resource_subscriptions or [])
            honored = params.notifications.model_copy(update={"resource_subscriptions": watched})
            return await audience.listen(ctx, params.model_copy(update={"notifications": honored}))
        finally:
            audience.streams -= 1
            del self._listening[holder]
            with anyio.move_on_after(SEND_TIMEOUT, shield=True):
                for server, uri in self._subscriptions.forget(holder):
                    await self._ask(principal, server, "resources/unsubscribe", uri)

    async def _watch(self, audience: _Audience, holder: Holder, wanted: Sequence[str]) -> list[str]:
        """Ask the servers to tell of these resources; gives those that will be told of."""
        watched: list[str] = []
        for uri in wanted[:WATCHED_BY_ONE]:
            server = audience.face.reader(audience.principal, uri)
            if server is not None and await self._ask(audience.principal, server, "resources/subscribe", uri):
                self._subscriptions.add(server, uri, holder)
                watched.append(uri)
        return watched

    async def _ask(self, principal: Principal, server: str, method: ContentMethod, uri: str) -> bool:
        try:
            await self._gate.request(principal, server, method, {"uri": uri}, door="mcp")
        except (ToolcribError, ProtocolError) as error:
            logger.info("%s did not take %s of %s: %s", server, method, uri, error)
            return False
        return True


async def _introduced(result: JsonObject, method: str, principal: Principal, face: Face) -> JsonObject:
    """An answer of the handshake in the words of a face."""
    try:
        instructions, info = await face.instructions(principal), face.server_info(principal)
    except ToolcribError as error:  # without its words an agent would be somebody else
        raise MCPError(types.INTERNAL_ERROR, f"MCP error: {error.message} {error.hint or ''}".strip()) from error
    said = {**result, "capabilities": face.capabilities(principal)}
    if instructions is not None:
        said["instructions"] = instructions
    if method == "initialize":
        return {**said, "serverInfo": info}
    return {**said, "ttlMs": 0, "cacheScope": "private", META: {**result.get(META, {}), SERVER_INFO_KEY: info}}


def _asked_by(ctx: ServerRequestContext[Any, Any]) -> tuple[Principal, Face]:
    assert ctx.request is not None
    return ctx.request.scope["toolcrib.principal"], ctx.request.scope[_FACE]


def _owner(principal: Principal, face: Face) -> str:
    # An agent's session stays the same asker in whatever mode it is by now.
    who = principal.session if principal.kind == "session" else principal
    return hashlib.sha256(repr((who, face.key)).encode()).hexdigest()
