"""Dispatches all messages of a server, from whichever stream: replies, requests and notifications.

Must never let a reply resolve any call but its own: duplicate, foreign and look-alike ids are dropped and counted.
"""

import logging
from collections.abc import Callable

from toolcrib.model import jsonrpc
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import RequestId
from toolcrib.model.protocol import Era
from toolcrib.upstream.connection import OnNotification, OnRequest
from toolcrib.upstream.http.http_connection import Broken
from toolcrib.upstream.http.responses import HttpCall
from toolcrib.upstream.stdio import OPEN_REQUESTS, Dropped

logger = logging.getLogger(__name__)

_SHARED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Legacy notifications that concern all callers, whichever stream they arrive on."""


class Inbox:
    """Dispatches messages. `respond` sends a message back; the two callbacks receive what belongs to no call."""

    def __init__(
        self,
        name: str,
        era: Era,
        respond: Callable[[bytes], None],
        on_notification: OnNotification,
        on_request: OnRequest,
    ) -> None:
        self.dropped = Dropped()
        self.waiting: dict[RequestId, HttpCall] = {}
        self._name = name
        self._is_modern = era == "modern"
        self._on_notification = on_notification
        self._on_request = on_request
        self._respond = respond
        self._open_requests: set[RequestId] = set()

    def deliver(self, message: JsonObject, call: HttpCall) -> None:
        """Dispatch a message that arrived on the stream of this call."""
        method: Json = message.get("method")
        if method is None:
            self._reply(message, call)
        elif not isinstance(method, str):
            self.dropped.malformed += 1
        elif "id" in message:
            self._request(message, method)
        else:
            self._notification(method, jsonrpc.params_of(message), call)

    def answer(self, request_id: RequestId, message: bytes) -> None:
        """Send the answer to a pending request of the server. Ignored if it is no longer pending."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._respond(message)

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Fail all pending calls. Each gets its own exception, because each needs its own traceback."""
        for call in tuple(self.waiting.values()):
            call.fail(error())

    def _reply(self, message: JsonObject, call: HttpCall) -> None:
        request_id = jsonrpc.as_id(message.get("id"))
        has_result = "result" in message
        if request_id is None or has_result == ("error" in message):
            self.dropped.malformed += 1
            return
        target = self.waiting.get(request_id)
        if target is None or target.reply.done() or (self._is_modern and target is not call):
            self.dropped.unknown += 1
        elif has_result:
            result: Json = message["result"]
            if is_object(result):
                target.settle(result)
            else:
                target.fail(Broken("server.reply_invalid", "answered with a result that is not an object"))
        else:
            target.fail(jsonrpc.error_of(message["error"]))

    def _request(self, message: JsonObject, method: str) -> None:
        request_id = jsonrpc.as_id(message["id"])
        if request_id is None or request_id in self._open_requests or self._is_modern:
            self.dropped.malformed += 1
            return
        self._open_requests.add(request_id)
        if method == "ping":
            self.answer(request_id, jsonrpc.result(request_id, {}))
        elif len(self._open_requests) > OPEN_REQUESTS:
            busy = jsonrpc.error(request_id, jsonrpc.SERVER_BUSY, f"More than {OPEN_REQUESTS} requests are open.")
            self.answer(request_id, busy)
        else:
            self._call_hook(self._on_request, request_id, method, jsonrpc.params_of(message))

    def _notification(self, method: str, params: JsonObject, call: HttpCall) -> None:
        if method == "notifications/progress" and self._progress(params, call):
            return
        if method == "notifications/cancelled" and (request_id := jsonrpc.as_id(params.get("requestId"))) is not None:
            self._open_requests.discard(request_id)  # the server withdrew it
        if call.on_message is not None and (self._is_modern or method not in _SHARED):
            self._call_hook(call.on_message, method, params)
        else:
            self._call_hook(self._on_notification, method, params)

    def _progress(self, params: JsonObject, call: HttpCall) -> bool:
        token = jsonrpc.as_id(params.get("progressToken"))
        target = self.waiting.get(token) if token is not None else None
        if target is None or target.on_progress is None or (self._is_modern and target is not call):
            return False
        report = jsonrpc.progress_of(params)
        if report is None:
            self.dropped.malformed += 1
        else:
            target.report(report)
        return True

    def _call_hook(self, hook: Callable[..., None], *what: Json) -> None:
        try:
            hook(*what)
        except Exception:  # boundary: a failing callback must not end the connection
            logger.exception("Could not handle a message from server %s.", self._name)
