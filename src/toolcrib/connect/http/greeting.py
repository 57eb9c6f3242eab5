"""The first words with a server on the web: which era and which transport it speaks, what it can, who it is.

`server/discover` is asked first. Whatever a server says to that which is no greeting of the modern era leads to
`initialize`; a server that refuses that by its status is tried as one of the first specification, where a stream is
opened with GET. What is remembered of a server shortens the way and is checked by using it.

Above: `open_web_server`. Below: the conversations. It must never take a server that wants a sign-in, or cannot be
reached, for one of another era.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import anyio

from toolcrib.connect.greet import PROBE_WAIT, Greeting, Hello, modern_greeting
from toolcrib.connect.http.client import HttpClient
from toolcrib.connect.http.failures import HttpRefused
from toolcrib.connect.http.session import SessionConversation
from toolcrib.connect.http.sse import SseConversation
from toolcrib.connect.http.streamable import LegacyConversation, ModernConversation
from toolcrib.connect.http.talk import WebConversation
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.process import ServerFailed
from toolcrib.connect.urls import CheckedUrl
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.protocol import META, Era
from toolcrib.model.sources import ProtocolError

WebTransport = Literal["http", "sse"]
Greeted = tuple[WebConversation, Greeting]

_SAYS_NOTHING_OF_ERAS: Final = frozenset({"server.unreachable", "server.stuck", "server.timeout"})


@dataclass(frozen=True, slots=True)
class Address:
    """A server on the web, and the connections to it."""

    name: str
    client: HttpClient
    url: CheckedUrl
    headers: Mapping[str, str]
    bearer: Bearer | None


class FirstWords:
    """The ways to greet one server, and what came of those that led nowhere."""

    def __init__(self, address: Address, hello: Hello) -> None:
        self._address = address
        self._hello = hello
        self._refusal: ServerFailed | ProtocolError | str = "it did not answer in time"

    async def exchange(self, transport: WebTransport, era: Era | None) -> Greeted:
        """Greet the server in the first way it understands. Raises what keeps it from being used."""
        if transport == "sse":
            greeted = await self._over_stream()
        elif era == "legacy":
            greeted = await self._legacy() or await self._modern() or await self._over_stream_if_refused()
        else:
            greeted = await self._modern() or await self._legacy() or await self._over_stream_if_refused()
        if greeted is None:
            raise self._failure()
        return greeted

    async def _modern(self) -> Greeted | None:
        at = self._address
        conversation = ModernConversation(at.name, "modern", at.client, at.url, at.headers, at.bearer)
        earlier = self._refusal
        with anyio.move_on_after(PROBE_WAIT):
            try:
                said = await conversation.call("server/discover", {META: self._hello.envelope()})
            except (ServerFailed, ProtocolError) as refusal:
                self._note(refusal)
                if isinstance(earlier, HttpRefused):
                    self._refusal = earlier  # of a server that refuses both, what it says to `initialize` tells more
                return None
            greeting = modern_greeting(said)
            if greeting is not None:
                return conversation, greeting
            self._refusal = f"it offers {said.get('supportedVersions')}"
        return None

    async def _legacy(self) -> Greeted | None:
        at = self._address
        return await self._shaken(LegacyConversation(at.name, at.client, at.url, at.headers, at.bearer))

    async def _over_stream(self) -> Greeted | None:
        at = self._address
        return await self._shaken(SseConversation(at.name, at.client, at.url, at.headers, at.bearer))

    async def _over_stream_if_refused(self) -> Greeted | None:
        refusal = self._refusal
        if not isinstance(refusal, HttpRefused) or not 400 <= refusal.http_status < 500:
            return None
        with anyio.move_on_after(PROBE_WAIT):
            greeted = await self._over_stream()
            if greeted is not None:
                return greeted
        self._refusal = refusal
        return None

    async def _shaken(self, conversation: SessionConversation) -> Greeted | None:
        greeting = None
        try:
            greeting = await conversation.initialize(self._hello)
            if greeting is not None:
                return conversation, greeting
            self._refusal = "it wants a version of the protocol that is not known here"
        except (ServerFailed, ProtocolError) as refusal:
            self._note(refusal)
        finally:
            if greeting is None:
                with anyio.CancelScope(shield=True):
                    await conversation.close()
        return None

    def _note(self, refusal: ServerFailed | ProtocolError) -> None:
        if isinstance(refusal, ServerFailed) and refusal.code in _SAYS_NOTHING_OF_ERAS:
            raise refusal
        self._refusal = refusal

    def _failure(self) -> ToolcribError:
        refusal = self._refusal
        if isinstance(refusal, ServerFailed):
            return refusal
        if isinstance(refusal, ProtocolError):
            refusal = f"it answered with error {refusal.code}, {refusal.message}"
        message = f'Server "{self._address.name}" does not speak a known version of MCP: {refusal}.'
        return Unavailable("server.protocol", message, "Check that the address is that of an MCP server.")
