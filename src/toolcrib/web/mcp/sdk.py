"""The official SDK's server behind the endpoint. The only importer of `mcp`, loaded on first use.

It serves the handshake and event stream of the legacy era, and discovery and subscriptions of the modern one. One
server handles all views: the principal and the view travel with each request, and the view's own introduction is
inserted into the results here. Calls, reads and lists are answered by the endpoint and never reach the SDK.

Uses provisional or private parts of mcp 2.3: `Server.middleware` and a session's connection. The tests with the
official client in both eras verify them.
"""

import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
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

from toolcrib.gate.gate import Gate
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import META, SERVER_INFO_KEY, TASKS_EXTENSION
from toolcrib.model.sources import ContentMethod, Notice, ProtocolError
from toolcrib.web.mcp.sdk_sessions import LegacySessions, stay_open
from toolcrib.web.mcp.subscriptions import WATCHED_BY_ONE, Holder, Subscriptions
from toolcrib.web.mcp.views import SERVER_INFO, Kind, McpView

logger = logging.getLogger(__name__)
SEND_TIMEOUT = 5.0
_LOOK_EVERY = 0.01
"""Seconds between two looks for a stream that is being opened."""

_FACE = "toolcrib.mcp_view"
_OPENING = "toolcrib.mcp_session"
"""Scope key of the id of the session that a request opens."""
_CHANGES: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}
_LISTS: Mapping[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "resourceTemplates"),
}
_KEPT = frozenset({*(f"notifications/{kind}/list_changed" for kind in _CHANGES), "notifications/resources/updated"})
"""Notifications that a session gets later if its stream is not open."""


class _Audience:
    """The clients of one principal and view that subscribe to changes, and the state they last saw."""

    def __init__(self, principal: Principal, mcp_view: McpView) -> None:
        self.principal = principal
        self.mcp_view = mcp_view
        self.seen = self.look()
        self.served_other: set[str] = set()
        """Lists that were served with other content than `seen`, which may since have returned to it."""
        self.connections: dict[str, Connection] = {}
        self.streams = 0
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)

    def look(self) -> dict[str, tuple[Sequence[object], ...]]:
        """Return what the view shows now."""
        return {announced: self.look_at(announced) for announced in _CHANGES}

    def look_at(self, announced: str) -> tuple[Sequence[object], ...]:
        """Return what the view shows now in the lists that are announced under this name."""
        return tuple(self.mcp_view.fingerprint(kind, self.principal) for kind in _LISTS[announced])


