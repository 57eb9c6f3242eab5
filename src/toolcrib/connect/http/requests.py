"""Requests to one address of a server: the headers that all of them carry, the sign-in, and what may be repeated.

A request is repeated in two cases only: after a refusal, once, with another token; and, if it may run twice, once on a
new connection when a kept one turned out to be closed before anything came back.

Above: the conversations. Below: `client`, `answers`, `oauth`. It must never send a header with a character that would
end it, nor show a token to another origin than the sign-in's own.
"""

import re
from collections.abc import Mapping
from typing import Final

from toolcrib.connect.http.answers import Answer, Call, Deliver, Refused
from toolcrib.connect.http.client import HttpClient
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.urls import CheckedUrl
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ProtocolError
from toolcrib.version import __version__

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS: Final = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "expect", "keep-alive"),
        *("accept", "accept-encoding", "content-type", "last-event-id", "authorization"),
        *("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"),
    }
)
"""Headers that the transport sets itself; what a definition says of them does not count."""

_JSON = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
_EVENTS = b"accept: text/event-stream\r\n"


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as they are sent. Raises `server.invalid` for what cannot be one."""
    lines: list[bytes] = []
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            message = f"The header {ascii(name)[1:61]} has characters that a header cannot carry."
            raise InvalidRequest("server.invalid", message)
        lines.append(f"{name.lower()}: {value.strip()}\r\n".encode("latin-1"))
    return b"".join(lines)


class Requests:
    """Sends requests to one address. `deliver` takes the messages of their answers."""

    def __init__(
        self,
        client: HttpClient,
        deliver: Deliver,
        url: CheckedUrl,
        headers: Mapping[str, str],
        bearer: Bearer | None,
    ) -> None:
        self.url = url
        self.bearer = bearer if bearer is not None and bearer.origin == url.origin else None
        self._client = client
        self._deliver = deliver
        self._headers = headers
        self._origin = url.origin
        self._shown: tuple[str | None, bytes] = (None, b"")
        given = {name.lower(): value for name, value in headers.items()}
        self._own_authorization = header_lines(
            {name: value for name, value in given.items() if name == "authorization"}
        )
        common = {
            "host": url.origin.partition("://")[2],
            "user-agent": f"toolcrib/{__version__}",
            "accept-encoding": "identity",
            **{name: value for name, value in given.items() if name not in _OURS},
        }
        path = url.text.removeprefix(url.origin) or "/"
        rest = f" {path} HTTP/1.1\r\n".encode("ascii") + header_lines(common)
        self._post = b"POST" + rest + _JSON
        self._get = b"GET" + rest + _EVENTS
        self._delete = b"DELETE" + rest

    def at(self, url: CheckedUrl) -> "Requests":
        """The same for another address of the same origin."""
        assert url.origin == self._origin
        return Requests(self._client, self._deliver, url, self._headers, self.bearer)

    async def post(self, call: Call, headers: bytes, body: bytes, *, may_repeat: bool) -> JsonObject:
        """Post a message and wait for the result of the call.

        Raises `ProtocolError`, `Refused`, `Broken`, `Unreachable`, or `address.refused`.
        """
        rest = b"%bcontent-length: %d\r\n\r\n%b" % (headers, len(body), body)
        if self.bearer is None:
            return await self._attempt(call, self._post + self._own_authorization + rest, may_repeat, False)
        return await self._signed(self.bearer, call, self._post, rest, may_repeat, False)

    async def stream(self, call: Call, headers: bytes) -> JsonObject:
        """Open a stream of events and wait for the result of the call, or for the end of the stream if it has none."""
        rest = headers + b"\r\n"
        if self.bearer is None:
            return await self._attempt(call, self._get + self._own_authorization + rest, True, True)
        return await self._signed(self.bearer, call, self._get, rest, True, True)

    async def delete(self, headers: bytes) -> None:
        """Tell the server that it is over."""
        rest = headers + b"\r\n"
        if self.bearer is None:
            await self._attempt(Call(), self._delete + self._own_authorization + rest, True, False)
        else:
            await self._signed(self.bearer, Call(), self._delete, rest, True, False)

    async def _signed(
        self, bearer: Bearer, call: Call, start: bytes, rest: bytes, may_repeat: bool, wants_stream: bool
    ) -> JsonObject:
        """An attempt with the token; after a refusal one more, if there is another token."""
        token = await bearer.token()
        tried: set[int] = set()
        while True:
            try:
                result = await self._attempt(call, start + self._authorization(token) + rest, may_repeat, wants_stream)
            except ProtocolError:
                bearer.note(200, token)
                raise
            except Refused as refused:
                if refused.status not in (401, 403) or refused.status in tried:
                    bearer.note(refused.status, token)
                    raise
                tried.add(refused.status)
                another = await bearer.refused(refused.status, refused.head.all(b"www-authenticate"), token)
                if another is None:
                    raise
                token = another
            else:
                bearer.note(200, token)
                return result

    async def _attempt(self, call: Call, payload: bytes, may_repeat: bool, wants_stream: bool) -> JsonObject:
        on_new = False
        while True:
            if call.reply.done():
                call.renew()
            answer = Answer(self._deliver, call, wants_stream=wants_stream)
            connection = await self._client.send(payload, answer, may_repeat=may_repeat, on_new=on_new)
            try:
                return await call.wait()
            except Broken as broken:
                if on_new or not (may_repeat and broken.is_untouched and connection.uses > 1):
                    raise
                on_new = True
            finally:
                if not call.reply.done() or call.reply.cancelled():
                    connection.close()  # whoever waited has left

    def _authorization(self, token: str | None) -> bytes:
        if token is None:
            return self._own_authorization
        if self._shown[0] != token:
            self._shown = (token, header_lines({"authorization": f"Bearer {token}"}))
        return self._shown[1]
