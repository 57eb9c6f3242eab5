"""Streamable HTTP in both eras: each message is a POST, answered with JSON or an event stream.

Modern: requests are independent, and closing the connection of a request cancels it. Legacy: there is a session, which
the server may lose, and a event stream for the server's own messages; broken streams are resumed if the server
numbers its events.

Must never repeat a tool call that may have reached the server.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import anyio

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model import jsonrpc
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import MODERN_VERSION, NAMED_BY, encode_header
from toolcrib.upstream.handshake import ClientIntroduction, ServerIntroduction
from toolcrib.upstream.http.client import Unreachable
from toolcrib.upstream.http.failures import error_in, failure, retry_after
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.requests import header_lines
from toolcrib.upstream.http.responses import HttpCall, RequestRefused, StreamEnded
from toolcrib.upstream.http.session import SessionConnection
from toolcrib.upstream.http.web_connection import MAY_REPEAT, WebConnection
from toolcrib.upstream.retries import LONGEST_DELAY

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""Seconds a server may take to accept the end of its session."""

_MODERN = f"mcp-protocol-version: {MODERN_VERSION}\r\n".encode()
_SESSION = re.compile(r"[\x21-\x7e]{1,1024}")
_SHORTEST_PAUSE = 0.5
_USUAL_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_FAILED_RESUMES = 5
_PASSING = frozenset({401, 403, 408, 425, 429})


@lru_cache(maxsize=128)
def _modern_lines(method: str) -> bytes:
    return b"%bmcp-method: %b\r\n" % (_MODERN, encode_header(method).encode())


class ModernHttpConnection(WebConnection):
    """A connection of the modern era, which has no sessions."""

    async def _send_request(
        self, call: HttpCall, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = _modern_lines(method)
        named: Json = params.get(NAMED_BY[method]) if method in NAMED_BY else None
        if isinstance(named, str):
            lines = b"%bmcp-name: %b\r\n" % (lines, encode_header(named).encode())
        if headers:
            lines += header_lines(headers)
        assert call.id is not None
        body = jsonrpc.request(call.id, method, params)
        return await self._requests.post(call, lines, body, may_repeat=method in MAY_REPEAT)

    def _cancel_request(self, request_id: RequestId, method: str) -> None:
        """Do nothing: closing the connection cancelled the request."""

    def _respond(self, message: bytes) -> None:
        """Drop the message: this era has no messages without a reply."""


class LegacyHttpConnection(SessionConnection):
    """A connection of the legacy era, with a session."""

    _session: str | None = None

    async def initialize(self, hello: ClientIntroduction) -> ServerIntroduction | None:
        """Initialize, then open the event stream."""
        introduction = await super().initialize(hello)
        if introduction is not None:
            self._start(self._listen())
        return introduction

    async def close(self) -> None:
        """End the session, and notify the server if that does not take long."""
        is_over = self._failure is not None
        await super().close()
        if self._session is None or is_over:
            return
        with anyio.move_on_after(CLOSE_SECONDS):
            try:
                await self._requests.delete(self._lines)
            except (RequestRefused, Broken, Unreachable, ToolcribError):
                logger.debug("Server %s did not confirm the end of its session.", self.name)

    async def _send_request(
        self, call: HttpCall, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = self._lines + header_lines(headers) if headers else self._lines
        assert call.id is not None
        body = jsonrpc.request(call.id, method, params)
        try:
            result = await self._requests.post(call, lines, body, may_repeat=method in MAY_REPEAT)
        except RequestRefused as refused:
            if self._has_lost_session(refused):
                raise self._lose_session() from None
            raise
        except Broken:
            if not call.last_event_id:
                raise
            result = await self._resume(call)
        if method == "initialize":
            self._session = _session_of(call)
        return result

    async def _resume(self, call: HttpCall) -> JsonObject:
        """Resume a broken stream after the last received event, until several attempts in a row bring nothing."""
        failures = 0
        while True:
            last_event_id = call.last_event_id
            await asyncio.sleep(pause_before_retry(call.retry, failures))
            try:
                return await self._requests.stream(call, self._stream_lines(call))
            except RequestRefused as refused:
                self._check_refusal(refused)
                raise Broken("server.ended", "broke off its response and did not resume it") from None
            except StreamEnded:
                failures = 0
            except (Broken, Unreachable):
                failures = 0 if call.last_event_id != last_event_id else failures + 1
                if failures >= _FAILED_RESUMES:
                    raise

    async def _listen(self) -> None:
        """Keep the event stream open while the session lives, if the server supports it."""
        call = HttpCall()
        failures = 0
        while self._failure is None:
            last_event_id, since = call.last_event_id, time.monotonic()
            retry_delay = 0.0
            try:
                await self._requests.stream(call, self._stream_lines(call))
            except RequestRefused as refused:
                self._check_refusal(refused)
                if refused.status < 500 and refused.status not in _PASSING:
                    return  # the server does not support it
                retry_delay = retry_after(refused) or 0.0
            except (Broken, Unreachable, ToolcribError):
                logger.debug("The event stream of server %s broke.", self.name)
            # Back off if the stream keeps ending soon without an event.
            was_useful = call.last_event_id != last_event_id or time.monotonic() - since > _LONGEST_PAUSE
            failures = 0 if was_useful else failures + 1
            await asyncio.sleep(max(retry_delay, pause_before_retry(call.retry, failures)))

    def _stream_lines(self, call: HttpCall) -> bytes:
        if not call.last_event_id:
            return self._lines
        return self._lines + header_lines({"last-event-id": call.last_event_id})

    def _common_headers(self, version: str) -> dict[str, str]:
        headers = super()._common_headers(version)
        return headers if self._session is None else {**headers, "mcp-session-id": self._session}

    def _check_refusal(self, refused: RequestRefused) -> None:
        if self._has_lost_session(refused):
            self._lose_session()

    def _has_lost_session(self, refused: RequestRefused) -> bool:
        if self._session is None or refused.status not in (400, 404):
            return False
        if refused.status == 404:
            return True
        # Many servers report it like this, with an error that has no code of its own.
        error = error_in(refused)
        return error is not None and "session" in str(error["message"]).lower()

    def _lose_session(self) -> ServerFailed:
        """End the connection after its session was lost, and return the failure for the current request.

        The server did not act on that request. For other pending requests this is unknown.
        """
        why = failure(self.name, "server.session_lost", "no longer knows the session")
        self._end(why, lambda: failure(self.name, "server.ended", "lost the session during the call"))
        return why.copy()


def _session_of(call: HttpCall) -> str | None:
    session = call.head.get(b"mcp-session-id") if call.head is not None else None
    if session is not None and not _SESSION.fullmatch(session):
        raise Broken("server.reply_invalid", "sent an invalid session id")
    return session


def pause_before_retry(asked: int | None, failures: int) -> float:
    """Return the seconds before a stream is reopened.

    At least the milliseconds the server `asked` for, up to `LONGEST_DELAY`. Grows after failures, with jitter so that
    many clients do not return at once.
    """
    requested = _USUAL_PAUSE if asked is None else min(asked / 1000, LONGEST_DELAY)
    grown = min(max(requested, _SHORTEST_PAUSE) * 2 ** min(failures, 10), _LONGEST_PAUSE)
    return max(requested, grown) * random.uniform(1.0, 1.25)
