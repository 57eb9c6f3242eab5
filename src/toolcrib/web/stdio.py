"""`toolcrib stdio`: MCP over standard input and output, forwarded to the crib's MCP endpoint.

The front is an ordinary client: each line becomes a request to `/mcp` of the crib that holds the home, or to the
endpoint of one agent. `HolderConnection` finds that crib, or becomes it if there is none. The front remembers the
handshake and subscriptions of a legacy client and replays them to a new crib, so that the client need not notice.

Standard output belongs to the protocol: everything else must go to standard error. A front that only joins must never
import the host, the web server or the MCP SDK.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from toolcrib.base.home import MARKER, RunInfo, owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.errors import CODES, ConfigError, ToolcribError, Unavailable
from toolcrib.model.json import Json, dumps, is_object, loads
from toolcrib.model.jsonrpc import Message, RequestId, RpcError, read_message
from toolcrib.model.protocol import (
    ACTING_AS,
    CARRIED,
    INTERNAL_ERROR,
    MODERN_VERSION,
    NAMED_BY,
    PARSE_ERROR,
    VERSION_KEY,
    encode_header,
)
from toolcrib.web.holder_connection import JOIN_WAIT, HolderConnection, Spawn
from toolcrib.web.loopback import LoopbackHttp, Lost, Response, Unreached
from toolcrib.web.pipes import Line, OversizedMessage, Write, protocol_pipes

logger = logging.getLogger(__name__)

LAST_WORDS = 10.0
"""Seconds that requests in flight get after the client closes standard input."""

_MAY_HAVE_RUN = "The crib stopped during the call, which may have run. Check `toolcrib audit`."
_PAUSE = 0.1
_LONG_PAUSE = 2.0
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_LISTS_CHANGED = tuple(
    dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
    for kind in ("tools", "prompts", "resources")
)


async def run_stdio(settings: Settings, agent: str | None = None, token: str | None = None) -> None:
    """Serve one client until it closes its end, as this agent and named token if given. Raises `agent.unknown`.

    Raises `server.own_crib` if the crib itself started this front, because its tool list would grow without end.
    """
    home = prepare_home(settings.home)
    if Environment.current().get(MARKER) == home.marker:
        raise ConfigError("server.own_crib", "Toolcrib was started by Toolcrib itself, so it offers no tools here.")
    http = LoopbackHttp(owner_token(home))
    background: list[asyncio.Task[None]] = []
    try:
        async with protocol_pipes() as (lines, write), asyncio.TaskGroup() as tasks:

            def spawn(work: Coroutine[Any, Any, None]) -> None:
                background.append(tasks.create_task(work))

            holder_connection = HolderConnection(settings, home, http, spawn)
            holder = await holder_connection.holder()
            if agent is not None:
                await _check_agent(http, holder, agent)
            spawn(holder_connection.keep())
            await Front(holder_connection, http, write, spawn, agent, token).serve(lines)
            for task in background:
                task.cancel()
    finally:
        http.close()


async def _check_agent(http: LoopbackHttp, holder: RunInfo, agent: str) -> None:
    """Raise the crib's error for an agent that cannot be used."""
    async with http.stream("GET", f"{holder.url}/api/agents/{quote(agent, safe='')}/inject?source=cli") as response:
        body = await response.read()
    if response.status == HTTPStatus.OK:
        return
    try:
        problem: Json = loads(body)
    except orjson.JSONDecodeError:
        problem = {}
    code = problem.get("code")
    code = code if code in CODES else "internal"
    raise CODES[code].raised_as(code, str(problem.get("detail", "The crib returned no reason.")), problem.get("hint"))


