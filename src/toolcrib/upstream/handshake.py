"""The handshake with a server: negotiates the protocol era and exchanges capabilities and identity.

`server/discover` is sent first. If the response does not list a known version, or does not arrive in time, `initialize`
follows. A server that rejects the version but names a known one is asked once more with that version. A late
`server/discover` response still counts: a server that was only slow to start, perhaps still downloading, has chosen its
era by the first request it read. A server that exits on the unknown method is restarted and initialized in the legacy
era.

Must never wait without a deadline, and must never combine the two responses.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from toolcrib.base.processes.process import Processes, ServerFailed
from toolcrib.base.processes.stderr import Mask
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSION,
    INVALID_PARAMS,
    LEGACY_VERSIONS,
    META,
    MODERN_VERSION,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Era,
)
from toolcrib.model.servers import ResolvedServer
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.stdio import StdioConnection, open_stdio

PROBE_WAIT: Final = 5.0
CONNECT_WAIT: Final = 30.0

_Reply = asyncio.Future[JsonObject]


@dataclass(frozen=True, slots=True)
class ServerIntroduction:
    """What a server reports about itself. `response` is its complete response."""

    era: Era
    version: str
    capabilities: JsonObject = field(repr=False)
    server_info: JsonObject
    instructions: str | None = field(repr=False)
    response: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientIntroduction:
    """The client info and capabilities the crib sends to servers.

    `modern_capabilities` are left out of the handshake of the legacy era: shared connections declare nothing there.
    """

    client_info: JsonObject
    capabilities: JsonObject = field(default_factory=dict[str, Json])
    modern_capabilities: JsonObject = field(default_factory=dict[str, Json])

    def envelope(self) -> JsonObject:
        """Return the `_meta` members that every modern request carries."""
        return {
            VERSION_KEY: MODERN_VERSION,
            CLIENT_INFO_KEY: self.client_info,
            CAPABILITIES_KEY: self.modern_capabilities | self.capabilities,
        }

    def initialize_params(self, version: str = HANDSHAKE_VERSION) -> JsonObject:
        """Return the params of `initialize` in the legacy era."""
        return {
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": self.client_info,
        }


@asynccontextmanager
async def open_initialized(
    processes: Processes,
    name: str,
    resolved: ResolvedServer,
    hello: ClientIntroduction,
    *,
    mask: Mask = str,
    era: Era | None = None,
    connect_wait: float = CONNECT_WAIT,
) -> AsyncGenerator[tuple[StdioConnection, ServerIntroduction]]:
    """Start a server and initialize it. `era` is the remembered era, if any; using it verifies it."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(open_stdio(processes, name, resolved, mask))
        try:
            introduction = await probe(connection, hello, era=era, connect_wait=connect_wait)
        except ServerFailed as failure:
            if era is not None or failure.code != "server.ended":
                raise
            await stack.aclose()
            connection = await stack.enter_async_context(open_stdio(processes, name, resolved, mask))
            introduction = await probe(connection, hello, era="legacy", connect_wait=connect_wait)
        yield connection, introduction


async def probe(
    connection: StdioConnection,
    hello: ClientIntroduction,
    *,
    era: Era | None = None,
    probe_wait: float = PROBE_WAIT,
    connect_wait: float = CONNECT_WAIT,
) -> ServerIntroduction:
    """Negotiate the era and initialize the connection in it.

    Raises `server.timeout`, `server.protocol`, or `ServerFailed` if the server exits.
    """
    handshake = _Handshake(connection, hello)
    try:
        with anyio.fail_after(connect_wait):
            return await handshake.exchange(era, probe_wait)
    except TimeoutError:
        message = f'Server "{connection.name}" did not complete the handshake within {connect_wait:g} seconds.'
        raise Unavailable("server.timeout", message) from None
    finally:
        handshake.forget()


