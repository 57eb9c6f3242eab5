"""The official SDK's server behind the endpoint: the only importer of `mcp`, loaded when first needed.

It serves the handshake and the event stream of the legacy era, and discovery and subscriptions of the modern one. Lists
and calls that reach it are answered by the endpoint's own functions, so both roads give the same answers.

Uses parts of mcp 2.3 that are provisional or private: `Server.middleware`, `create_initialization_options` (the legacy
HTTP path has no other way to say `listChanged`), and the session manager's table of sessions. The tests with the
official client in both eras are the contract for them.
"""

import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import anyio
import mcp.types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from toolcrib.gate import Gate
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import Era
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, Tool
from toolcrib.server.mcp.rpc import RpcError, era_of

logger = logging.getLogger(__name__)
SEND_TIMEOUT = 5.0


class Answers(Protocol):
    """What the endpoint answers itself, for the requests that come through the SDK."""

    def list_tools(self, principal: Principal, era: Era, cursor: object) -> JsonObject: ...

    async def call_tool(
        self, principal: Principal, params: JsonObject, progress: ReportProgress | None
    ) -> CallResult: ...


class _Audience:
    """Clients of one principal that want to hear of changes, and the tools they were last told of."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.tools = tools
        self.sessions: dict[str, ServerSession] = {}
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)


class SdkServer:
    """One lowlevel server for all askers; who asks travels with each request."""

    def __init__(self, answers: Answers, gate: Gate, info: JsonObject) -> None:
        self._answers = answers
        self._gate = gate
        self._audiences: dict[Principal, _Audience] = {}
        self._server: Server[Any] = Server(
            info["name"],
            version=info["version"],
            title=info["title"],
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=lambda _: None,
        )
        self._server.middleware.append(self._note_session)
        options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))
        self._server.create_initialization_options = _constant(options)
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

    async def handle(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        """Serve one HTTP request for this asker; a session belongs to the asker who opened it."""
        token = AccessToken(token="", client_id=_owner(principal), scopes=[])
        scope = {**scope, "user": AuthenticatedUser(token), "toolcrib.principal": principal}
        await self._manager.handle_request(scope, receive, send)

    def touch(self, session_id: str, principal: Principal) -> bool:
        """Whether this is an open session of this asker; if so it counts as used now."""
        transport = self._manager._server_instances.get(session_id)  # pyright: ignore[reportPrivateUsage]
        owner = self._manager._session_owners.get(session_id)  # pyright: ignore[reportPrivateUsage]
        if transport is None or transport.is_terminated or owner is None or owner["client_id"] != _owner(principal):
            return False
        # Calls that the endpoint answers itself do not pass the transport, whose idle clock would run out on them.
        if transport.idle_scope is not None and transport.idle_scope.deadline != float("inf"):
            transport.idle_scope.deadline = anyio.current_time() + DEFAULT_SESSION_IDLE_TIMEOUT
        return True

    async def announce(self) -> None:
        """Tell every client whose list of tools is another one now."""
        for principal, audience in list(self._audiences.items()):
            tools = self._gate.listing(principal).tools
            if tools == audience.tools:
                continue
            audience.tools = tools
            await audience.bus.publish(ToolsListChanged())
            for session_id, session in list(audience.sessions.items()):
                if not self.touch(session_id, principal):
                    del audience.sessions[session_id]
                    continue
                with anyio.move_on_after(SEND_TIMEOUT):
                    await session.send_tool_list_changed()

    def _audience(self, principal: Principal) -> _Audience:
        if principal not in self._audiences:
            self._audiences[principal] = _Audience(self._gate.listing(principal).tools)
        return self._audiences[principal]

    async def _note_session(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        if ctx.method == "notifications/initialized" and ctx.request is not None:
            session_id = ctx.request.headers.get("mcp-session-id")
            self._audience(_principal(ctx)).sessions[session_id] = ctx.session
        return await call_next(ctx)

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await self._audience(_principal(ctx)).listen(ctx, params)

    async def _list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        cursor = params.cursor if params else None
        with _protocol_errors():
            page = self._answers.list_tools(_principal(ctx), era_of(ctx.protocol_version), cursor)
        return types.ListToolsResult.model_validate(page)

    async def _call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        asked: JsonObject = {"name": params.name, "arguments": params.arguments or {}}
        with _protocol_errors():
            result = await self._answers.call_tool(_principal(ctx), asked, ctx.session.report_progress)
        return types.CallToolResult.model_validate(result.to_json())


def _principal(ctx: ServerRequestContext[Any, Any]) -> Principal:
    assert ctx.request is not None
    return ctx.request.scope["toolcrib.principal"]


def _owner(principal: Principal) -> str:
    return hashlib.sha256(repr(principal).encode()).hexdigest()


def _constant(options: InitializationOptions) -> Callable[..., InitializationOptions]:
    return lambda *_, **__: options


@contextmanager
def _protocol_errors() -> Generator[None]:
    """Hand the endpoint's protocol errors on as the SDK's."""
    try:
        yield
    except RpcError as error:
        raise MCPError(error.code, error.message, error.data) from error
