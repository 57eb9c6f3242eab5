"""The ASGI application of `/mcp`: routes requests by view, era and method, and answers most of them itself.

Lists, calls and reads are answered without the SDK, in both eras, with one parse and one dump. The rest (handshake,
discovery, subscriptions, the legacy event stream) goes to the SDK's server in `sdk`, which is loaded on first use. Both
paths end at the gate. The guard has authenticated every request.
"""

import importlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.feed import Feed
from toolcrib.gate.gate import Gate
from toolcrib.model.errors import Denied, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.jsonrpc import Message, RequestId, RpcError, check_modern, era_of, read_message
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import CARRIED, HEADER_MISMATCH, INTERNAL_ERROR, Era, reaches_level
from toolcrib.model.sources import Client, Notice
from toolcrib.web import problems
from toolcrib.web.limits import CREDENTIAL, ENDED, WHOLE
from toolcrib.web.mcp.budgeted import Budgeted, ContextBudgets
from toolcrib.web.mcp.ended_sessions import EndedSessions
from toolcrib.web.mcp.list_changes import ListChanges
from toolcrib.web.mcp.methods import InSession, Methods
from toolcrib.web.mcp.node_routing import NodeRouting
from toolcrib.web.mcp.pages import LISTED, Pages
from toolcrib.web.mcp.parked_calls import ParkedCalls
from toolcrib.web.mcp.query_options import NOTHING_ASKED, Asked, ToolMode, read_query
from toolcrib.web.mcp.request import LongRequests, McpRequest, ResponseWriter, read_body, replay
from toolcrib.web.mcp.resumable_streams import ResumableStreams
from toolcrib.web.mcp.sealed_state import StateSeal
from toolcrib.web.mcp.sessions import McpSession, McpSessions, owner_of
from toolcrib.web.mcp.skills import Ready
from toolcrib.web.mcp.subscriptions import Subscriptions
from toolcrib.web.mcp.task import McpTask, UpstreamTask
from toolcrib.web.mcp.tasks import McpTasks
from toolcrib.web.mcp.views import Everything, Instruct, Introduce, McpView, OneServer, Programmable, Searchable
from toolcrib.web.stopping import Stopping

if TYPE_CHECKING:
    from toolcrib.web.mcp.sdk import SdkEndpoint

logger = logging.getLogger(__name__)

BUDGETS_KEPT = 64
"""Views with different budgets that are kept."""
NOTICES_WAITING = 1_000
"""Limit of queued server notifications. More are dropped, because they only prompt clients to refresh."""

LAST_EVENT_ID = b"last-event-id"
CARRIED_HEADER = CARRIED.encode()

_JSON = b"application/json"
_PATHS = frozenset({"/mcp", "/mcp/"})
_SERVERS = "/mcp/servers/"
_AGENTS = "/mcp/agents/"

Notices = Callable[[Callable[[Notice], None]], Callable[[], None]]
"""Subscribes a callback to every future notice. Returns a function that unsubscribes it."""
Enter = Callable[[Principal], Awaitable[Principal]]
"""Loads the servers of a principal's project. Returns the principal with the resolved path."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request to the endpoint, with its principal and view."""

    scope: Scope
    receive: Receive
    send: Send
    principal: Principal
    mcp_view: McpView
    result_tokens: int = 0

    @property
    def session_id(self) -> str:
        """The MCP session id of the request, or an empty string."""
        value = next((value for name, value in self.scope["headers"] if name == b"mcp-session-id"), b"")
        return value.decode("latin-1")

    @property
    def last_event_id(self) -> str:
        """The id of the last event that the client received on a broken stream, or an empty string."""
        value = next((value for name, value in self.scope["headers"] if name == LAST_EVENT_ID), b"")
        return value.decode("latin-1")

    @property
    def credential(self) -> str:
        """The key of the request's credential."""
        return self.scope.get(CREDENTIAL) or f"{self.principal.kind} {self.principal.name}"

    @property
    def owner(self) -> str:
        """The owner of a session opened by this request."""
        return owner_of(self.credential, self.principal, self.mcp_view)

    @property
    def bound_to(self) -> Json:
        """The binding of a sealed session id."""
        return ["mcp session", self.owner]


