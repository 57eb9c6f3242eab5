"""Upstream servers on the web: Streamable HTTP in both eras, and the HTTP+SSE transport before it.

`client` and `connection` are an HTTP client that costs little, `requests` and `answers` one request and what it brings,
`talk`, `session`, `streamable` and `sse` the conversations, `greeting` finds out which of them a server speaks.

Above: the link of a server. Below: `web` and `dial` for where connections may lead, `oauth` for the sign-in. Nothing
here decides whether a server may be contacted, and nothing follows a redirect.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio

from toolcrib.connect.conversation import Conversation
from toolcrib.connect.greet import CONNECT_WAIT, Greeting, Hello
from toolcrib.connect.http.client import HttpClient, Patience
from toolcrib.connect.http.failures import HttpRefused
from toolcrib.connect.http.greeting import Address, FirstWords, WebTransport
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.urls import CheckedUrl
from toolcrib.connect.web import Web
from toolcrib.errors import Unavailable
from toolcrib.model.protocol import Era

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
    hello: Hello,
    era: Era | None = None,
    connect_wait: float = CONNECT_WAIT,
    idle_wait: float = IDLE_WAIT,
) -> AsyncGenerator[tuple[Conversation, Greeting]]:
    """A greeted server on the web, for the length of the block.

    `transport` is what its definition says; a server of type `http` that turns out to be an old one is talked to over
    SSE. `era` is what is remembered of it. `idle_wait` is how long an answer may be silent. Raises `server.timeout`,
    `server.unreachable`, `server.http_status` (as `HttpRefused`), `server.protocol`, `oauth.required` or
    `oauth.failed`, `address.refused`, and `server.invalid` for headers that cannot be sent.
    """
    patience = Patience(connect=min(connect_wait, CONNECT_WAIT), silence=idle_wait)
    async with HttpClient(web, url, local_allowed=local_allowed, patience=patience) as client:
        first_words = FirstWords(Address(name, client, url, headers, bearer), hello)
        try:
            with anyio.fail_after(connect_wait):
                conversation, greeting = await first_words.exchange(transport, era)
        except TimeoutError:
            message = f'Server "{name}" did not answer the greeting within {connect_wait:g} seconds.'
            raise Unavailable("server.timeout", message) from None
        try:
            yield conversation, greeting
        finally:
            with anyio.CancelScope(shield=True):
                await conversation.close()
