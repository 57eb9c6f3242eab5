"""Opens connections to HTTP servers: the handshake negotiates era and transport, and exchanges capabilities.

`client` and `http_connection` are the HTTP client, `requests` and `responses` handle one request, and `web_connection`,
`session`, `streamable` and `sse` implement the transports: Streamable HTTP in both eras, and the older HTTP+SSE.

`server/discover` is sent first, and once more if the server rejects the version but names a known one. If the response
is no modern introduction, `initialize` follows. A server that rejects that by HTTP status is tried as one of the first
specification, where a GET opens a stream. The remembered era shortens this and is verified by using it.

Must never mistake a server that requires a sign-in, or is unreachable, for one of another era, nor contact a server
again before its `Retry-After` has passed. Must never decide whether a server may be contacted, or follow a redirect.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

import anyio

from toolcrib.base.network.urls import CheckedUrl
from toolcrib.base.network.web import Web
from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import META, MODERN_VERSION, Era
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.connection import Connection
from toolcrib.upstream.handshake import (
    CONNECT_WAIT,
    PROBE_WAIT,
    ClientIntroduction,
    ServerIntroduction,
    parse_discover,
    version_named_by,
)
from toolcrib.upstream.http.client import HttpClient, HttpTimeouts
from toolcrib.upstream.http.refused import HttpRefused
from toolcrib.upstream.http.session import SessionConnection
from toolcrib.upstream.http.sse import SseConnection
from toolcrib.upstream.http.streamable import LegacyHttpConnection, ModernHttpConnection
from toolcrib.upstream.http.web_connection import WebConnection
from toolcrib.upstream.oauth.token_refresh import Bearer

WebTransport = Literal["http", "sse"]
Initialized = tuple[WebConnection, ServerIntroduction]

IDLE_WAIT: Final = 300.0
_SAYS_NOTHING_OF_ERAS: Final = frozenset({"server.unreachable", "server.stuck", "server.timeout"})


@asynccontextmanager
async def open_web_server(
    web: Web,
    name: str,
    url: CheckedUrl,
    *,
    transport: WebTransport,
    headers: Mapping[str, str],
    bearer: Bearer | None,
    local_allowed: bool,
    hello: ClientIntroduction,
    era: Era | None = None,
    connect_wait: float = CONNECT_WAIT,
    idle_wait: float = IDLE_WAIT,
) -> AsyncGenerator[tuple[Connection, ServerIntroduction]]:
    """Open an initialized connection to an HTTP server for the block.

    `transport` is the definition's; a server of type `http` that only supports the older transport is used over SSE.
    `era` is the remembered era. `idle_wait` limits the silence within a response. Raises `server.timeout`,
    `server.unreachable`, `server.http_status` (as `HttpRefused`), `server.protocol`, `oauth.required`, `oauth.failed`,
    `address.refused`, and `server.invalid` for invalid headers.
    """
    timeouts = HttpTimeouts(connect=min(connect_wait, CONNECT_WAIT), silence=idle_wait)
    async with HttpClient(web, url, local_allowed=local_allowed, timeouts=timeouts) as client:
        handshake = HttpHandshake(Address(name, client, url, headers, bearer), hello)
        try:
            with anyio.fail_after(connect_wait):
                connection, introduction = await handshake.exchange(transport, era)
        except TimeoutError:
            message = f'Server "{name}" did not complete the handshake within {connect_wait:g} seconds.'
            raise Unavailable("server.timeout", message) from None
        try:
            yield connection, introduction
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an HTTP server, and the client for it."""

    name: str
    client: HttpClient
    url: CheckedUrl
    headers: Mapping[str, str]
    bearer: Bearer | None


class HttpHandshake:
    """The handshake variants for one server, and why earlier ones failed."""

    def __init__(self, address: Address, hello: ClientIntroduction) -> None:
        self._address = address
        self._hello = hello
        self._refusal: ServerFailed | ProtocolError | str = "it did not answer in time"

    async def exchange(self, transport: WebTransport, era: Era | None) -> Initialized:
        """Initialize the server in the first way it supports. Raises if there is none."""
        if transport == "sse":
            initialized = await self._over_stream()
        elif era == "legacy":
            initialized = await self._legacy() or await self._modern() or await self._over_stream_if_refused()
        else:
            initialized = await self._modern() or await self._legacy() or await self._over_stream_if_refused()
        if initialized is None:
            raise self._failure()
        return initialized

    async def _modern(self) -> Initialized | None:
        at = self._address
        connection = ModernHttpConnection(at.name, "modern", at.client, at.url, at.headers, at.bearer)
        earlier = self._refusal
        with anyio.move_on_after(PROBE_WAIT):
            try:
                response = await self._discover(connection)
            except (ServerFailed, ProtocolError) as refusal:
                self._note(refusal)
                if isinstance(earlier, HttpRefused):
                    self._refusal = earlier  # a rejection of `initialize` is more informative
                return None
            introduction = parse_discover(response)
            if introduction is not None:
                return connection, introduction
            self._refusal = f"it offers {response.get('supportedVersions')}"
        return None

    async def _discover(self, connection: ModernHttpConnection) -> JsonObject:
        """Send `server/discover`, once more if the rejection names our own version as supported."""
        params: JsonObject = {META: self._hello.envelope()}
        try:
            return await connection.call("server/discover", params)
        except ProtocolError as refusal:
            if version_named_by(refusal, {MODERN_VERSION}) is None:
                raise
        return await connection.call("server/discover", params)

    async def _legacy(self) -> Initialized | None:
        at = self._address
        return await self._initialize(LegacyHttpConnection(at.name, at.client, at.url, at.headers, at.bearer))

    async def _over_stream(self) -> Initialized | None:
        at = self._address
        return await self._initialize(SseConnection(at.name, at.client, at.url, at.headers, at.bearer))

    async def _over_stream_if_refused(self) -> Initialized | None:
        refusal = self._refusal
        if not isinstance(refusal, HttpRefused) or not 400 <= refusal.http_status < 500:
            return None
        with anyio.move_on_after(PROBE_WAIT):
            initialized = await self._over_stream()
            if initialized is not None:
                return initialized
        self._refusal = refusal
        return None

    async def _initialize(self, connection: SessionConnection) -> Initialized | None:
        introduction = None
        try:
            introduction = await connection.initialize(self._hello)
            if introduction is not None:
                return connection, introduction
            self._refusal = "it requires an unknown version of the protocol"
        except (ServerFailed, ProtocolError) as refusal:
            self._note(refusal)
        finally:
            if introduction is None:
                with anyio.CancelScope(shield=True):
                    await connection.close()
        return None

    def _note(self, refusal: ServerFailed | ProtocolError) -> None:
        if isinstance(refusal, ServerFailed) and refusal.code in _SAYS_NOTHING_OF_ERAS:
            raise refusal
        if isinstance(refusal, HttpRefused) and refusal.retry_after:
            raise refusal
        self._refusal = refusal

    def _failure(self) -> ToolcribError:
        refusal = self._refusal
        if isinstance(refusal, ServerFailed):
            return refusal
        if isinstance(refusal, ProtocolError):
            refusal = f"it answered with error {refusal.code}, {refusal.message}"
        message = f'Server "{self._address.name}" supports no known version of MCP: {refusal}.'
        return Unavailable("server.protocol", message, "Check that the URL belongs to an MCP server.")