class McpEndpoint:
    """The ASGI application of `/mcp`. `async with` owns the SDK's sessions and their announcements."""

    def __init__(
        self,
        gate: Gate,
        feed: Feed,
        *,
        key: bytes | None = None,
        zoo: Zoo | None = None,
        introduce: Introduce | None = None,
        enter: Enter | None = None,
        ready: Ready | None = None,
        notices: Notices | None = None,
        ended: Callable[[str], None] = lambda _: None,
        in_session: InSession | None = None,
        ended_file: Path | None = None,
        stopping: Stopping | None = None,
        budgets: ContextBudgets = ContextBudgets(),  # noqa: B008 immutable
        routing: NodeRouting | None = None,
        tasks: McpTasks | None = None,
    ) -> None:
        """`key` seals the state that clients carry; without one, that state does not outlive this object. `ended_file`
        records the MCP sessions that clients ended. Once `stopping` has begun, requests are refused. `zoo` resolves
        agents, `introduce` returns a server's introduction, `enter` loads the servers of a project, and `ready`
        connects one of them. `notices` subscribes to server notifications, `ended` is called with the id of each ended
        session, and `in_session` makes the calls of agents' sessions. `budgets` limit what clients receive. `routing`
        finds the other nodes of a cluster. Without `tasks`, long calls do not become tasks.
        """
        self._gate = gate
        self._feed = feed
        self._introduce: Introduce = introduce or (lambda principal, name: None)
        self._enter, self._ready = enter, ready
        self._notices, self._ended = notices, ended
        self._zoo = zoo
        self._budgets = budgets
        self._views = _views(gate, None)
        self._agent_views = _views(gate, self._instruct)
        self._budgeted: dict[tuple[int, bool], Budgeted] = {}
        self._pages = Pages(gate)
        self._subscriptions = Subscriptions()
        seal = StateSeal(key or secrets.token_bytes(32))
        self._routing = routing
        self.list_changes = ListChanges(shared=routing is not None)
        node, self._tag = (routing.node, routing.tag) if routing is not None else (None, "")
        self._sessions = McpSessions(seal, EndedSessions(ended_file), node=node)
        self._stopping = stopping
        self._opening, self._loading = anyio.Lock(), anyio.Lock()
        self._watched: set[str] = set()
        self._parking = ParkedCalls(seal, node)
        self._mcp_tasks = tasks or McpTasks(None, "")
        parts = (gate, seal, self._parking, self._subscriptions, in_session, self.list_changes.note)
        self._methods = Methods(*parts, budgets.whole_results, self._mcp_tasks, ready)
        self._running: dict[tuple[str, RequestId], ResponseWriter] = {}
        self._long_requests = LongRequests()
        self._resumable = ResumableStreams()
        self._sdk: SdkEndpoint | None = None
        self._notices_in, self._notices_out = anyio.create_memory_object_stream[Notice](NOTICES_WAITING)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._stack.callback(self._notices_in.close)
        self._stack.callback(self._notices_out.close)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        self._stack.callback(self._feed.listen(self.list_changes.on_event))
        if self._notices is not None:
            self._stack.callback(self._notices(self._queue_notice))
            self._tasks.start_soon(self._forward_notices)
        await self._mcp_tasks.open(self._resume_task, self._tasks)
        self._stack.callback(self._parking.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _resume_task(self, left: UpstreamTask, task: McpTask) -> JsonObject:
        """Wait for the task of a server that an earlier run left behind, and return the result of its call."""
        client = Client(left.capabilities, ask=task.ask, on_task=partial(self._mcp_tasks.keep, task, left.principal))
        if self._ready is not None:
            await self._ready(left.principal, left.server)
        params: JsonObject = {"taskId": left.task_id}
        return await self._gate.request(left.principal, left.server, "tasks/get", params, door="mcp", client=client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request that the guard has admitted."""
        principal: Principal = scope["toolcrib.principal"]
        path: str = scope["path"]
        text: bytes = scope["query_string"]
        query = read_query(text, of_agent=path.startswith(_AGENTS)) if text else NOTHING_ASKED
        if query.cwd is not None:
            principal = await self._in_directory(principal, query.cwd, by_owner="toolcrib.by_owner" in scope)
        mcp_view: McpView
        if path in _PATHS:
            mcp_view = await self._everything(query, principal)
        elif path.startswith(_AGENTS):
            principal = await self._agent(path, principal)
            mcp_view = await self._everything(query, principal, as_agent=True)
        else:
            mcp_view = await self._one_server(path, principal)
        tokens = self._budgets.result_tokens if query.result_tokens is None else query.result_tokens
        http = HttpRequest(scope, receive, send, principal, mcp_view, 0 if mcp_view.is_one_server else tokens)
        if scope["method"] != "POST":
            await self._stream_or_end(http)
            return
        message: Message | None = None
        era: Era = "modern"
        try:
            headers = _fold(scope["headers"])
            era = era_of(headers.get(b"mcp-protocol-version", b"").decode("latin-1") or None)
            kind = headers.get(b"content-type", b"")
            if kind != _JSON and kind.split(b";")[0].strip().lower() != _JSON:
                await problems.answer(send, InvalidRequest("request.media_type", "MCP messages must be JSON."))
                return
            body = await read_body(receive)
            message = read_message(body)
            if await self._route(http, message, body):
                return
            can_send_whole = WHOLE in scope.get("extensions", ())
            response = ResponseWriter(receive, send, headers, self._long_requests, can_send_whole=can_send_whole)
            if not await self._answer(http, era, message, headers, response):
                http = replace(http, receive=replay(body, receive))
                if era == "legacy" and message.method == "initialize" and not http.session_id:
                    await self._open_session(http, message)
                else:
                    await self._delegate(http)
        except RpcError as error:
            request_id = message.id if message else None
            logger.info("refused MCP request: %s", error.message, extra={"code": error.code})
            await ResponseWriter(receive, send, {}, self._long_requests).finish(
                error.body(request_id), error.status(era)
            )

    async def _route(self, http: HttpRequest, message: Message, body: bytes) -> bool:
        """Forward a message that another node handles, or refuse it while stopping; return False to handle it here."""
        if self._stopping is not None and self._stopping.has_begun and _starts_work(message):
            await _refuse_stopping(http.send, message)
            return True
        if self._routing is None:
            return False
        return await self._routing.route(
            http.scope, http.receive, http.send, http.session_id, message, body, self._running
        )

    async def _everything(self, asked: Asked, principal: Principal, *, as_agent: bool = False) -> McpView:
        """Return the view of everything in the mode and within the budget that the client asked for."""
        if as_agent and self._zoo is not None and principal.agent is not None:
            asked = asked.within(await self._zoo.listing(principal.agent))
        mode = asked.tools or "all"
        if asked.tool_tokens is None or mode != "all":
            return (self._agent_views if as_agent else self._views)[mode]
        mcp_view = self._budgeted.get((asked.tool_tokens, as_agent))
        if mcp_view is None:
            if len(self._budgeted) >= BUDGETS_KEPT:
                self._budgeted.clear()
            instruct = self._instruct if as_agent else None
            mcp_view = self._budgeted[asked.tool_tokens, as_agent] = Budgeted(
                self._gate, asked.tool_tokens, self._budgets.recent_calls, instruct
            )
        await mcp_view.prepare(principal)
        return mcp_view

    async def _one_server(self, path: str, principal: Principal) -> McpView:
        """Return the view of one server. Raises `NotFound` for any other path, never falling back to a wider view."""
        name = path.removeprefix(_SERVERS)
        if name == path or not name or "/" in name:
            raise NotFound("route.unknown", f"There is nothing at {path}.")
        mcp_view = OneServer(self._gate, name, self._introduce)
        if not mcp_view.exists_for(principal):
            raise NotFound("server.unknown", f"Server {name!r} does not exist.")
        if self._ready is not None and not mcp_view.is_met_by(principal):
            # Connect a server that is not known yet, so that the client sees its tools instead of an empty list.
            with suppress(Unavailable):
                await self._ready(principal, name)
        return mcp_view

    async def _agent(self, path: str, principal: Principal) -> Principal:
        """Return the principal acting as the agent in the path. A principal bound to an agent cannot act as another."""
        agent = path.removeprefix(_AGENTS)
        if self._zoo is None or not agent or "/" in agent or not (principal.is_owner or principal.agent == agent):
            raise NotFound("route.unknown", f"There is nothing at {path}.")
        if self._zoo.granted(agent) is None:
            await self._zoo.list()  # another crib on the same database may have created it
        if self._zoo.granted(agent) is None:
            raise NotFound("agent.unknown", f"Agent with ID '{agent}' not found.")
        return principal if principal.agent == agent else replace(principal, agent=agent)

    async def _instruct(self, principal: Principal) -> str:
        assert self._zoo is not None
        assert principal.agent is not None
        _, compiled = await self._zoo.compiled(principal.agent, principal.cwd)
        return compiled.prompt

    async def _in_directory(self, principal: Principal, cwd: str, *, by_owner: bool) -> Principal:
        """Return the principal in the project given by `cwd`, which only the owner may set."""
        if not (principal.is_owner or by_owner):
            raise Denied("policy.denied", "Only the owner may set a working directory.")
        if not PurePath(cwd).is_absolute() or "\0" in cwd:
            raise InvalidRequest("request.malformed", "cwd must be an absolute path.")
        named = replace(principal, cwd=cwd)
        return await self._enter(named) if self._enter is not None else named

    async def _answer(
        self, http: HttpRequest, era: Era, message: Message, headers: Mapping[bytes, bytes], response: ResponseWriter
    ) -> bool:
        """Answer the request if the endpoint supports its method. Return False to delegate it to the SDK."""
        principal, mcp_view = http.principal, http.mcp_view
        session: McpSession | None = None
        if era == "legacy":
            if not await self._is_open(http):
                return False  # the SDK opens sessions and refuses unknown ones
            session = self._sessions.get(http.session_id)
            if message.id is None or not message.method:
                return await self._handle_client_message(session, message, http.send)
        listed = LISTED.get(message.method)
        if message.id is None or not (listed or self._methods.answers(era, message)):
            return False
        if era == "modern":
            check_modern(message, headers)
        if listed:
            await self._look_again()
            page = self._pages.page(mcp_view, listed, principal, era, message.params.get("cursor"))
            if self._sdk is not None:
                self._sdk.served(principal, mcp_view, listed)
            await response.finish(b'{"jsonrpc":"2.0","id":' + dumps(message.id) + b',"result":' + page + b"}")
        else:
            request = McpRequest(principal, mcp_view, era, message, headers, response, session, http.result_tokens)
            await self._run(request)
        return True

    async def _run(self, request: McpRequest) -> None:
        """Answer one request that may take long, be cancelled, or be interrupted by questions."""
        response, message = request.response, request.message
        assert message.id is not None
        session = request.session
        if session is not None:
            if CARRIED_HEADER not in request.headers:  # a front without HTTP cannot resume
                version = request.headers.get(b"mcp-protocol-version", b"")
                response.make_resumable(self._resumable, session.id, version)
            self._running[session.id, message.id] = response
            session.calls += 1
        outcome: JsonObject | RpcError | None = None
        body, status = b"", 200
        try:
            with response:
                outcome = await self._answer_fully(request)
                body = dumps({"jsonrpc": "2.0", "id": message.id, "result": outcome})
        except RpcError as failure:
            outcome = failure
        except Exception:  # boundary: a failure of one request must not affect the next
            logger.exception("%s failed", message.method)
            outcome = RpcError(INTERNAL_ERROR, "Internal error")
        finally:
            if session is not None:
                self._running.pop((session.id, message.id), None)
                session.calls -= 1
        if request.candidate is not None and await self._mcp_tasks.settle(request.candidate, outcome):
            return
        if isinstance(outcome, RpcError):
            body, status = outcome.body(message.id), outcome.status(request.era)
        if request.parked_as is not None:
            self._parking.end(request, outcome or RpcError(INTERNAL_ERROR, "The call was cancelled."))
        elif body:
            await response.finish(body, status)
        else:
            await response.end()

    async def _answer_fully(self, request: McpRequest) -> JsonObject:
        """Return the result of a request. What a server asks by its result is answered within a task."""
        if request.message.method != "tools/call" or not request.has_extensions:
            return await self._methods.answer(request)
        candidate = self._mcp_tasks.candidate(request)
        outcome = await self._methods.answer(request)
        while candidate is not None and await candidate.asks(outcome):
            outcome = await self._methods.answer(request)
        return outcome

    async def _handle_client_message(self, session: McpSession, message: Message, send: Send) -> bool:
        """Handle a legacy client's response or cancellation. Return False to delegate it to the SDK."""
        if not message.method:
            session.take(message)
        elif message.method == "notifications/cancelled":
            request_id: Any = message.params.get("requestId")
            response = self._running.get((session.id, request_id)) if isinstance(request_id, str | int) else None
            if response is None:
                return False
            response.cancel()
        else:
            return False
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _delegate(self, http: HttpRequest) -> None:
        sdk = self._sdk or await self._load_sdk()
        await sdk.handle(http.scope, http.receive, http.send, http.principal, http.mcp_view, http.owner)

    async def _stream_or_end(self, http: HttpRequest) -> None:
        """Resume the stream of a call, open the stream of a session, or end the session on `DELETE`."""
        method = http.scope["method"]
        resumed = self._resumable.find(http.session_id, http.last_event_id) if method == "GET" else None
        if self._stopping is not None and resumed is None:  # the stream of a call in flight can still be resumed
            self._stopping.check()
        routing = self._routing if resumed is None else None
        if routing is not None and await routing.route_stream(http.scope, http.receive, http.send, http.session_id):
            return
        if http.session_id and await self._is_open(http):
            session = self._sessions.get(http.session_id)
            if resumed is not None:
                log, number = resumed
                await log.follow(number, http.receive, http.send)
                return
            if method == "DELETE":
                self._sessions.end(session.id)
            elif method == "GET":
                http = self._reopen(http, session)
        await self._delegate(http)

    def _reopen(self, http: HttpRequest, session: McpSession) -> HttpRequest:
        """Return a request for the session's own stream, from now on unless its missed messages are known."""
        is_restored, session.is_restored = session.is_restored, False
        http = replace(http, send=self._catching_up(session.id, http.send, is_restored=is_restored))
        if http.last_event_id and (self._sdk is None or not self._sdk.can_resume(session.id, http.last_event_id)):
            headers = [header for header in http.scope["headers"] if header[0] != LAST_EVENT_ID]
            http = replace(http, scope={**http.scope, "headers": headers})
        return http

    async def _open_session(self, http: HttpRequest, message: Message) -> None:
        """Answer `initialize` and register the session it opens."""
        sdk = self._sdk or await self._load_sdk()
        key = http.credential
        session = McpSession(self._sessions.new_id(message.params, http.bound_to), message.params, tag=self._tag)
        async with self._opening:
            await self._make_room(sdk, key)
            self._sessions.begin(session, key)
        self._watch(key, http.scope.get(ENDED))
        try:
            await sdk.open(session.id, http.scope, http.receive, http.send, http.principal, http.mcp_view, http.owner)
        finally:
            if not sdk.is_open(session.id):
                self._sessions.forget(session.id)

    async def _is_open(self, http: HttpRequest) -> bool:
        """Return whether the request's session is open, restoring a session of an earlier run if needed."""
        session_id = http.session_id
        if self._sdk is not None and self._sdk.touch(session_id, http.owner):
            self._sessions.touch(session_id)
            return True
        hello = self._sessions.hello_of(session_id, http.bound_to) if session_id else None
        if hello is None:
            return False
        sdk = self._sdk or await self._load_sdk()
        async with self._opening:
            if sdk.touch(session_id, http.owner):
                return True
            await self._make_room(sdk, http.credential)
            is_open = await sdk.restore(session_id, hello, http.scope, http.principal, http.mcp_view, http.owner)
            if is_open:
                session = McpSession(session_id, hello, is_restored=True, tag=self._tag)
                self._sessions.begin(session, http.credential)
                self._watch(http.credential, http.scope.get(ENDED))
        return is_open

    async def _make_room(self, sdk: "SdkEndpoint", key: str) -> None:
        """End an idle session if this principal has too many. Its client can restore it later."""
        surplus = self._sessions.surplus(key, sdk.is_busy)
        if surplus is not None:
            await sdk.discard(surplus)
            self._sessions.forget(surplus)

    def _watch(self, key: str, ended: anyio.Event | None) -> None:
        """End the sessions of a credential when the credential ends."""
        if ended is not None and key not in self._watched:
            self._watched.add(key)
            self._tasks.start_soon(self._end_on_expiry, key, ended)

    async def _end_on_expiry(self, key: str, ended: anyio.Event) -> None:
        await ended.wait()
        self._watched.discard(key)
        for session_id in self._sessions.of(key):
            if self._sdk is not None:
                await self._sdk.discard(session_id)
            self._sessions.forget(session_id)

    def _session_ended(self, session_id: str) -> None:
        self._sessions.forget(session_id)
        self._resumable.end_session(session_id)
        self._ended(session_id)

    def _catching_up(self, session_id: str, send: Send, *, is_restored: bool) -> Send:
        """Return a `send` that announces missed changes once the client's stream is open."""

        async def catching_up(event: AsgiMessage) -> None:
            await send(event)
            if event.get("status") == HTTPStatus.OK and self._sdk is not None:
                self._tasks.start_soon(partial(self._sdk.stream_opened, session_id, is_restored=is_restored))

        return catching_up

    async def _load_sdk(self) -> "SdkEndpoint":
        async with self._loading:
            if self._sdk is not None:
                return self._sdk
            # In a thread, because the import takes longer than many calls.
            module = await anyio.to_thread.run_sync(importlib.import_module, "toolcrib.web.mcp.sdk")
            sdk: SdkEndpoint = module.SdkEndpoint(self._gate, self._subscriptions, self._session_ended)
            await self._tasks.start(self._run_sdk, sdk)
            self._sdk = sdk
            return sdk

    async def _run_sdk(self, sdk: "SdkEndpoint", *, task_status: TaskStatus[None]) -> None:
        async with sdk.running():
            task_status.started()
            await self.list_changes.follow(sdk.announce)

    async def _look_again(self) -> None:
        """Load what other nodes changed before lists are served: the node of the client's stream may be ahead."""
        with suppress(Unavailable):  # calls are refused without the database; the lists are those of before
            await self._gate.look_again()

    def _queue_notice(self, notice: Notice) -> None:
        try:
            self._notices_in.send_nowait(notice)
        except anyio.WouldBlock:
            logger.warning("dropped %s of %s: too many notifications are queued", notice.kind, notice.server)

    async def _forward_notices(self) -> None:
        async for notice in self._notices_out:
            if self._sdk is None:
                continue
            wanted = self._sessions.get(notice.session).log_level
            if notice.kind != "message" or reaches_level(notice.params.get("level"), wanted):
                await self._sdk.pass_on(notice)


def _views(gate: Gate, instruct: Instruct | None) -> Mapping[ToolMode, Everything]:
    """Return the views of everything, by what clients list."""
    return {
        "all": Everything(gate, instruct),
        "search": Searchable(gate, instruct),
        "code": Programmable(gate, instruct),
    }


def _fold(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Raises for a repeated `Mcp-*` header: parsers disagree on which one counts."""
    folded = dict(raw)
    if len(folded) != len(raw):
        names = [name for name, _ in raw]
        for name in folded:
            if name.startswith(b"mcp-") and names.count(name) > 1:
                raise RpcError(HEADER_MISMATCH, f"The header {name.decode('latin-1')} appears more than once.")
    return folded


def _starts_work(message: Message) -> bool:
    """Return whether a message starts new work: not a response, a cancellation or the next round of a parked call."""
    return message.id is not None and bool(message.method) and "requestState" not in message.params


async def _refuse_stopping(send: Send, message: Message) -> None:
    """Answer with a JSON-RPC error that the request was not processed."""
    text = "The crib is stopping and accepts no new requests. Try again in a moment."
    body = RpcError(INTERNAL_ERROR, text, {"code": "crib.stopping", "retryAfterMs": 1_000}).body(message.id)
    headers = [(b"content-type", _JSON), (b"content-length", b"%d" % len(body)), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": HTTPStatus.SERVICE_UNAVAILABLE.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