class Front:
    """Serves one client: reads its lines, forwards them and writes the responses."""

    def __init__(
        self,
        holder_connection: HolderConnection,
        http: LoopbackHttp,
        write: Write,
        spawn: Spawn,
        agent: str | None = None,
        token: str | None = None,
    ) -> None:
        self._common = _ACCEPT | {CARRIED: "stdio"} | ({ACTING_AS: token} if token is not None else {})
        self._holder_connection = holder_connection
        self._http = http
        self._write = write
        self._spawn = spawn
        path = "/mcp" if agent is None else f"/mcp/agents/{quote(agent, safe='')}"
        self._address = f"{path}?{urlencode({'cwd': str(Path.cwd())})}"
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        # A legacy client's handshake: its lines, the holder that answered them, and the resulting session headers.
        self._handshake: list[bytes] = []
        self._wishes: dict[tuple[str, str], bytes] = {}
        self._greeted: RunInfo | None = None
        self._session: dict[str, str] = {}
        self._handshake_lock = asyncio.Lock()

    async def serve(self, lines: AsyncIterable[Line]) -> None:
        """Handle every line, then wait briefly for the requests in flight."""
        requests: set[asyncio.Task[None]] = set()
        try:
            async for line in lines:
                if (task := await self._handle(line)) is not None:
                    requests.add(task)
                    task.add_done_callback(requests.discard)
            if requests:
                await asyncio.wait(requests, timeout=LAST_WORDS)
        finally:
            for task in requests:
                task.cancel()

    async def _handle(self, line: Line) -> asyncio.Task[None] | None:
        """Handle one line. Return a task for a request that may take long."""
        try:
            if isinstance(line, OversizedMessage):
                raise RpcError(PARSE_ERROR, f"Parse error: the line is longer than {line.limit} bytes")
            message = read_message(line)
        except RpcError as error:
            await self._write(error.body(None))
            return None
        if message.method == "notifications/cancelled":
            # Closing the request cancels it, even before it is sent; a legacy session also needs the notification.
            if task := self._running.get(message.params.get("requestId", "")):
                task.cancel()
            if self._handshake:
                await self._request(message, line)
        elif message.id is not None and message.method not in ("", "initialize"):
            task = asyncio.create_task(self._request(message, line))
            self._running[message.id] = task
            task.add_done_callback(partial(self._on_finished, message.id))
            return task
        else:
            await self._request(message, line)
            if message.method == "notifications/initialized" and len(self._handshake) == 1:
                self._handshake.append(line)
                self._spawn(self._forward_messages())
        return None

    def _on_finished(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        if self._running.get(request_id) is task:
            del self._running[request_id]

    async def _request(self, message: Message, line: bytes) -> None:
        """Forward one message and write every response. Errors are reported as responses, too."""
        try:
            await self._send(message, line)
            self._remember(message, line)
        except (ToolcribError, Lost, Unreached) as error:
            logger.warning("%s failed: %s", message.method, error)
            await self._fail(message, f"The crib does not respond: {error}")

    def _remember(self, message: Message, line: bytes) -> None:
        """Store a legacy client's subscriptions and log level, to replay them to the next crib."""
        about = str(message.params.get("uri", ""))
        if message.method == "logging/setLevel":
            self._wishes["level", ""] = line
        elif message.method == "resources/subscribe":
            self._wishes["resource", about] = line
        elif message.method == "resources/unsubscribe":
            self._wishes.pop(("resource", about), None)

    async def _send(self, message: Message, line: bytes) -> None:
        deadline = asyncio.get_running_loop().time() + JOIN_WAIT
        while True:
            holder = await self._ready()
            try:
                if await self._post(holder, message, line):
                    return
            except Unreached:
                self._holder_connection.lost(holder)
            except Lost:
                self._holder_connection.lost(holder)
                if message.method == "tools/call":
                    await self._fail(message, _MAY_HAVE_RUN)
                    return
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable("crib.unreachable", "The crib does not accept requests.")

    async def _ready(self) -> RunInfo:
        """Return the holder. Replay a legacy client's handshake to a new holder and announce changed lists."""
        async with self._handshake_lock:
            holder = await self._holder_connection.holder()
            if len(self._handshake) < 2 or self._greeted == holder:
                return holder
            for line in (*self._handshake, *self._wishes.values()):
                headers = self._session if line is not self._handshake[0] else {}
                async with self._http.stream("POST", self._url(holder), line, self._common | headers) as response:
                    await response.read()
                    self._session |= _session_of(response)
            self._greeted = holder
            for line in _LISTS_CHANGED:
                await self._write(line)
            return holder

    async def _post(self, holder: RunInfo, message: Message, line: bytes) -> bool:
        """Send one message and write its responses. Return False if it must be sent again."""
        headers = self._headers(message)
        async with self._http.stream("POST", self._url(holder), line, self._common | headers) as response:
            if _is_stopping(response):
                await response.read()
                await self._holder_connection.successor(holder)
                return False
            if message.method == "initialize":
                self._handshake, self._greeted, self._session = [line], holder, _session_of(response)
            elif headers is self._session and self._session and _is_session_unknown(response):
                self._greeted = None
                return False
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for event in _events(response.pieces()):
                    await self._pass_on(message, event)
            elif body := await response.read():
                await self._pass_on(message, body)
        return True

    def _url(self, holder: RunInfo) -> str:
        return f"{holder.url}{self._address}"

    def _headers(self, message: Message) -> dict[str, str]:
        if message.method == "initialize":
            return {}
        if self._handshake or (VERSION_KEY not in message.meta and message.method != "server/discover"):
            return self._session
        headers = {"mcp-protocol-version": str(message.meta.get(VERSION_KEY, MODERN_VERSION))}
        headers["mcp-method"] = encode_header(message.method)
        name: Json = message.params.get(NAMED_BY.get(message.method, ""))
        return headers | ({"mcp-name": encode_header(name)} if isinstance(name, str) else {})

    async def _pass_on(self, message: Message, body: bytes) -> None:
        """Write a response, converting one that is not JSON-RPC (such as a problem of the guard) to an error."""
        answer: Json = loads(body)
        if not is_object(answer) or "jsonrpc" not in answer:
            detail = answer.get("detail") if is_object(answer) else None
            await self._fail(message, str(detail or "The crib returned an invalid response."))
            return
        if message.id is not None and "error" in answer:
            answer["id"] = message.id  # it may have been refused before its id was read
        result: Json = answer.get("result")
        if message.method == "initialize" and is_object(result):
            self._session["mcp-protocol-version"] = str(result.get("protocolVersion"))
        await self._write(dumps(answer))

    async def _fail(self, message: Message, text: str) -> None:
        if message.id is not None and message.method:
            await self._write(RpcError(INTERNAL_ERROR, text).body(message.id))

    async def _forward_messages(self) -> None:
        """Forward server-initiated messages to a legacy client."""
        while True:
            try:
                holder = await self._ready()
            except (Lost, Unreached):
                await asyncio.sleep(_PAUSE)
                continue
            try:
                async with self._http.stream("GET", self._url(holder), None, self._common | self._session) as response:
                    if response.status == HTTPStatus.OK:
                        async for event in _events(response.pieces()):
                            await self._write(event)
                    elif _is_session_unknown(response):
                        self._greeted = None
                    else:
                        await asyncio.sleep(_LONG_PAUSE)
            except (Lost, Unreached):
                self._holder_connection.lost(holder)
            await asyncio.sleep(_PAUSE)


def _session_of(response: Response) -> dict[str, str]:
    session = response.headers.get("mcp-session-id")
    return {"mcp-session-id": session} if session else {}


def _is_session_unknown(response: Response) -> bool:
    """Return whether the crib lost the session. A problem response means that the address is gone (a deleted agent)."""
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    return response.status == HTTPStatus.NOT_FOUND and not is_problem


def _is_stopping(response: Response) -> bool:
    """Return whether the crib is stopping. It did not process the request, so the request can be sent again."""
    return response.status == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event of a stream, ignoring comments and other fields."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (data := line.removeprefix(b"data:").strip()):
                yield data
