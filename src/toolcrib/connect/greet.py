"""The first words with a server: which era of the protocol it speaks, what it can, who it is.

`server/discover` is asked first. A server that answers it with anything but its versions, or not in time, is greeted
with `initialize`; a late answer to the first question still counts, because a server that was only slow to start (it
may be downloading itself) has chosen its era by the first request it read. A server that ends on the unknown question,
as some do, is started again and greeted in the old way at once.

Above: the link of a server. Below: `stdio`. It must never wait without bound, and never take the two answers together.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from toolcrib.config.resolve import Resolved
from toolcrib.connect.process import Processes, ServerFailed
from toolcrib.connect.stderr import Mask
from toolcrib.connect.stdio import StdioConnection, open_stdio
from toolcrib.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSION,
    LEGACY_VERSIONS,
    META,
    MODERN_VERSION,
    SERVER_INFO_KEY,
    VERSION_KEY,
    Era,
)
from toolcrib.model.sources import ProtocolError

PROBE_WAIT: Final = 5.0
CONNECT_WAIT: Final = 30.0

_Reply = asyncio.Future[JsonObject]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server said of itself. `said` is its whole answer."""

    era: Era
    version: str
    capabilities: JsonObject = field(repr=False)
    server_info: JsonObject
    instructions: str | None = field(repr=False)
    said: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hello:
    """Who we say we are, and what we say we can."""

    client_info: JsonObject
    capabilities: JsonObject = field(default_factory=dict[str, Json])

    def envelope(self) -> JsonObject:
        """The `_meta` members that every request of the modern era carries."""
        return {
            VERSION_KEY: MODERN_VERSION,
            CLIENT_INFO_KEY: self.client_info,
            CAPABILITIES_KEY: self.capabilities,
        }

    def introduction(self) -> JsonObject:
        """What `initialize` is called with in the legacy era."""
        return {
            "protocolVersion": HANDSHAKE_VERSION,
            "capabilities": self.capabilities,
            "clientInfo": self.client_info,
        }


@asynccontextmanager
async def open_greeted(
    processes: Processes,
    name: str,
    resolved: Resolved,
    hello: Hello,
    *,
    mask: Mask = str,
    era: Era | None = None,
    connect_wait: float = CONNECT_WAIT,
) -> AsyncGenerator[tuple[StdioConnection, Greeting]]:
    """Start a server and greet it. `era` is what is remembered of it, if anything; it is checked by using it."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(open_stdio(processes, name, resolved, mask))
        try:
            greeting = await probe(connection, hello, era=era, connect_wait=connect_wait)
        except ServerFailed as failure:
            if era is not None or failure.code != "server.ended":
                raise
            await stack.aclose()
            connection = await stack.enter_async_context(open_stdio(processes, name, resolved, mask))
            greeting = await probe(connection, hello, era="legacy", connect_wait=connect_wait)
        yield connection, greeting


async def probe(
    connection: StdioConnection,
    hello: Hello,
    *,
    era: Era | None = None,
    probe_wait: float = PROBE_WAIT,
    connect_wait: float = CONNECT_WAIT,
) -> Greeting:
    """Find out the era and open the conversation in it.

    Raises `server.timeout`, `server.protocol`, or `ServerFailed` if the server ends.
    """
    first_words = _FirstWords(connection, hello)
    try:
        with anyio.fail_after(connect_wait):
            return await first_words.exchange(era, probe_wait)
    except TimeoutError:
        message = f'Server "{connection.name}" did not answer the greeting within {connect_wait:g} seconds.'
        raise Unavailable("server.timeout", message) from None
    finally:
        first_words.forget()


class _FirstWords:
    """The two questions to one server, and what came of them."""

    def __init__(self, connection: StdioConnection, hello: Hello) -> None:
        self._connection = connection
        self._hello = hello
        self._asked: dict[_Reply, int] = {}
        self._refusal = "it answered neither `server/discover` nor `initialize`"

    async def exchange(self, era: Era | None, probe_wait: float) -> Greeting:
        open_replies: set[_Reply] = set()
        if era != "legacy":
            discover = self._ask("server/discover", {META: self._hello.envelope()})
            await asyncio.wait({discover}, timeout=probe_wait)
            if discover.done() and (greeting := self._heard(discover, modern_greeting)):
                return greeting
            open_replies = set() if discover.done() else {discover}
        initialize = self._ask("initialize", self._hello.introduction())
        open_replies.add(initialize)
        while open_replies:
            done, open_replies = await asyncio.wait(open_replies, return_when=asyncio.FIRST_COMPLETED)
            for reply in done:
                greeting = self._heard(reply, legacy_greeting if reply is initialize else modern_greeting)
                if greeting is not None:
                    if greeting.era == "legacy":
                        self._connection.notify("notifications/initialized")
                    return greeting
        message = f'Server "{self._connection.name}" does not speak a known version of MCP: {self._refusal}.'
        raise Unavailable("server.protocol", message)

    def forget(self) -> None:
        """Drop what is still unanswered, silently: the protocol forbids cancelling these two."""
        for reply, request_id in self._asked.items():
            self._connection.abandon(request_id, reply, tells=False)

    def _ask(self, method: str, params: JsonObject) -> _Reply:
        request_id = self._connection.new_id()
        reply = self._connection.send(request_id, method, params)
        self._asked[reply] = request_id
        return reply

    def _heard(self, reply: _Reply, read: Callable[[JsonObject], "Greeting | None"]) -> Greeting | None:
        try:
            said = reply.result()
        except ProtocolError as error:
            self._refusal = f"it answered with error {error.code}, {error.message}"
            return None
        greeting = read(said)
        if greeting is None:
            self._refusal = f"it offers {said.get('protocolVersion') or said.get('supportedVersions')}"
        return greeting


def modern_greeting(said: JsonObject) -> Greeting | None:
    """What an answer to `server/discover` says, if it offers a version that is known here."""
    versions: Json = said.get("supportedVersions")
    if not is_array(versions) or MODERN_VERSION not in versions:
        return None
    info: Json = _object(said.get(META)).get(SERVER_INFO_KEY)
    return _greeting("modern", MODERN_VERSION, info, said)


def legacy_greeting(said: JsonObject) -> Greeting | None:
    """What an answer to `initialize` says, if it chose a version that is known here."""
    version: Json = said.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        return None
    return _greeting("legacy", version, said.get("serverInfo"), said)


def _greeting(era: Era, version: str, info: Json, said: JsonObject) -> Greeting:
    instructions: Json = said.get("instructions")
    text = instructions if isinstance(instructions, str) else None
    return Greeting(era, version, _object(said.get("capabilities")), _object(info), text, said)


def _object(value: Json) -> JsonObject:
    return value if is_object(value) else {}
