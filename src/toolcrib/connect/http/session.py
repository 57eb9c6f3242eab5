"""Conversations of the legacy era: they begin with a handshake, and both sides say things by themselves.

What we say without waiting for a reply (notifications, answers to the server) is posted in order by a task of its own.

Above: `streamable` and `sse`. Below: `talk`. It must never let a caller wait for the server to accept such a message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import anyio

from toolcrib.connect import wire
from toolcrib.connect.greet import Greeting, Hello, legacy_greeting
from toolcrib.connect.http.answers import Call, Refused
from toolcrib.connect.http.client import HttpClient, Unreachable
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.http.requests import header_lines
from toolcrib.connect.http.talk import WebConversation
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.urls import CheckedUrl
from toolcrib.connect.wire import RequestId
from toolcrib.errors import ToolcribError

logger = logging.getLogger(__name__)

POST_SECONDS: Final = 30.0
"""How long a server may take to accept a message."""

_WAITING_MESSAGES = 1_000


class SessionConversation(WebConversation):
    """A conversation that `initialize` opens and `close` ends. Its tasks live in between."""

    def __init__(
        self, name: str, client: HttpClient, url: CheckedUrl, headers: Mapping[str, str], bearer: Bearer | None
    ) -> None:
        super().__init__(name, "legacy", client, url, headers, bearer)
        self._posts = self._requests
        self._lines = b""
        self._outgoing: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def initialize(self, hello: Hello) -> Greeting | None:
        """Shake hands; None if the server chose a version that is not known here. Raises what `call` raises."""
        greeting = legacy_greeting(await self.call("initialize", hello.introduction()))
        if greeting is None:
            return None
        self._lines = header_lines(self._common_headers(greeting.version))
        try:
            await self._post(wire.notification("notifications/initialized", None))
        except (Refused, Broken, Unreachable) as error:
            raise self._told(error) from None
        self._start(self._send_all())
        return greeting

    async def close(self) -> None:
        """End the conversation and its tasks."""
        await super().close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _common_headers(self, version: str) -> dict[str, str]:
        """What every message after the handshake carries."""
        return {"mcp-protocol-version": version}

    def _refusal(self, refused: Refused) -> None:
        """A message of ours was refused."""

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _abandoned(self, request_id: RequestId, method: str) -> None:
        if method != "initialize":  # the one request that the protocol forbids to cancel
            self.notify("notifications/cancelled", {"requestId": request_id, "reason": "The caller took it back."})

    def _respond(self, message: bytes) -> None:
        if self._failure is None and len(self._outgoing) < _WAITING_MESSAGES:
            self._outgoing.append(message)
            self._wake.set()

    async def _post(self, message: bytes) -> None:
        await self._posts.post(Call(), self._lines, message, may_repeat=True)

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
        except Refused as refused:
            self._refusal(refused)
        except (Broken, Unreachable, ToolcribError, TimeoutError):
            logger.debug("A message to server %s did not arrive.", self.name)
