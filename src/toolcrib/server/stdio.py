"""`toolcrib stdio`: MCP on standard input and output, carried to the crib's own endpoint.

The front is a client like any other: each line becomes a request to `/mcp` of the crib that holds the home, or to the
address of one agent there, so that there is one road for all clients. If no crib runs, this process becomes the holder;
when the holder ends, one of its fronts does. What a front adds is the memory of what a legacy client said once, its
handshake and what it wants to hear of: such a client does not notice that the crib changed.

Above: the command line runs it. Below: `server.run` for the holder's part, `mcp.rpc` for what a line says. Standard
output belongs to the protocol: whatever else this process prints must go to standard error.
"""

import logging
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlencode

import anyio
import httpx2
import orjson
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.client import Client
from toolcrib.connect.start import MARKER
from toolcrib.errors import ConfigError, ToolcribError, Unavailable
from toolcrib.home import Home, RunInfo, find_holder, owner_token, prepare_home
from toolcrib.model.json import Json, is_object
from toolcrib.model.protocol import (
    INTERNAL_ERROR,
    MODERN_VERSION,
    NAMED_BY,
    PARSE_ERROR,
    VERSION_KEY,
    encode_header,
)
from toolcrib.server.mcp.methods import CARRIED
from toolcrib.server.mcp.rpc import Message, RequestId, RpcError, read_message
from toolcrib.server.pipes import Line, Oversized, Write, protocol_pipes
from toolcrib.server.run import hold
from toolcrib.settings import Environment, Settings

logger = logging.getLogger(__name__)

JOIN_WAIT = 20.0
"""Seconds to find or become the holder before giving up."""
LAST_WORDS = 10.0
"""Seconds that requests may still take after the client has closed its end."""