class _Handshake:
    """The two possible handshake requests to one server, and their replies."""

    def __init__(self, connection: StdioConnection, hello: ClientIntroduction) -> None:
        self._connection = connection
        self._hello = hello
        self._asked: dict[_Reply, int] = {}
        self._refusal = "it answered neither `server/discover` nor `initialize`"

    async def exchange(self, era: Era | None, probe_wait: float) -> ServerIntroduction:
        open_replies: set[_Reply] = set()
        if era != "legacy":
            discover = await self._discover(probe_wait)
            if discover.done() and (introduction := self._read_reply(discover, parse_discover)):
                return introduction
            open_replies = set() if discover.done() else {discover}
        handshakes = {self._ask("initialize", self._hello.initialize_params())}
        open_replies |= handshakes
        while open_replies:
            done, open_replies = await asyncio.wait(open_replies, return_when=asyncio.FIRST_COMPLETED)
            for reply in done:
                introduction = self._read_reply(reply, parse_initialize if reply in handshakes else parse_discover)
                if introduction is not None:
                    if introduction.era == "legacy":
                        self._connection.notify("notifications/initialized")
                    return introduction
                version = version_named_by(_refusal_in(reply), LEGACY_VERSIONS)
                if reply in handshakes and len(handshakes) == 1 and version is not None:
                    again = self._ask("initialize", self._hello.initialize_params(version))
                    handshakes.add(again)
                    open_replies.add(again)
        message = f'Server "{self._connection.name}" supports no known version of MCP: {self._refusal}.'
        raise Unavailable("server.protocol", message)

    async def _discover(self, probe_wait: float) -> _Reply:
        """Send `server/discover`, twice if the rejection names our own version; return the last reply."""
        reply = await self._discover_once(probe_wait)
        named = version_named_by(_refusal_in(reply), {MODERN_VERSION})
        return reply if named is None else await self._discover_once(probe_wait)

    async def _discover_once(self, probe_wait: float) -> _Reply:
        reply = self._ask("server/discover", {META: self._hello.envelope()})
        await asyncio.wait({reply}, timeout=probe_wait)
        return reply

    def forget(self) -> None:
        """Drop pending requests without a cancellation, which the protocol forbids for these two."""
        for reply, request_id in self._asked.items():
            self._connection.abandon(request_id, reply, notifies=False)

    def _ask(self, method: str, params: JsonObject) -> _Reply:
        request_id = self._connection.new_id()
        reply = self._connection.send(request_id, method, params)
        self._asked[reply] = request_id
        return reply

    def _read_reply(
        self, reply: _Reply, read: Callable[[JsonObject], "ServerIntroduction | None"]
    ) -> ServerIntroduction | None:
        try:
            response = reply.result()
        except ProtocolError as error:
            self._refusal = f"it answered with error {error.code}, {error.message}"
            return None
        introduction = read(response)
        if introduction is None:
            self._refusal = f"it offers {response.get('protocolVersion') or response.get('supportedVersions')}"
        return introduction


def version_named_by(refusal: BaseException | None, known: Set[str]) -> str | None:
    """Return the newest `known` version that a rejected handshake lists as supported, or None."""
    if not isinstance(refusal, ProtocolError) or refusal.code not in (UNSUPPORTED_VERSION, INVALID_PARAMS):
        return None
    named: Json = refusal.data.get("supported") if is_object(refusal.data) else None
    versions = named if is_array(named) else ()
    return max((each for each in versions if isinstance(each, str) and each in known), default=None)


def _refusal_in(reply: _Reply) -> BaseException | None:
    return reply.exception() if reply.done() and not reply.cancelled() else None


def parse_discover(response: JsonObject) -> ServerIntroduction | None:
    """Parse a `server/discover` response. Returns None if it lists no known version."""
    versions: Json = response.get("supportedVersions")
    if not is_array(versions) or MODERN_VERSION not in versions:
        return None
    info: Json = _object(response.get(META)).get(SERVER_INFO_KEY)
    return _introduction("modern", MODERN_VERSION, info, response)


def parse_initialize(response: JsonObject) -> ServerIntroduction | None:
    """Parse an `initialize` response. Returns None if it chose an unknown version."""
    version: Json = response.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        return None
    return _introduction("legacy", version, response.get("serverInfo"), response)


def _introduction(era: Era, version: str, info: Json, response: JsonObject) -> ServerIntroduction:
    instructions: Json = response.get("instructions")
    text = instructions if isinstance(instructions, str) else None
    return ServerIntroduction(era, version, _object(response.get("capabilities")), _object(info), text, response)


def _object(value: Json) -> JsonObject:
    return value if is_object(value) else {}
