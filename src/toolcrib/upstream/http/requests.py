"""Requests to one URL of a server: common headers, authorization and retries.

A request is retried in two cases only: once with another token after a rejection; and, if it is repeatable, once on a
new connection when an idle one was closed before any response.

Must never send a header that contains a line break, nor send a token to another origin than its own.
"""

import re
from collections.abc import Mapping
from typing import Final

from toolcrib.base.masking.words import is_secret_name
from toolcrib.base.network.urls import CheckedUrl
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ProtocolError
from toolcrib.model.version import __version__
from toolcrib.upstream.http.client import HttpClient
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.responses import Deliver, HttpCall, HttpResponse, RequestRefused
from toolcrib.upstream.oauth.token_refresh import Bearer

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS: Final = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "expect", "keep-alive"),
        *("accept", "accept-encoding", "content-type", "last-event-id", "authorization"),
        *("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"),
    }
)
"""Headers set by the transport. A definition cannot override them."""

_JSON = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
_EVENTS = b"accept: text/event-stream\r\n"


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Serialize headers. Raises `server.invalid` for invalid ones."""
    lines: list[bytes] = []
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            message = f"The header {ascii(name)[1:61]} contains characters that a header must not have."
            raise InvalidRequest("server.invalid", message)
        lines.append(f"{name.lower()}: {value.strip()}\r\n".encode("latin-1"))
    return b"".join(lines)


class Requests:
    """Sends requests to one URL. `deliver` receives the messages in their responses."""

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
        self._has_key = any(is_secret_name(name) for name in given)
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

    @property
    def has_token(self) -> bool:
        """Whether the definition itself provides the credentials."""
        return bool(self._own_authorization) or self._has_key

    def at(self, url: CheckedUrl) -> "Requests":
        """Return a copy for another URL of the same origin."""
        assert url.origin == self._origin
        return Requests(self._client, self._deliver, url, self._headers, self.bearer)

    async def post(self, call: HttpCall, headers: bytes, body: bytes, *, may_repeat: bool) -> JsonObject:
        """Post a message and return the result of the call.

        Raises `ProtocolError`, `RequestRefused`, `Broken`, `Unreachable` or `address.refused`.
        """
        rest = b"%bcontent-length: %d\r\n\r\n%b" % (headers, len(body), body)
        if self.bearer is None:
            return await self._send(call, self._post + self._own_authorization + rest, may_repeat, False)
        return await self._send_signed(self.bearer, call, self._post, rest, may_repeat, False)

    async def stream(self, call: HttpCall, headers: bytes) -> JsonObject:
        """Open an event stream and return the result of the call, or wait for its end if the call has no result."""
        rest = headers + b"\r\n"
        if self.bearer is None:
            return await self._send(call, self._get + self._own_authorization + rest, True, True)
        return await self._send_signed(self.bearer, call, self._get, rest, True, True)

    async def delete(self, headers: bytes) -> None:
        """End the session at the server."""
        rest = headers + b"\r\n"
        if self.bearer is None:
            await self._send(HttpCall(), self._delete + self._own_authorization + rest, True, False)
        else:
            await self._send_signed(self.bearer, HttpCall(), self._delete, rest, True, False)

    async def _send_signed(
        self, bearer: Bearer, call: HttpCall, start: bytes, rest: bytes, may_repeat: bool, wants_stream: bool
    ) -> JsonObject:
        """Send with the token. After a rejection, retry with another token if there is one."""
        token = await bearer.token()
        tried: set[int] = set()
        while True:
            try:
                result = await self._send(call, start + self._authorization(token) + rest, may_repeat, wants_stream)
            except ProtocolError:
                bearer.note(200, token)
                raise
            except RequestRefused as refused:
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

    async def _send(self, call: HttpCall, payload: bytes, may_repeat: bool, wants_stream: bool) -> JsonObject:
        on_new = False
        while True:
            if call.reply.done():
                call.renew()
            answer = HttpResponse(self._deliver, call, wants_stream=wants_stream)
            connection = await self._client.send(payload, answer, may_repeat=may_repeat, on_new=on_new)
            try:
                return await call.wait()
            except Broken as broken:
                if on_new or not (may_repeat and broken.is_untouched and connection.uses > 1):
                    raise
                on_new = True
            finally:
                if not call.reply.done() or call.reply.cancelled():
                    connection.close()  # the caller stopped waiting

    def _authorization(self, token: str | None) -> bytes:
        if token is None:
            return self._own_authorization
        if self._shown[0] != token:
            self._shown = (token, header_lines({"authorization": f"Bearer {token}"}))
        return self._shown[1]