_PAUSE = 0.1
_LONG_PAUSE = 2.0
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_LISTS_CHANGED = tuple(
    orjson.dumps({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
    for kind in ("tools", "prompts", "resources")
)


async def run_stdio(settings: Settings, agent: str | None = None) -> None:
    """Serve one client until it closes its end, as this agent if one is named; raises `agent.unknown`.

    A front that its own crib started is refused: what the crib offers would grow by itself, without end.
    """
    home = prepare_home(settings.home)
    if Environment.current().get(MARKER) == home.marker:
        raise ConfigError("server.own_crib", "This is a front of the crib that started it, so it offers nothing.")
    token = owner_token(home)
    async with protocol_pipes() as (lines, write), _http(token) as http, anyio.create_task_group() as tasks:
        crossing = Crossing(settings, home, http, tasks)
        holder = await crossing.holder()
        if agent is not None:
            async with Client(holder.url, token, source="cli") as client:
                await client.inject_agent(agent)
        tasks.start_soon(crossing.keep)
        await Front(crossing, http, write, tasks, agent).serve(lines)
        tasks.cancel_scope.cancel()


def _http(token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"authorization": f"Bearer {token}", **_ACCEPT},
        # Calls have no bound of their own here: the gate's and the tool's count, and the client may take them back.
        timeout=httpx2.Timeout(None, connect=5.0),
        limits=httpx2.Limits(max_connections=None),
        # Plain HTTP on loopback. A context without authorities costs nothing to make, and trusts nobody.
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
    )


class Crossing:
    """The way to the crib that holds the home, found anew when it is lost."""

    def __init__(self, settings: Settings, home: Home, http: httpx2.AsyncClient, tasks: TaskGroup) -> None:
        self._settings = settings
        self._home = home
        self._http = http
        self._tasks = tasks
        self._holder: RunInfo | None = None
        self._is_here = False
        self._searching = anyio.Lock()

    async def holder(self) -> RunInfo:
        """The holder, found or become now if it is not known or has ended.

        Looking is cheap, and sending a call to one that has just ended is not: nobody could say whether it ran.
        """
        async with self._searching:
            if self._holder is None or not (self._is_here or find_holder(self._home) == self._holder):
                self._holder = await self._reach()
            return self._holder

    def lost(self, holder: RunInfo) -> None:
        """Say that this holder does not answer any more."""
        if self._holder == holder and not self._is_here:
            self._holder = None

    async def keep(self) -> None:
        """Notice when the holder ends, and find or become the next one at once."""
        while not self._is_here:
            holder = await self.holder()
            try:
                async with self._http.stream("GET", f"{holder.url}/api/events") as events:
                    async for _ in events.aiter_raw():
                        pass
            except httpx2.HTTPError as error:
                logger.debug("The holder's events ended: %s", error)
            self.lost(holder)
            await anyio.sleep(_PAUSE)

    async def _reach(self) -> RunInfo:
        with anyio.move_on_after(JOIN_WAIT):
            while True:
                if info := find_holder(self._home):
                    return info
                try:
                    return await self._tasks.start(self._hold)
                except Unavailable as error:
                    if error.code != "crib.running":
                        raise
                await anyio.sleep(_PAUSE)  # somebody else is just becoming the holder
        raise Unavailable("home.busy", f"Somebody holds {self._home.root} but does not answer.")

    async def _hold(self, *, task_status: TaskStatus[RunInfo]) -> None:
        async with hold(self._settings, kind="stdio") as holding:
            self._is_here = True
            task_status.started(holding.info)
            await anyio.sleep_forever()


class Front:
    """One client: reads its lines, sends them on, writes what comes back."""

    def __init__(
        self, crossing: Crossing, http: httpx2.AsyncClient, write: Write, tasks: TaskGroup, agent: str | None = None
    ) -> None:
        self._crossing = crossing
        self._http = http
        self._write = write
        self._tasks = tasks
        path = "/mcp" if agent is None else f"/mcp/agents/{quote(agent, safe='')}"
        self._address = f"{path}?{urlencode({'cwd': str(Path.cwd())})}"
        self._running: dict[RequestId, anyio.CancelScope] = {}
        # A legacy client's handshake: its lines, who answered them, and the headers of the session that came of it.
        self._handshake: list[bytes] = []
        self._wishes: dict[tuple[str, str], bytes] = {}
        self._greeted: RunInfo | None = None
        self._session: dict[str, str] = {}
        self._greeting = anyio.Lock()

    async def serve(self, lines: AsyncIterable[Line]) -> None:
        """Handle every line, then give the requests under way a moment to end."""
        async with anyio.create_task_group() as requests:
            async for line in lines:
                await self._handle(line, requests)
            requests.cancel_scope.deadline = anyio.current_time() + LAST_WORDS

    async def _handle(self, line: Line, requests: TaskGroup) -> None:
        try:
            if isinstance(line, Oversized):
                raise RpcError(PARSE_ERROR, f"Parse error: the line is longer than {line.limit} bytes")
            message = read_message(line)
        except RpcError as error:
            await self._write(error.body(None))
            return
        if message.method == "notifications/cancelled":
            # Closing the request takes it back, also one that has not left yet; a legacy crib is told as well.
            if scope := self._running.get(message.params.get("requestId", "")):
                scope.cancel()
            if self._handshake:
                await self._request(message, line)
        elif message.id is not None and message.method not in ("", "initialize"):
            requests.start_soon(self._request, message, line)
        else:
            await self._request(message, line)
            if message.method == "notifications/initialized" and len(self._handshake) == 1:
                self._handshake.append(line)
                self._tasks.start_soon(self._hear)

    async def _request(self, message: Message, line: bytes) -> None:
        """Send one message on and write every answer; whatever goes wrong is an answer too."""
        with anyio.CancelScope() as scope:
            asked = message.id if message.method else None  # the id of an answer is not the client's own
            if asked is not None:
                self._running[asked] = scope
            try:
                await self._send(message, line)
                self._remember(message, line)
            except (ToolcribError, httpx2.HTTPError) as error:
                logger.warning("%s was not answered: %s", message.method, error)
                await self._fail(message, f"The crib does not answer: {error}")
            finally:
                if asked is not None:
                    self._running.pop(asked, None)

    def _remember(self, message: Message, line: bytes) -> None:
        """Keep what a legacy client said once and for all, to say it again to the next crib."""
        about = str(message.params.get("uri", ""))
        if message.method == "logging/setLevel":
            self._wishes["level", ""] = line
        elif message.method == "resources/subscribe":
            self._wishes["resource", about] = line
        elif message.method == "resources/unsubscribe":
            self._wishes.pop(("resource", about), None)

    async def _send(self, message: Message, line: bytes) -> None:
        holder = await self._ready()
        try:
            answered = await self._post(holder, message, line)
        except httpx2.TransportError as error:
            self._crossing.lost(holder)
            if message.method == "tools/call" and not isinstance(error, httpx2.ConnectError):
                await self._fail(message, "The crib ended during the call, which may have run; see `toolcrib audit`.")
                return
            answered = False
        if not answered:
            await self._post(await self._ready(), message, line)

    async def _ready(self) -> RunInfo:
        """The holder to send to. A legacy client's handshake is made again with a new one, and it is told to list."""
        async with self._greeting:
            holder = await self._crossing.holder()
            if len(self._handshake) < 2 or self._greeted == holder:
                return holder
            for line in (*self._handshake, *self._wishes.values()):
                headers = self._session if line is not self._handshake[0] else {}
                async with self._http.stream("POST", self._url(holder), content=line, headers=headers) as response:
                    await response.aread()
                    self._session |= _session_of(response)
            self._greeted = holder
            for line in _LISTS_CHANGED:
                await self._write(line)
            return holder

    async def _post(self, holder: RunInfo, message: Message, line: bytes) -> bool:
        """Send one message and write its answers; False if the crib does not know the session any more."""
        headers = self._headers(message)
        async with self._http.stream("POST", self._url(holder), content=line, headers=headers) as response:
            if message.method == "initialize":
                self._handshake, self._greeted, self._session = [line], holder, _session_of(response)
            elif headers is self._session and self._session and _is_session_unknown(response):
                self._greeted = None
                return False
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for event in _events(response.aiter_bytes()):
                    await self._pass_on(message, event)
            elif body := await response.aread():
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
        headers[CARRIED.decode()] = "stdio"
        name: Json = message.params.get(NAMED_BY.get(message.method, ""))
        return headers | ({"mcp-name": encode_header(name)} if isinstance(name, str) else {})

    async def _pass_on(self, message: Message, body: bytes) -> None:
        """Write an answer; what is not a message of the protocol (a problem of the guard, say) becomes one."""
        answer: Json = orjson.loads(body)
        if not is_object(answer) or "jsonrpc" not in answer:
            detail = answer.get("detail") if is_object(answer) else None
            await self._fail(message, str(detail or "The crib gave no answer of the protocol."))
            return
        if message.id is not None and "error" in answer:
            answer["id"] = message.id  # it may have been refused before its id was read
        result: Json = answer.get("result")
        if message.method == "initialize" and is_object(result):
            self._session["mcp-protocol-version"] = str(result.get("protocolVersion"))
        await self._write(orjson.dumps(answer))

    async def _fail(self, message: Message, text: str) -> None:
        if message.id is not None and message.method:
            await self._write(RpcError(INTERNAL_ERROR, text).body(message.id))

    async def _hear(self) -> None:
        """Pass on what the server says by itself to a legacy client."""
        while True:
            holder = await self._ready()
            try:
                async with self._http.stream("GET", self._url(holder), headers=self._session) as response:
                    if response.is_success:
                        async for event in _events(response.aiter_bytes()):
                            await self._write(event)
                    elif _is_session_unknown(response):
                        self._greeted = None
                    else:
                        await anyio.sleep(_LONG_PAUSE)
            except httpx2.HTTPError:
                self._crossing.lost(holder)
            await anyio.sleep(_PAUSE)


def _session_of(response: httpx2.Response) -> dict[str, str]:
    session = response.headers.get("mcp-session-id")
    return {"mcp-session-id": session} if session else {}


def _is_session_unknown(response: httpx2.Response) -> bool:
    """Whether the crib has lost the session; a problem says that the address is gone, as a deleted agent's is."""
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    return response.status_code == HTTPStatus.NOT_FOUND and not is_problem


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event of a stream; comments and other fields are passed over."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (data := line.removeprefix(b"data:").strip()):
                yield data
