"""Legacy HTTP connections: they begin with a handshake, and both sides send messages on their own.

Messages without a reply (notifications, answers to the server) are posted in order by a separate task.

Must never let a caller wait for the server to accept such a message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import anyio

from toolcrib.base.network.urls import CheckedUrl
from toolcrib.model import jsonrpc
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import LEGACY_VERSIONS
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.handshake import ClientIntroduction, ServerIntroduction, parse_initialize, version_named_by
from toolcrib.upstream.http.client import HttpClient, Unreachable
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.requests import header_lines
from toolcrib.upstream.http.responses import HttpCall, RequestRefused
from toolcrib.upstream.http.web_connection import WebConnection
from toolcrib.upstream.oauth.token_refresh import Bearer

logger = logging.getLogger(__name__)

POST_SECONDS: Final = 30.0
"""Seconds a server may take to accept a message."""

_WAITING_MESSAGES = 1_000


class SessionConnection(WebConnection):
    """A connection that `initialize` opens and `close` ends, together with its tasks."""

    def __init__(
        self, name: str, client: HttpClient, url: CheckedUrl, headers: Mapping[str, str], bearer: Bearer | None
    ) -> None:
        super().__init__(name, "legacy", client, url, headers, bearer)
        self._posts = self._requests
        self._lines = b""
        self._outgoing: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def initialize(self, hello: ClientIntroduction) -> ServerIntroduction | None:
        """Initialize the connection. Returns None if the server chose an unknown version. Raises like `call`."""
        introduction = parse_initialize(await self._send_initialize(hello))
        if introduction is None:
            return None
        self._lines = header_lines(self._common_headers(introduction.version))
        try:
            await self._post(jsonrpc.notification("notifications/initialized", None))
        except (RequestRefused, Broken, Unreachable) as error:
            raise self._error_for(error) from None
        self._start(self._send_all())
        return introduction

    async def _send_initialize(self, hello: ClientIntroduction) -> JsonObject:
        """Send `initialize`, and retry once with a version that the server names as supported."""
        try:
            return await self.call("initialize", hello.initialize_params())
        except ProtocolError as refusal:
            version = version_named_by(refusal, LEGACY_VERSIONS)
            if version is None:
                raise
        return await self.call("initialize", hello.initialize_params(version))

    async def close(self) -> None:
        """Close the connection and cancel its tasks."""
        await super().close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _common_headers(self, version: str) -> dict[str, str]:
        """Return the headers of every message after the handshake."""
        return {"mcp-protocol-version": version}

    def _refusal(self, refused: RequestRefused) -> None:
        """Handle the rejection of a message."""

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _cancel_request(self, request_id: RequestId, method: str) -> None:
        if method != "initialize":  # the protocol forbids cancelling it
            self.notify(
                "notifications/cancelled", {"requestId": request_id, "reason": "The caller cancelled the request."}
            )

    def _respond(self, message: bytes) -> None:
        if self._failure is None and len(self._outgoing) < _WAITING_MESSAGES:
            self._outgoing.append(message)
            self._wake.set()

    async def _post(self, message: bytes) -> None:
        await self._posts.post(HttpCall(), self._lines, message, may_repeat=True)

    async def _send_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                await self._send(self._outgoing.popleft())

    async def _send(self, message: bytes) -> None:
        try:
            with anyio.fail_after(POST_SECONDS):
                await self._post(message)
        except RequestRefused as refused:
            self._refusal(refused)
        except (Broken, Unreachable, ToolcribError, TimeoutError):
            logger.debug("Could not deliver a message to server %s.", self.name)
