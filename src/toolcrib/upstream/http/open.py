"""Opens connections to HTTP servers: Streamable HTTP in both eras, and the older HTTP+SSE transport.

`client` and `http_connection` are the HTTP client, `requests` and `responses` handle one request, and `web_connection`,
`session`, `streamable` and `sse` implement the transports. `handshake` selects one of them.

Must never decide whether a server may be contacted, and must never follow a redirect.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio

from toolcrib.base.network.urls import CheckedUrl
from toolcrib.base.network.web import Web
from toolcrib.model.errors import Unavailable
from toolcrib.model.protocol import Era
from toolcrib.upstream.connection import Connection
from toolcrib.upstream.handshake import CONNECT_WAIT, ClientIntroduction, ServerIntroduction
from toolcrib.upstream.http.client import HttpClient, HttpTimeouts
from toolcrib.upstream.http.failures import HttpRefused
from toolcrib.upstream.http.handshake import Address, HttpHandshake, WebTransport
from toolcrib.upstream.oauth.token_refresh import Bearer

IDLE_WAIT = 300.0

__all__ = ["IDLE_WAIT", "HttpRefused", "WebTransport", "open_web_server"]


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
    patience = HttpTimeouts(connect=min(connect_wait, CONNECT_WAIT), silence=idle_wait)
    async with HttpClient(web, url, local_allowed=local_allowed, patience=patience) as client:
        first_words = HttpHandshake(Address(name, client, url, headers, bearer), hello)
        try:
            with anyio.fail_after(connect_wait):
                conversation, greeting = await first_words.exchange(transport, era)
        except TimeoutError:
            message = f'Server "{name}" did not complete the handshake within {connect_wait:g} seconds.'
            raise Unavailable("server.timeout", message) from None
        try:
            yield conversation, greeting
        finally:
            with anyio.CancelScope(shield=True):
                await conversation.close()
