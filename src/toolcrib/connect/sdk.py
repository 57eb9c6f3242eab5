"""The official client on our conversation: the only importer of `mcp` on this side, loaded when first needed.

`SdkDispatcher` is the SDK's `Dispatcher` over a `StdioConnection`, so that `ClientSession(dispatcher=…)` can do what is
rare (negotiation, subscriptions, typed requests) on the same pipes on which calls run raw beside it.

Above: the link of a server. Below: `stdio` and mcp 2.3, whose `Dispatcher.run` is provisional; the tests with the SDK's
own server in both eras are the contract. It must never take a task for each message a server cares to send.
"""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT

from toolcrib.connect.process import ServerFailed
from toolcrib.connect.stdio import StdioConnection
from toolcrib.connect.wire import RequestId
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ProtocolError

logger = logging.getLogger(__name__)

NOTIFICATIONS_KEPT: Final = 1_000
"""How many notifications may wait for the session; of more, the oldest are lost."""


@dataclass
class _Context:
    """What the session may know of one message, and how it may talk back while handling it."""

    connection: "SdkDispatcher"
    request_id: RequestId | None
    transport: TransportContext = field(default_factory=lambda: TransportContext(kind="stdio", can_send_request=True))
    message_metadata: None = None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    @property
    def can_send_request(self) -> bool:
        return self.transport.can_send_request

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self.connection.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self.connection.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Nothing: progress goes from servers to clients only."""


class SdkDispatcher(Dispatcher[TransportContext]):
    """The SDK's dispatcher over a stdio conversation. While it runs, it hears what the server says by itself."""

    def __init__(self, connection: StdioConnection) -> None:
        self._connection = connection
        self._notifications: deque[tuple[str, JsonObject]] = deque(maxlen=NOTIFICATIONS_KEPT)
        self._arrived = anyio.Event()
        self._handling: dict[RequestId, tuple[anyio.CancelScope, _Context]] = {}

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result, as the SDK's contract has it: every failure is an `MCPError`."""
        options = opts or {}
        supplied = options.get("request_id")
        request_id = self._connection.new_id() if supplied is None else supplied
        try:
            with anyio.fail_after(options.get("timeout")):
                return await self._request(request_id, method, dict(params) if params else None, options)
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from None
        except ServerFailed as failure:
            raise MCPError(CONNECTION_CLOSED, failure.message) from failure
        except TimeoutError:
            raise MCPError(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None

    async def _request(
        self, request_id: RequestId, method: str, params: JsonObject | None, options: CallOptions
    ) -> JsonObject:
        on_progress = options.get("on_progress")
        if on_progress is not None:
            return await self._connection.follow(request_id, method, params or {}, on_progress)
        reply = self._connection.send(request_id, method, params)
        try:
            return await reply
        except anyio.get_cancelled_exc_class():
            self._connection.abandon(request_id, reply, tells=options.get("cancel_on_abandon", True))
            raise

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        self._connection.notify(method, dict(params) if params is not None else None)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hear the server until it ends. Its requests are handled side by side, its notifications one by one."""
        async with anyio.create_task_group() as tasks:

            def hear_request(request_id: RequestId, method: str, params: JsonObject) -> None:
                tasks.start_soon(self._handle, on_request, request_id, method, params)

            def hear_notification(method: str, params: JsonObject) -> None:
                if method == "notifications/cancelled":
                    self._cancel(params)
                if not run_notify_intercept(on_notify_intercept, method, params):
                    self._notifications.append((method, params))
                    self._arrived.set()

            before = self._connection.on_request, self._connection.on_notification
            self._connection.on_request, self._connection.on_notification = hear_request, hear_notification
            tasks.start_soon(self._pass_on, on_notify)
            task_status.started()
            try:
                await self._connection.until_ended()
            finally:
                self._connection.on_request, self._connection.on_notification = before
                tasks.cancel_scope.cancel()

    async def _handle(self, on_request: OnRequest, request_id: RequestId, method: str, params: JsonObject) -> None:
        context = _Context(self, request_id)
        with anyio.CancelScope() as scope:
            self._handling[request_id] = scope, context
            try:
                self._connection.answer(request_id, await on_request(context, method, params))
            except Exception as error:  # boundary: a handler's failure is the server's answer
                known = handler_exception_to_error_data(error)
                if known is None:
                    logger.exception("The request %s of server %s failed.", method, self._connection.name)
                    self._connection.refuse(request_id, INTERNAL_ERROR, "Internal error")
                else:
                    self._connection.refuse(request_id, known.code, known.message, known.data)
            finally:
                self._handling.pop(request_id, None)

    def _cancel(self, params: JsonObject) -> None:
        handling = self._handling.get(params.get("requestId", ""))
        if handling is not None:
            scope, context = handling
            context.cancel_requested.set()
            scope.cancel()

    async def _pass_on(self, on_notify: OnNotify) -> None:
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            while self._notifications:
                method, params = self._notifications.popleft()
                context: DispatchContext[TransportContext] = _Context(self, None)
                try:
                    await on_notify(context, method, params)
                except Exception:  # boundary: one notification that cannot be handled is one notification
                    logger.exception("The notification %s of server %s failed.", method, self._connection.name)