class SdkEndpoint:
    """One low-level server for all principals and views."""

    def __init__(self, gate: Gate, subscriptions: Subscriptions, ended: Callable[[str], None]) -> None:
        """`ended` is called with the id of every ended session."""
        self._gate = gate
        self._ended = ended
        self._subscriptions = subscriptions
        self._audiences: dict[tuple[Principal, str], _Audience] = {}
        self._listening: dict[Holder, _Audience] = {}
        self._missed: dict[str, dict[tuple[str, str], JsonObject | None]] = {}
        self._streams = (str(number) for number in itertools.count(1))
        self._server: Server[Any] = Server(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            title=SERVER_INFO["title"],
            on_subscriptions_listen=self._listen,
        )
        self._server.middleware.append(self._introduce)
        self._manager = LegacySessions(self._server, self._forget)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the sessions for the duration of the block. Open streams are closed cleanly at its end."""
        async with self._manager.run():
            try:
                yield
            finally:
                for audience in self._audiences.values():
                    audience.listen.close()

    async def handle(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal, mcp_view: McpView, owner: str
    ) -> None:
        """Serve one HTTP request. A session belongs to the owner that opened it."""
        await self._manager.handle_request(_from(scope, principal, mcp_view, owner), receive, send)

    async def open(
        self,
        session_id: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        principal: Principal,
        mcp_view: McpView,
        owner: str,
    ) -> None:
        """Answer an `initialize` request and open a session with this id."""
        given = _from(scope, principal, mcp_view, owner)
        await self._manager.open(session_id, {**given, _OPENING: session_id}, receive, send)

    async def restore(
        self, session_id: str, hello: JsonObject, scope: Scope, principal: Principal, mcp_view: McpView, owner: str
    ) -> bool:
        """Restore a session of an earlier run. Return whether that succeeded."""
        given = _from(scope, principal, mcp_view, owner)
        return await self._manager.restore(session_id, hello, {**given, _OPENING: session_id})

    async def discard(self, session_id: str) -> None:
        """End a session. Idempotent."""
        await self._manager.discard(session_id)

    def is_open(self, session_id: str) -> bool:
        """Return whether this session is open."""
        return self._manager.is_open(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Return whether a request or stream of this session is open."""
        return self._manager.is_busy(session_id)

    def touch(self, session_id: str, owner: str) -> bool:
        """Return whether this is an open session of this owner, and if so reset its idle timeout."""
        transport = self._manager.find(session_id, owner)
        if transport is None:
            return False
        stay_open(transport)
        return True

    def can_resume(self, session_id: str, event_id: str) -> bool:
        """Return whether the session's own stream can be resumed after this event."""
        return self._manager.can_resume(session_id, event_id)

    async def stream_opened(self, session_id: str, *, is_restored: bool) -> None:
        """Send what a session missed before its stream was open. To a restored one, every list may have changed.

        The SDK answers a resumed stream before it can send on it.
        """
        if is_restored and self.is_open(session_id):
            every = {(f"notifications/{kind}/list_changed", ""): None for kind in _CHANGES}
            self._missed.setdefault(session_id, {}).update(every)
        with anyio.move_on_after(SEND_TIMEOUT):
            while session_id in self._missed and not self._manager.has_stream(session_id):  # noqa: ASYNC110 SDK's state
                await anyio.sleep(_LOOK_EVERY)
        if self._manager.has_stream(session_id):
            for (method, _), params in self._missed.pop(session_id, {}).items():
                await self._notify_session(session_id, method, params)

    def served(self, principal: Principal, mcp_view: McpView, kind: Kind) -> None:
        """Note that a client was served a list now. If it changes back at once, that is a change for this client."""
        audience = self._audiences.get((principal, mcp_view.key))
        announced = "resources" if kind == "resourceTemplates" else kind
        if audience is not None and audience.look_at(announced) != audience.seen[announced]:
            audience.served_other.add(announced)

    async def announce(self, to_all: bool) -> None:
        """Notify every client whose lists have changed, or all clients."""
        for key, audience in list(self._audiences.items()):
            seen, audience.seen = audience.seen, audience.look()
            served, audience.served_other = audience.served_other, set()
            for kind in _CHANGES:
                if to_all or kind in served or seen[kind] != audience.seen[kind]:
                    await self._announce_list(audience, kind)
            if not audience.connections and not audience.streams:
                del self._audiences[key]

    async def _announce_list(self, audience: _Audience, kind: str) -> None:
        await audience.bus.publish(_CHANGES[kind])
        for session_id in list(audience.connections):
            await self._notify(audience, session_id, f"notifications/{kind}/list_changed", None)

    async def pass_on(self, notice: Notice) -> None:
        """Forward a server's notification to the clients it concerns."""
        method, uri = f"notifications/{notice.kind}", notice.params.get("uri")
        kind, _, happened = notice.kind.partition("/")
        if happened == "list_changed" and kind in _CHANGES:
            # Clients of a single server's view get its notifications even if the lists did not change.
            for audience in list(self._audiences.values()):
                if (
                    audience.mcp_view.is_one_server
                    and audience.mcp_view.reader(audience.principal, "") == notice.server
                ):
                    await self._announce_list(audience, kind)
        elif notice.kind != "resources/updated":
            await self._notify_session(notice.session or "", method, notice.params)
        elif isinstance(uri, str):
            for holder, asked in self._subscriptions.holders(notice.server, uri):
                audience = self._listening.get(holder)
                if audience is not None:
                    await audience.bus.publish(ResourceUpdated(asked))
                elif notice.session in (None, holder.caller):
                    await self._notify_session(holder.caller, method, notice.params)

    async def _notify_session(self, session_id: str, method: str, params: JsonObject | None) -> None:
        for audience in self._audiences.values():
            if session_id in audience.connections:
                await self._notify(audience, session_id, method, params)
                return

    async def _notify(self, audience: _Audience, session_id: str, method: str, params: JsonObject | None) -> None:
        """Send a notification on the session's own stream. Changes are kept until that is open."""
        connection = audience.connections.get(session_id)
        if connection is None or not self.is_open(session_id):
            return
        if not self._manager.has_stream(session_id) and method in _KEPT:
            missed = self._missed.setdefault(session_id, {})
            missed[method, str((params or {}).get("uri", ""))] = params
            if len(missed) > WATCHED_BY_ONE + len(_CHANGES):  # a server chooses the URIs below one that is subscribed
                del missed[next(key for key in missed if key[1])]
        else:
            with anyio.move_on_after(SEND_TIMEOUT):
                await connection.notify(method, params)

    def _forget(self, session_id: str) -> None:
        """Drop everything that is kept for an ended session."""
        for audience in self._audiences.values():
            audience.connections.pop(session_id, None)
        self._missed.pop(session_id, None)
        self._subscriptions.forget(Holder(session_id))
        self._ended(session_id)

    def _audience(self, principal: Principal, mcp_view: McpView) -> _Audience:
        key = (principal, mcp_view.key)
        if key not in self._audiences:
            self._audiences[key] = _Audience(principal, mcp_view)
        return self._audiences[key]

    async def _introduce(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware: insert the view's introduction into the handshake, and register new sessions."""
        result = await call_next(ctx)
        if ctx.request is None or ctx.method not in ("initialize", "server/discover") or not is_object(result):
            return result
        principal, mcp_view = _caller_of(ctx)
        session_id = ctx.request.scope.get(_OPENING)
        if session_id is not None:  # before the client can list anything, so that it misses no change
            # The connection sends any notification; the SDK's session drops those it does not know.
            self._audience(principal, mcp_view).connections[session_id] = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        return await _with_introduction(result, ctx.method, principal, mcp_view)

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        principal, mcp_view = _caller_of(ctx)
        audience = self._audience(principal, mcp_view)
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
        """Subscribe to these resources. Return the URIs that the servers accepted."""
        watched: list[str] = []
        for uri in wanted[:WATCHED_BY_ONE]:
            server = audience.mcp_view.reader(audience.principal, uri)
            if server is not None and await self._ask(audience.principal, server, "resources/subscribe", uri):
                self._subscriptions.add(server, uri, holder)
                watched.append(uri)
        return watched

    async def _ask(self, principal: Principal, server: str, method: ContentMethod, uri: str) -> bool:
        try:
            await self._gate.request(principal, server, method, {"uri": uri}, door="mcp")
        except (ToolcribError, ProtocolError) as error:
            logger.info("%s rejected %s of %s: %s", server, method, uri, error)
            return False
        return True


async def _with_introduction(result: JsonObject, method: str, principal: Principal, mcp_view: McpView) -> JsonObject:
    """Return a handshake result with the view's introduction."""
    try:
        instructions, info = await mcp_view.instructions(principal), mcp_view.server_info(principal)
    except ToolcribError as error:  # an agent must not run without its prompt
        raise MCPError(types.INTERNAL_ERROR, f"MCP error: {error.message} {error.hint or ''}".strip()) from error
    capabilities = mcp_view.capabilities(principal)
    if method == "initialize":  # the legacy era has no tasks of this kind
        legacy = {key: value for key, value in capabilities["extensions"].items() if key != TASKS_EXTENSION}
        capabilities = {key: value for key, value in capabilities.items() if key != "extensions"}
        capabilities |= {"extensions": legacy} if legacy else {}
    handshake = {**result, "capabilities": capabilities}
    if instructions is not None:
        handshake["instructions"] = instructions
    if method == "initialize":
        return {**handshake, "serverInfo": info}
    return {**handshake, "ttlMs": 0, "cacheScope": "private", META: {**result.get(META, {}), SERVER_INFO_KEY: info}}


def _caller_of(ctx: ServerRequestContext[Any, Any]) -> tuple[Principal, McpView]:
    assert ctx.request is not None
    return ctx.request.scope["toolcrib.principal"], ctx.request.scope[_FACE]


def _from(scope: Scope, principal: Principal, mcp_view: McpView, owner: str) -> Scope:
    user = AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))
    return {**scope, "user": user, "toolcrib.principal": principal, _FACE: mcp_view}
