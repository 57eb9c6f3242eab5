"""Streamable HTTP in both eras: each message a POST, answered with JSON or with a stream of events.

Modern: every request stands for itself, so there is nothing to lose but the request under way, and closing its
connection cancels it. Legacy: a session, which the server may forget; a standing stream for what it says by itself; and
streams that break are taken up again where the server numbers its events.

Above: `greeting`. Below: `talk`, `session`. It must never repeat a call of a tool that may have reached the server.
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

from toolcrib.connect import wire
from toolcrib.connect.greet import Greeting, Hello
from toolcrib.connect.http.answers import Call, Refused, StreamEnded
from toolcrib.connect.http.client import Unreachable
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.http.failures import error_in, failure
from toolcrib.connect.http.requests import header_lines
from toolcrib.connect.http.session import SessionConversation
from toolcrib.connect.http.talk import MAY_REPEAT, WebConversation
from toolcrib.connect.process import ServerFailed
from toolcrib.connect.wire import RequestId
from toolcrib.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.protocol import MODERN_VERSION, NAMED_BY, encode_header

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""How long a server may take to hear that its session is over."""

_MODERN = f"mcp-protocol-version: {MODERN_VERSION}\r\n".encode()
_SESSION = re.compile(r"[\x21-\x7e]{1,1024}")
_SHORTEST_PAUSE = 0.5
_USUAL_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_RESUMED_IN_VAIN = 5
_PASSING = frozenset({401, 403, 408, 425, 429})


@lru_cache(maxsize=128)
def _modern_lines(method: str) -> bytes:
    return b"%bmcp-method: %b\r\n" % (_MODERN, encode_header(method).encode())


class ModernConversation(WebConversation):
    """The era without sessions."""

    async def _converse(
        self, call: Call, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = _modern_lines(method)
        named: Json = params.get(NAMED_BY[method]) if method in NAMED_BY else None
        if isinstance(named, str):
            lines = b"%bmcp-name: %b\r\n" % (lines, encode_header(named).encode())
        if headers:
            lines += header_lines(headers)
        assert call.id is not None
        body = wire.request(call.id, method, params)
        return await self._requests.post(call, lines, body, may_repeat=method in MAY_REPEAT)

    def _abandoned(self, request_id: RequestId, method: str) -> None:
        """Closing the connection told the server."""

    def _respond(self, message: bytes) -> None:
        """This era has no messages without a reply: they are dropped."""


class LegacyConversation(SessionConversation):
    """The era of sessions."""

    _session: str | None = None

    async def initialize(self, hello: Hello) -> Greeting | None:
        """Shake hands, then listen to what the server says by itself."""
        greeting = await super().initialize(hello)
        if greeting is not None:
            self._start(self._listen())
        return greeting

    async def close(self) -> None:
        """End the session, and tell the server so if that does not take long."""
        is_over = self._failure is not None
        await super().close()
        if self._session is None or is_over:
            return
        with anyio.move_on_after(CLOSE_SECONDS):
            try:
                await self._requests.delete(self._lines)
            except (Refused, Broken, Unreachable, ToolcribError):
                logger.debug("Server %s did not hear that its session is over.", self.name)

    async def _converse(
        self, call: Call, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        lines = self._lines + header_lines(headers) if headers else self._lines
        assert call.id is not None
        body = wire.request(call.id, method, params)
        try:
            result = await self._requests.post(call, lines, body, may_repeat=method in MAY_REPEAT)
        except Refused as refused:
            if self._has_lost_session(refused):
                raise self._lost() from None
            raise
        except Broken:
            if not call.last_event_id:
                raise
            result = await self._resumed(call)
        if method == "initialize":
            self._session = _session_of(call)
        return result

    async def _resumed(self, call: Call) -> JsonObject:
        """Take up a broken stream after the last event that was heard, as long as that brings anything."""
        in_vain = 0
        while True:
            heard = call.last_event_id
            await asyncio.sleep(_pause(call.retry, in_vain))
            try:
                return await self._requests.stream(call, self._stream_lines(call))
            except Refused as refused:
                self._refusal(refused)
                raise Broken("server.ended", "broke off its answer and does not take it up again") from None
            except StreamEnded:
                in_vain = 0
            except (Broken, Unreachable):
                in_vain = 0 if call.last_event_id != heard else in_vain + 1
                if in_vain >= _RESUMED_IN_VAIN:
                    raise

    async def _listen(self) -> None:
        """Keep the standing stream open for as long as the session lives, if the server has one."""
        call = Call()
        in_vain = 0
        while self._failure is None:
            heard, since = call.last_event_id, time.monotonic()
            try:
                await self._requests.stream(call, self._stream_lines(call))
            except Refused as refused:
                self._refusal(refused)
                if refused.status < 500 and refused.status not in _PASSING:
                    return  # it has none
            except (Broken, Unreachable, ToolcribError):
                logger.debug("The standing stream of server %s broke.", self.name)
            # A stream that ends soon and without a word, again and again, is opened less and less often.
            has_stood = call.last_event_id != heard or time.monotonic() - since > _LONGEST_PAUSE
            in_vain = 0 if has_stood else in_vain + 1
            await asyncio.sleep(_pause(call.retry, in_vain))

    def _stream_lines(self, call: Call) -> bytes:
        if not call.last_event_id:
            return self._lines
        return self._lines + header_lines({"last-event-id": call.last_event_id})

    def _common_headers(self, version: str) -> dict[str, str]:
        headers = super()._common_headers(version)
        return headers if self._session is None else {**headers, "mcp-session-id": self._session}

    def _refusal(self, refused: Refused) -> None:
        if self._has_lost_session(refused):
            self._lost()

    def _has_lost_session(self, refused: Refused) -> bool:
        if self._session is None or refused.status not in (400, 404):
            return False
        if refused.status == 404:
            return True
        # Many servers say it so, with an error that has no code of its own.
        said = error_in(refused)
        return said is not None and "session" in str(said["message"]).lower()

    def _lost(self) -> ServerFailed:
        """The session is gone. The request that found out was not carried out; nobody knows that of the others."""
        why = failure(self.name, "server.session_lost", "does not know our session any more")
        self._end(why, lambda: failure(self.name, "server.ended", "lost our session while it was working"))
        return self._again(why)


def _session_of(call: Call) -> str | None:
    session = call.head.get(b"mcp-session-id") if call.head is not None else None
    if session is not None and not _SESSION.fullmatch(session):
        raise Broken("server.reply_invalid", "gave a session id that cannot be used")
    return session


def _pause(retry: int | None, in_vain: int) -> float:
    """Seconds before a stream is opened again: what the server asked for, in bounds, and longer after failures."""
    wished = _USUAL_PAUSE if retry is None else retry / 1000
    longer = max(wished, _SHORTEST_PAUSE) * 2 ** min(in_vain, 10)
    return min(longer, _LONGEST_PAUSE) * random.uniform(0.8, 1.0)  # so that many do not come at once
