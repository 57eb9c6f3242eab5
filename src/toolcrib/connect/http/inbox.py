"""Where all messages of a server arrive, whichever of its streams they came on: replies, requests, notifications.

Above: the conversations. Below: `answers`, whose calls wait here by their ids. It must never let a reply resolve any
call but its own: duplicates, foreign and look-alike ids are dropped and counted.
"""

import logging
from collections.abc import Callable

from toolcrib.connect import wire
from toolcrib.connect.conversation import OnNotification, OnRequest
from toolcrib.connect.http.answers import Call
from toolcrib.connect.http.connection import Broken
from toolcrib.connect.stdio import OPEN_REQUESTS, Dropped
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import Era

logger = logging.getLogger(__name__)

_SHARED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""In the legacy era these concern everybody, whichever stream they come on."""


class Inbox:
    """Sorts what a server says. `respond` sends a message back to it; the other two hear what belongs to no call."""

    def __init__(
        self,
        name: str,
        era: Era,
        respond: Callable[[bytes], None],
        on_notification: OnNotification,
        on_request: OnRequest,
    ) -> None:
        self.dropped = Dropped()
        self.waiting: dict[RequestId, Call] = {}
        self._name = name
        self._is_modern = era == "modern"
        self._on_notification = on_notification
        self._on_request = on_request
        self._respond = respond
        self._open_requests: set[RequestId] = set()

    def deliver(self, message: JsonObject, call: Call) -> None:
        """Take a message that came on the stream of this call."""
        method: Json = message.get("method")
        if method is None:
            self._reply(message, call)
        elif not isinstance(method, str):
            self.dropped.malformed += 1
        elif "id" in message:
            self._request(message, method)
        else:
            self._notification(method, wire.params_of(message), call)

    def answer(self, request_id: RequestId, message: bytes) -> None:
        """Send the answer to a request of the server, if it still waits for it."""
        if request_id in self._open_requests:
            self._open_requests.discard(request_id)
            self._respond(message)

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Nobody is to wait any more. Each gets an exception of his own, since each collects a traceback."""
        for call in tuple(self.waiting.values()):
            call.fail(error())

    def _reply(self, message: JsonObject, call: Call) -> None:
        request_id = wire.as_id(message.get("id"))
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
                target.fail(Broken("server.reply_invalid", "answered with a result that is no object"))
        else:
            target.fail(wire.error_of(message["error"]))

    def _request(self, message: JsonObject, method: str) -> None:
        request_id = wire.as_id(message["id"])
        if request_id is None or request_id in self._open_requests or self._is_modern:
            self.dropped.malformed += 1
            return
        self._open_requests.add(request_id)
        if method == "ping":
            self.answer(request_id, wire.result(request_id, {}))
        elif len(self._open_requests) > OPEN_REQUESTS:
            busy = wire.error(request_id, wire.SERVER_BUSY, f"More than {OPEN_REQUESTS} requests are open.")
            self.answer(request_id, busy)
        else:
            self._tell(self._on_request, request_id, method, wire.params_of(message))

    def _notification(self, method: str, params: JsonObject, call: Call) -> None:
        if method == "notifications/progress" and self._progress(params, call):
            return
        if method == "notifications/cancelled" and (request_id := wire.as_id(params.get("requestId"))) is not None:
            self._open_requests.discard(request_id)  # its answer is not wanted any more
        if call.on_message is not None and (self._is_modern or method not in _SHARED):
            self._tell(call.on_message, method, params)
        else:
            self._tell(self._on_notification, method, params)

    def _progress(self, params: JsonObject, call: Call) -> bool:
        token = wire.as_id(params.get("progressToken"))
        target = self.waiting.get(token) if token is not None else None
        if target is None or target.on_progress is None or (self._is_modern and target is not call):
            return False
        report = wire.progress_of(params)
        if report is None:
            self.dropped.malformed += 1
        else:
            target.report(report)
        return True

    def _tell(self, hearer: Callable[..., None], *what: Json) -> None:
        try:
            hearer(*what)
        except Exception:  # boundary: a hearer's mistake must not cost the conversation
            logger.exception("What server %s said could not be handled.", self._name)
