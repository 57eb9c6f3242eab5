"""`/mcp` and what lies below it: routes each request by face, era and method, and answers nearly all of them itself.

Lists, calls, reads and the like are answered without the SDK, in both eras, from one parse to one dump. What is left
(handshake, discovery, subscriptions, the legacy event stream) goes to the SDK's server in `sdk`, which is loaded when
the first client needs it. Both roads end at the gate.

Above: `server.run` opens it, the guard has judged every request. Below: `face`, `methods`, `pages`, `parking`, `sdk`.
"""

import importlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from toolcrib.errors import Denied, InvalidRequest, NotFound, Unavailable
from toolcrib.feed import Feed
from toolcrib.gate import Gate
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import HEADER_MISMATCH, INTERNAL_ERROR, PARSE_ERROR, Era
from toolcrib.model.sources import Notice
from toolcrib.server import problems
from toolcrib.server.answer import WHOLE
from toolcrib.server.mcp.asking import is_wanted
from toolcrib.server.mcp.exchange import Exchange, Lasting
from toolcrib.server.mcp.face import Everything, Face, Introduce, OneServer, Searchable
from toolcrib.server.mcp.methods import InSession, Methods
from toolcrib.server.mcp.pages import LISTED, Pages
from toolcrib.server.mcp.parking import Parking
from toolcrib.server.mcp.request import Request
from toolcrib.server.mcp.rpc import Message, RequestId, RpcError, check_modern, era_of, read_message
from toolcrib.server.mcp.seal import Seal
from toolcrib.server.mcp.sessions import Session, Sessions
from toolcrib.server.mcp.subscriptions import Subscriptions
from toolcrib.zoo import Zoo

if TYPE_CHECKING:
    from toolcrib.server.mcp.sdk import SdkServer

logger = logging.getLogger(__name__)

ANNOUNCE_EVERY = 0.5
"""Seconds between two announcements of a changed list, so that a storm of changes becomes a few."""
NOTICES_WAITING = 1_000
"""What servers said that may wait to be passed on; more is dropped, since it only ever says to look again."""

_JSON = b"application/json"
_PATHS = frozenset({"/mcp", "/mcp/"})
_SERVERS = "/mcp/servers/"
_AGENTS = "/mcp/agents/"

Notices = Callable[[Callable[[Notice], None]], Callable[[], None]]
"""Calls back with every notice from now on; gives how to stop it."""
Enter = Callable[[Principal], Awaitable[Principal]]
"""Makes the servers of an asker's directory known; gives the asker by the real path of it."""
Ready = Callable[[Principal, str], Awaitable[None]]
"""Sees to it that a server has been met; raises `Unavailable` where that does not work."""


