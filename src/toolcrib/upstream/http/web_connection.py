"""The common base of HTTP connections: ids, pending calls, closing and errors.

Must never expose anything to a caller but a result, a `ProtocolError` or a `ToolcribError`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from toolcrib.base.network.urls import CheckedUrl
from toolcrib.base.processes.process import ServerFailed
from toolcrib.model import jsonrpc
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import META, METHOD_NOT_FOUND, Era
from toolcrib.model.sources import ReportProgress
from toolcrib.upstream.connection import OPEN_ENDED, OnMessage, OnNotification, OnRequest
from toolcrib.upstream.http.client import HttpClient, Unreachable
from toolcrib.upstream.http.failures import error_for_caller, failure, token_refused
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.inbox import Inbox
from toolcrib.upstream.http.requests import Requests
from toolcrib.upstream.http.responses import HttpCall, RequestRefused
from toolcrib.upstream.oauth.token_refresh import Bearer
from toolcrib.upstream.stdio import Dropped

MAY_REPEAT: Final = frozenset(
    {
        *("server/discover", "initialize", "ping", "logging/setLevel", "completion/complete", "prompts/get"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe", "subscriptions/listen"),
    }
)
"""Methods that may run twice. A tool call may not, because its effects would be repeated."""


class WebConnection(ABC):
    """A connection to one HTTP server. Each transport implements how messages reach it."""

    def __init__(
        self,
        name: str,
        era: Era,
        client: HttpClient,
        url: CheckedUrl,
        headers: Mapping[str, str],
        bearer: Bearer | None,
    ) -> None:
        self.name = name
        self.on_notification: OnNotification = _ignore
        self.on_request: OnRequest = self._refuse_unknown
        self._inbox = Inbox(
            name,
            era,
            self._respond,
            lambda method, params: self.on_notification(method, params),
            lambda request_id, method, params: self.on_request(request_id, method, params),
        )
        self._requests = Requests(client, self._inbox.deliver, url, headers, bearer)
        self._last_id = 0
        self._failure: ServerFailed | None = None
        self._ended = asyncio.Event()

    @property
    def dropped(self) -> Dropped:
        """Counts of unused messages."""
        return self._inbox.dropped

    @property
    def failure(self) -> ServerFailed | None:
        """Why the connection ended, or None while it is open."""
        return self._failure

    async def until_ended(self) -> ServerFailed:
        """Wait until the connection ends and return the reason."""
        await self._ended.wait()
        assert self._failure is not None
        return self._failure

    async def call(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: ReportProgress | None = None,
        on_message: OnMessage | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Send a request and return its result unchanged. Cancelling the call cancels the request at the server.

        Raises `ProtocolError` if the server responds with an error, `oauth.required` or `oauth.failed` if it requires a
        sign-in, and `ServerFailed` without a response. With `server.unreachable` and `server.session_lost`, the server
        did not act on the request.
        """
        if self._failure is not None:
            raise self._failure.copy()
        self._last_id += 1
        request_id = self._last_id
        if on_progress is not None:
            meta: Json = params.get(META)
            params = {**params, META: {**(meta if is_object(meta) else {}), "progressToken": request_id}}
        call = HttpCall(request_id, on_message, on_progress, is_open_ended=method in OPEN_ENDED)
        self._inbox.waiting[request_id] = call
        try:
            return await self._send_request(call, method, params, headers)
        except (RequestRefused, Broken, Unreachable) as error:
            raise self._error_for(error) from None
        except BaseException:
            if not call.reply.done() or call.reply.cancelled():
                self._cancel_request(request_id, method)
            raise
        finally:
            del self._inbox.waiting[request_id]

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification without blocking."""
        self._respond(jsonrpc.notification(method, params))

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a pending request of the server without blocking."""
        self._inbox.answer(request_id, jsonrpc.result(request_id, result))

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Reject a pending request of the server without blocking."""
        self._inbox.answer(request_id, jsonrpc.error(request_id, code, message, data))

    async def close(self) -> None:
        """Close the connection."""
        self._end(failure(self.name, "server.ended", "was disconnected"))

    @abstractmethod
    async def _send_request(
        self, call: HttpCall, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        """Send the request and return the result of the call."""

    @abstractmethod
    def _cancel_request(self, request_id: RequestId, method: str) -> None:
        """Handle a cancelled call, after the connection of its response was closed."""

    @abstractmethod
    def _respond(self, message: bytes) -> None:
        """Send a message that has no reply, without blocking."""

    def _refuse_unknown(self, request_id: RequestId, method: str, _: JsonObject) -> None:
        self.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")

    def _end(self, why: ServerFailed, in_flight: Callable[[], Exception] | None = None) -> None:
        """End the connection, once. Pending calls fail with `why`, or with the result of `in_flight`."""
        if self._failure is None:
            self._failure = why
            self._inbox.fail_all(in_flight or (lambda: why.copy()))
            self._ended.set()

    def _error_for(self, error: RequestRefused | Broken | Unreachable) -> Exception:
        bearer = self._requests.bearer
        if isinstance(error, RequestRefused) and error.status == 401 and self._requests.has_token:
            # A server that only names the scheme refuses the key; one that says where to sign in wants that.
            challenge = error.head.get(b"www-authenticate") or ""
            if bearer is None or not (bearer.is_signed_in or "resource_metadata" in challenge.lower()):
                return token_refused(self.name)
        return error_for_caller(self.name, error, bearer.problem if bearer is not None else None)


def _ignore(method: str, params: JsonObject) -> None:
    """Ignore a notification."""
