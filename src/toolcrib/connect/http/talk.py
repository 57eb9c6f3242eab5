"""What conversations over HTTP have in common: ids, the calls that wait, the end, and how failures are told.

Above: `streamable` and `sse`, which know how a message gets to the server. Below: `requests`, `inbox`. It must never
let a caller see anything but a result, a `ProtocolError` or a `ToolcribError`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from toolcrib.connect import wire
from toolcrib.connect.conversation import OnMessage, OnNotification, OnRequest
from toolcrib.connect.http.answers import Call, Refused
from toolcrib.connect.http.client import HttpClient, Unreachable
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.http.failures import failure, told
from toolcrib.connect.http.inbox import Inbox
from toolcrib.connect.http.requests import Requests
from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.process import ServerFailed
from toolcrib.connect.stdio import Dropped
from toolcrib.connect.urls import CheckedUrl
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import META, Era
from toolcrib.model.sources import ReportProgress

MAY_REPEAT: Final = frozenset(
    {
        *("server/discover", "initialize", "ping", "logging/setLevel", "completion/complete", "prompts/get"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe", "subscriptions/listen"),
    }
)
"""Methods that may run twice. A call of a tool may not: what it does, it would do again."""


class WebConversation(ABC):
    """A conversation with one server on the web. Each wire says how messages get to it."""

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
        """Messages that were not used."""
        return self._inbox.dropped

    @property
    def failure(self) -> ServerFailed | None:
        """Why the conversation is over; None as long as it is not."""
        return self._failure

    async def until_ended(self) -> ServerFailed:
        """Wait for the end of the conversation."""
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
        """Send a request and wait for its result, given as it came. Being cancelled cancels it at the server.

        Raises `ProtocolError` if the server answers with an error, `oauth.required` or `oauth.failed` if it wants a
        sign-in, `ServerFailed` if there is no answer: `server.unreachable` and `server.session_lost` then say that the
        request was not carried out.
        """
        if self._failure is not None:
            raise self._again(self._failure)
        self._last_id += 1
        request_id = self._last_id
        if on_progress is not None:
            meta: Json = params.get(META)
            params = {**params, META: {**(meta if is_object(meta) else {}), "progressToken": request_id}}
        call = Call(request_id, on_message, on_progress)
        self._inbox.waiting[request_id] = call
        try:
            return await self._converse(call, method, params, headers)
        except (Refused, Broken, Unreachable) as error:
            raise self._told(error) from None
        except BaseException:
            if not call.reply.done() or call.reply.cancelled():
                self._abandoned(request_id, method)
            raise
        finally:
            del self._inbox.waiting[request_id]

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification; never waits."""
        self._respond(wire.notification(method, params))

    def answer(self, request_id: RequestId, result: JsonObject) -> None:
        """Answer a request of the server, if it still waits for it; never waits."""
        self._inbox.answer(request_id, wire.result(request_id, result))

    def refuse(self, request_id: RequestId, code: int, message: str, data: Json = None) -> None:
        """Refuse a request of the server, if it still waits for it; never waits."""
        self._inbox.answer(request_id, wire.error(request_id, code, message, data))

    async def close(self) -> None:
        """End the conversation."""
        self._end(failure(self.name, "server.ended", "was disconnected"))

    @abstractmethod
    async def _converse(
        self, call: Call, method: str, params: JsonObject, headers: Mapping[str, str] | None
    ) -> JsonObject:
        """Send the request and wait for the call."""

    @abstractmethod
    def _abandoned(self, request_id: RequestId, method: str) -> None:
        """The caller has left, and the connection of the answer was closed."""

    @abstractmethod
    def _respond(self, message: bytes) -> None:
        """Send a message that has no reply, without waiting."""

    def _refuse_unknown(self, request_id: RequestId, method: str, _: JsonObject) -> None:
        self.refuse(request_id, wire.METHOD_NOT_FOUND, f"Method not found: {method}")

    def _end(self, why: ServerFailed, in_flight: Callable[[], Exception] | None = None) -> None:
        """The end, told once: whoever waits is failed with it, or with what `in_flight` gives."""
        if self._failure is None:
            self._failure = why
            self._inbox.fail_all(in_flight or (lambda: self._again(why)))
            self._ended.set()

    def _told(self, error: Refused | Broken | Unreachable) -> Exception:
        bearer = self._requests.bearer
        return told(self.name, error, bearer.problem if bearer is not None else None)

    @staticmethod
    def _again(why: ServerFailed) -> ServerFailed:
        """One exception for each who is told, since each collects its own traceback."""
        return ServerFailed(why.code, why.brief, why.exited_with, why.stderr)


def _ignore(method: str, params: JsonObject) -> None:
    """Nobody listens."""