class McpEndpoint:
    """The ASGI application of `/mcp`; `async with` owns the SDK's sessions and the announcements to them."""

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
    ) -> None:
        """`key` seals what clients carry for us; without one, nothing that they carry outlives this object.

        `zoo` has the agents that may be asked as, `introduce` says what a server said of itself, `enter` makes a
        directory's servers known and `ready` one of them ready, `notices` is where servers are heard that say something
        by themselves, `ended` is told of sessions that are over, and `in_session` makes the calls of agents' sessions.
        """
        self._gate = gate
        self._feed = feed
        self._introduce: Introduce = introduce or (lambda principal, name: None)
        self._enter = enter
        self._ready = ready
        self._notices = notices
        self._ended = ended
        self._zoo = zoo
        self._everything = Everything(gate)
        self._searchable = Searchable(gate)
        self._as_agent = Everything(gate, self._instruct)
        self._as_searching_agent = Searchable(gate, self._instruct)
        self._pages = Pages(gate)
        self._sessions = Sessions()
        self._subscriptions = Subscriptions()
        seal = Seal(key or secrets.token_bytes(32))
        self._parking = Parking(seal)
        self._methods = Methods(gate, seal, self._parking, self._subscriptions, in_session)
        self._running: dict[tuple[str, RequestId], Exchange] = {}
        self._lasting = Lasting()
        self._sdk: SdkServer | None = None
        self._loading = anyio.Lock()
        self._changed = anyio.Event()
        self._said, self._heard = anyio.create_memory_object_stream[Notice](NOTICES_WAITING)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._stack.callback(self._said.close)
        self._stack.callback(self._heard.close)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        self._stack.callback(self._feed.listen(self._notice))
        if self._notices is not None:
            self._stack.callback(self._notices(self._hear))
            self._tasks.start_soon(self._pass_on)
        self._stack.callback(self._parking.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; the guard has let it in and said who asks."""
        principal: Principal = scope["toolcrib.principal"]
        asked = _read_query(scope["query_string"]) if scope["query_string"] else _NOTHING_ASKED
        if asked.cwd is not None:
            principal = await self._in_directory(principal, asked.cwd)
        path: str = scope["path"]
        face: Face
        if path in _PATHS:
            face = self._searchable if asked.search else self._everything
        elif path.startswith(_AGENTS):
            principal = await self._agent(path, principal)
            face = self._as_searching_agent if asked.search else self._as_agent
        else:
            face = await self._one_server(path, principal)
        if scope["method"] != "POST":
            await self._hand_over(scope, receive, send, principal, face)
            return
        message: Message | None = None
        era: Era = "modern"
        try:
            headers = _fold(scope["headers"])
            era = era_of(headers.get(b"mcp-protocol-version", b"").decode("latin-1") or None)
            kind = headers.get(b"content-type", b"")
            if kind != _JSON and kind.split(b";")[0].strip().lower() != _JSON:
                await problems.answer(send, InvalidRequest("request.media_type", "MCP messages are JSON."))
                return
            body = await _read_body(receive)
            message = read_message(body)
            takes_whole = WHOLE in scope.get("extensions", ())
            exchange = Exchange(receive, send, headers, self._lasting, takes_whole=takes_whole)
            if not await self._answer(era, message, headers, principal, face, exchange, send):
                if message.method == "initialize":
                    send = self._noting_session(message, send)
                await self._hand_over(scope, _replay(body, receive), send, principal, face)
        except RpcError as error:
            request_id = message.id if message else None
            logger.info("refused MCP request: %s", error.message, extra={"code": error.code})
            await Exchange(receive, send, {}, self._lasting).finish(error.body(request_id), error.status(era))

    async def _one_server(self, path: str, principal: Principal) -> Face:
        """The face of one server; an address that names anything else is never answered with a wider view."""
        name = path.removeprefix(_SERVERS)
        if name == path or not name or "/" in name:
            raise NotFound("route.unknown", f"There is nothing at {path}.")
        face = OneServer(self._gate, name, self._introduce)
        if not face.exists_for(principal):
            raise NotFound("server.unknown", f"There is no server {name!r}.")
        if self._ready is not None and not face.is_met_by(principal):
            # Who asks a server that nobody has met yet wants to know what it has, not that nothing is known.
            with suppress(Unavailable):
                await self._ready(principal, name)
        return face

    async def _agent(self, path: str, principal: Principal) -> Principal:
        """The asker as the agent that the address names; who is bound to one is never another."""
        agent = path.removeprefix(_AGENTS)
        if self._zoo is None or not agent or "/" in agent or not (principal.is_owner or principal.agent == agent):
            raise NotFound("route.unknown", f"There is nothing at {path}.")
        if self._zoo.granted(agent) is None:
            await self._zoo.list()  # another crib on the same database may just have made it
        if self._zoo.granted(agent) is None:
            raise NotFound("agent.unknown", f"Agent with ID '{agent}' not found.")
        return principal if principal.agent == agent else replace(principal, agent=agent)

    async def _instruct(self, principal: Principal) -> str:
        assert self._zoo is not None
        assert principal.agent is not None
        _, compiled = await self._zoo.compiled(principal.agent, principal.cwd)
        return compiled.prompt

    async def _in_directory(self, principal: Principal, cwd: str) -> Principal:
        """The asker in the working directory that the address names, which only the owner may do."""
        if not principal.is_owner:
            raise Denied("policy.denied", "Only the owner may name a working directory.")
        if not PurePath(cwd).is_absolute() or "\0" in cwd:
            raise InvalidRequest("request.malformed", "cwd has to be an absolute path.")
        named = replace(principal, cwd=cwd)
        return await self._enter(named) if self._enter is not None else named

    async def _answer(
        self,
        era: Era,
        message: Message,
        headers: Mapping[bytes, bytes],
        principal: Principal,
        face: Face,
        exchange: Exchange,
        send: Send,
    ) -> bool:
        """Answer what is ours; False leaves the request to the SDK's server."""
        session: Session | None = None
        if era == "legacy":
            session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
            if self._sdk is None or not self._sdk.touch(session_id, principal, face):
                return False  # the SDK opens sessions and refuses unknown ones
            session = self._sessions.get(session_id)
            if message.id is None or not message.method:
                return await self._take(session, message, send)
        listed = LISTED.get(message.method)
        if message.id is None or not (listed or self._methods.answers(era, message.method)):
            return False
        if era == "modern":
            check_modern(message, headers)
        if listed:
            page = self._pages.page(face, listed, principal, era, message.params.get("cursor"))
            await exchange.finish(b'{"jsonrpc":"2.0","id":' + orjson.dumps(message.id) + b',"result":' + page + b"}")
        else:
            await self._work(Request(principal, face, era, message, headers, exchange, session))
        return True

    async def _work(self, request: Request) -> None:
        """Answer one request that may take long, be taken back, or be interrupted by questions."""
        exchange, message = request.exchange, request.message
        assert message.id is not None
        session = request.session
        if session is not None:
            self._running[session.id, message.id] = exchange
        outcome: JsonObject | RpcError | None = None
        body, status = b"", 200
        try:
            with exchange:
                outcome = await self._methods.answer(request)
                body = orjson.dumps({"jsonrpc": "2.0", "id": message.id, "result": outcome})
        except RpcError as failure:
            outcome = failure
        except Exception:  # boundary: whatever breaks while one request is answered must not reach the next
            logger.exception("%s failed", message.method)
            outcome = RpcError(INTERNAL_ERROR, "Internal error")
        finally:
            if session is not None:
                self._running.pop((session.id, message.id), None)
        if isinstance(outcome, RpcError):
            body, status = outcome.body(message.id), outcome.status(request.era)
        if request.parked_as is not None:
            self._parking.end(request, outcome or RpcError(INTERNAL_ERROR, "The call was ended."))
        elif body:
            await exchange.finish(body, status)
        else:
            await exchange.end()

    async def _take(self, session: Session, message: Message, send: Send) -> bool:
        """A legacy client's answer to a question of ours, or a request that it takes back."""
        if not message.method:
            session.take(message)
        elif message.method == "notifications/cancelled":
            request_id: Any = message.params.get("requestId")
            exchange = self._running.get((session.id, request_id)) if isinstance(request_id, str | int) else None
            if exchange is None:
                return False
            exchange.withdraw()
        else:
            return False
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _hand_over(self, scope: Scope, receive: Receive, send: Send, principal: Principal, face: Face) -> None:
        sdk = self._sdk or await self._load_sdk()
        await sdk.handle(scope, receive, send, principal, face)

    def _noting_session(self, message: Message, send: Send) -> Send:
        """A `send` that notes the session which an answer to `initialize` opens."""

        async def noting(event: AsgiMessage) -> None:
            session_id = dict(event.get("headers", ())).get(b"mcp-session-id") if "status" in event else None
            if session_id and event["status"] == 200 and self._sdk is not None:
                self._sessions.begin(session_id.decode("latin-1"), message.params, self._sdk.is_open)
            await send(event)

        return noting

    async def _load_sdk(self) -> "SdkServer":
        async with self._loading:
            if self._sdk is not None:
                return self._sdk
            # In a thread, since the import takes longer than many calls.
            module = await anyio.to_thread.run_sync(importlib.import_module, "toolcrib.server.mcp.sdk")
            sdk: SdkServer = module.SdkServer(self._gate, self._subscriptions, self._ended)
            await self._tasks.start(self._run_sdk, sdk)
            self._sdk = sdk
            return sdk

    async def _run_sdk(self, sdk: "SdkServer", *, task_status: TaskStatus[None]) -> None:
        async with sdk.running():
            task_status.started()
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await sdk.announce()
                await anyio.sleep(ANNOUNCE_EVERY)

    def _notice(self, event: Event) -> None:
        if event.kind == "catalog_changed":
            self._changed.set()

    def _hear(self, notice: Notice) -> None:
        try:
            self._said.send_nowait(notice)
        except anyio.WouldBlock:
            logger.warning("dropped %s of %s: too many wait to be passed on", notice.kind, notice.server)

    async def _pass_on(self) -> None:
        async for notice in self._heard:
            if self._sdk is None:
                continue
            if notice.kind != "message" or is_wanted(notice.params, self._sessions.get(notice.session).log_level):
                await self._sdk.pass_on(notice)


class _Asked(NamedTuple):
    cwd: str | None
    search: bool


_NOTHING_ASKED = _Asked(None, search=False)


@lru_cache(maxsize=256)
def _read_query(query: bytes) -> _Asked:
    """What the address asks for, beside its path."""
    named = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    mode = named.get("tools")
    if mode is not None and mode != ["search"]:
        raise InvalidRequest("request.malformed", "tools may be `search`, once.")
    cwd = named.get("cwd")
    return _Asked(cwd[-1] if cwd else None, mode is not None)


def _fold(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; one of the protocol's given twice is refused, since readers would differ on which one counts."""
    folded = dict(raw)
    if len(folded) != len(raw):
        names = [name for name, _ in raw]
        for name in folded:
            if name.startswith(b"mcp-") and names.count(name) > 1:
                raise RpcError(HEADER_MISMATCH, f"The header {name.decode('latin-1')} appears more than once.")
    return folded


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":  # half a body must never be taken for a whole one
            raise RpcError(PARSE_ERROR, "The request ended before its body did.")
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, then whatever comes."""
    first: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> AsgiMessage:
        return first.pop() if first else await receive()

    return replayed
