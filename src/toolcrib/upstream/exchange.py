"""Requests over one open connection, in the server's era and with the caller's capabilities.

A modern server learns the client's capabilities with each request and asks for input through its result. A legacy
server learned them in the handshake and sends requests of its own. Either way, the request for input only reaches the
caller's client. Notifications beside the results go to the one caller they certainly belong to, or are dropped.

A call times out when the server has been silent about it for too long, or when it exceeds its total time.

Must never wait on behalf of a call outside the call's own task, except to answer a request of the server, and never
deliver a message to a caller it may not be meant for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from time import time
from typing import Any, Final

import anyio

from toolcrib.base.cooperative import Pacer
from toolcrib.base.deadlines import Deadline, Deadlines
from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.jsonrpc import RequestId, as_id
from toolcrib.model.observing import Trace
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    KEY,
    LOG_LEVEL_KEY,
    META,
    METHOD_NOT_FOUND,
    reaches_level,
)
from toolcrib.model.sources import Ask, CallContext, Client, ProtocolError
from toolcrib.upstream.connection import Connection, OnNotification
from toolcrib.upstream.handshake import ClientIntroduction
from toolcrib.upstream.opener import OpenConnection
from toolcrib.upstream.protocol_log import CANCELLED, OK, ProtocolLog, ending
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.task_driver import await_task, supports_tasks, with_tasks

logger = logging.getLogger(__name__)

ROUNDS_LIMIT: Final = 10
_WITH_TASKS = frozenset({"tools/call", "tasks/get"})
"""Methods whose result may be that of a task, for which the crib waits."""
_STATE_LIMIT = 64 * 1024
_INPUTS_LIMIT = 100
_FOR_A_CALLER = frozenset({"notifications/message", "notifications/elicitation/complete"})
_SILENCE = 30.0
"""Seconds without a message after which a cancelled call triggers a liveness check."""
_METHOD_SHOWN = 100
"""Maximum length of a method name in the protocol log."""
_MESSAGES_KEPT = 1_000
_NO_RESULT = (ProtocolError, ToolcribError)

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that ends with the connection."""
Headers = Mapping[str, str] | None


class PendingCall:
    """A call in flight."""

    __slots__ = (
        *("_is_delivery_due", "_messages", "_delivering"),
        *("context", "deadline", "questions", "since"),
    )

    def __init__(self, context: CallContext, since: float, deadline: Deadline) -> None:
        self.context = context
        self.since = since
        self.deadline = deadline
        self.questions: dict[RequestId, anyio.CancelScope] | None = None
        self._messages: deque[tuple[str, JsonObject]] | None = None
        self._delivering: asyncio.Lock | None = None
        self._is_delivery_due = False

    @property
    def caller(self) -> tuple[Principal, str | None]:
        """The principal, and the MCP session if there is one."""
        client = self.context.client
        return self.context.principal, client.session if client is not None else None

    @property
    def can_answer(self) -> bool:
        """Whether the caller's client can answer requests of the server."""
        client = self.context.client
        return client is not None and client.ask is not None

    @property
    def can_receive(self) -> bool:
        """Whether the caller's client can receive notifications."""
        client = self.context.client
        return client is not None and client.tell is not None

    def wants(self, level: Json) -> bool:
        """Return whether the caller wants log messages of this level."""
        client = self.context.client
        return client is not None and reaches_level(level, client.log_level)

    def queue(self, method: str, params: JsonObject) -> bool:
        """Queue a message for the caller. Drops the oldest if the caller is slow.

        Returns whether a task must be started for `deliver`; otherwise one already started delivers this message.
        """
        if self._messages is None:
            self._messages = deque(maxlen=_MESSAGES_KEPT)
        self._messages.append((method, params))
        is_first, self._is_delivery_due = not self._is_delivery_due, True
        return is_first

    @property
    def has_messages(self) -> bool:
        """Whether any message was ever queued. The last one may still be in delivery."""
        return self._messages is not None

    async def deliver(self) -> None:
        """Deliver queued messages in order. Concurrent calls wait for each other."""
        client = self.context.client
        if self._messages is None or client is None or client.tell is None:
            return
        if self._delivering is None:
            self._delivering = asyncio.Lock()
        async with self._delivering:
            self._is_delivery_due = False
            pace = Pacer()
            while self._messages:
                method, params = self._messages.popleft()
                try:
                    await client.tell(method, params)
                except Exception:  # boundary: a failing client must not end the connection
                    logger.debug("Could not deliver a server's message to its client.", exc_info=True)
                await pace.pause()


class PendingCalls:
    """All calls in flight on one connection."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, PendingCall] = {}
        self._deadlines = Deadlines()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[PendingCall]:
        return iter(tuple(self._open.values()))

    def add(self, context: CallContext) -> PendingCall:
        """Register a call that runs in the current task."""
        deadline = self._deadlines.start(self._timing.idle)
        pending_call = PendingCall(context, deadline.ends_at - self._timing.idle, deadline)
        self._open[id(pending_call)] = pending_call
        return pending_call

    def remove(self, pending_call: PendingCall) -> None:
        """Remove a finished call and cancel the server's requests made on its behalf."""
        del self._open[id(pending_call)]
        pending_call.deadline.stop()
        if pending_call.questions:
            for question in pending_call.questions.values():
                question.cancel()

    def prolong(self, pending_call: PendingCall) -> None:
        """Restart the idle timeout after a sign of life. The total timeout is unchanged."""
        if pending_call.questions:
            self.suspend_idle(pending_call)
            return
        idle_until = self._loop.time() + self._timing.idle
        pending_call.deadline.move(min(pending_call.since + self._timing.total, idle_until))

    def suspend_idle(self, pending_call: PendingCall) -> None:
        """Suspend the idle timeout while a user is answering."""
        pending_call.deadline.move(pending_call.since + self._timing.total)

    def seconds_left(self, pending_call: PendingCall) -> float:
        """Return the seconds seconds_left of a call's total timeout."""
        return max(0.0, pending_call.since + self._timing.total - self._loop.time())

    def newest(self) -> PendingCall | None:
        """Return the latest call whose client can answer requests."""
        return next((call for call in reversed(self._open.values()) if call.can_answer), None)

    def only_recipient(self, *, is_private: bool) -> PendingCall | None:
        """Return the latest call whose client can receive notifications, unless the calls have different callers.

        On a private connection all calls have the same caller.
        """
        newest = next((call for call in reversed(self._open.values()) if call.can_receive), None)
        if newest is None or is_private:
            return newest
        return newest if all(pending_call.caller == newest.caller for pending_call in self._open.values()) else None

    def close(self) -> None:
        """Stop watching the deadlines."""
        self._deadlines.close()


class UpstreamRequests:
    """Requests over one open connection.

    `on_event` receives notifications that concern no single call, such as changed lists and updated resources.
    `on_silence` is called when a call ends without a response and the server has been silent for a while. `session` is
    set if the connection belongs to a single MCP session.
    """

    def __init__(
        self,
        opened: OpenConnection,
        hello: ClientIntroduction,
        timing: Timing,
        protocol_log: ProtocolLog,
        spawn: Spawn,
        session: str | None = None,
    ) -> None:
        self.connection = connection = opened.connection
        self.introduction = opened.introduction
        self.session = session
        self.on_event: OnNotification = lambda method, params: None
        self.on_silence: Callable[[], None] = lambda: None
        self._call = connection.call
        self._note = protocol_log.note
        self._is_modern = opened.introduction.era == "modern"
        self._offers_tasks = self._is_modern and supports_tasks(opened.introduction.capabilities)
        self._envelope = hello.envelope()
        self._spawn = spawn
        self._pending_calls = PendingCalls(timing)
        self._now = asyncio.get_running_loop().time
        self._last_message_at = self._last_used_at = self._now()
        connection.on_notification = self._on_notification
        connection.on_request = self._on_request

    @property
    def is_used(self) -> bool:
        """Whether a call is in flight."""
        return bool(self._pending_calls)

    @property
    def silent_for(self) -> float:
        """Seconds since the last message from the server."""
        return self._now() - self._last_message_at

    @property
    def unused_for(self) -> float:
        """Seconds since the last call ended."""
        return self._now() - self._last_used_at

    async def ask(
        self, method: str, params: JsonObject | None = None, on_message: OnNotification | None = None
    ) -> JsonObject:
        """Send a request of the crib's own, without a caller."""
        body = {**(params or {}), META: self._envelope} if self._is_modern else params or {}
        began = time()
        try:
            result = await self._call(method, body, on_message=on_message)
        except (*_NO_RESULT, asyncio.CancelledError) as error:
            self._note((began, time(), "out", method, None, ending(error)))
            raise
        self._note((began, time(), "out", method, None, OK))
        self._last_message_at = self._now()
        return result

    def request(
        self, method: str, params: JsonObject, context: CallContext, headers: Headers = None
    ) -> Awaitable[JsonObject]:
        """Send a caller's request and return its result unchanged.

        When awaited, raises `ProtocolError`, `ServerFailed` or `Unavailable` (`server.timeout`).
        """
        client = context.client
        if context.trace is not None:
            headers = {**(headers or {}), **context.trace}
        if self._is_modern and client is not None:
            return self._send_with_input(method, params, context, client, headers)
        return self._send_once(method, params, context, headers)

    async def _send_once(self, method: str, params: JsonObject, context: CallContext, headers: Headers) -> JsonObject:
        """Send a request to a legacy server, or to a modern one without a client."""
        client = context.client
        trace = context.trace
        if self._is_modern:
            meta = self._envelope if trace is None else {**self._envelope, **trace}
            params = {**params, META: self._offering_tasks(method, meta)}
        elif trace is not None or (client is not None and client.meta):
            params = {**params, META: {**(_forwarded_meta(client) if client is not None else {}), **(trace or {})}}
        pending_call, began = self._pending_calls.add(context), time()
        try:
            if context.report_progress is None and (client is None or client.log_level is None):
                result = await self._call(method, params, headers=headers)
            else:
                result = await self._send(method, params, pending_call, headers)
                if pending_call.has_messages:
                    await pending_call.deliver()
            if self._is_task(method, result):
                result = await self._await_task(result, params[META], Client(), pending_call)
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, params.get("name"), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, params.get("name"), _outcome_of_cancelled(pending_call)))
            self._raise_if_expired(pending_call, method)
            raise
        finally:
            self._pending_calls.remove(pending_call)
        self._note((began, time(), "out", method, params.get("name"), OK))
        self._last_message_at = self._last_used_at = self._now()
        if self._is_modern and result.get("resultType") == "input_required":
            return _unanswerable(self.connection.name, method)
        return result

    async def _send_with_input(
        self, method: str, params: JsonObject, context: CallContext, client: Client, headers: Headers
    ) -> JsonObject:
        """Send a client's request to a modern server, and retry it with answers while the server requires input."""
        request = {**params, META: self._offering_tasks(method, self._meta(client, context.trace))}
        if client.responses is not None:
            request["inputResponses"] = client.responses
        if client.state is not None:
            request["requestState"] = client.state
        pending_call, began = self._pending_calls.add(context), time()
        try:
            for _ in range(ROUNDS_LIMIT):
                result = await self._send(method, request, pending_call, headers)
                if pending_call.has_messages:
                    await pending_call.deliver()  # deliver earlier messages before the result
                self._note((began, time(), "out", method, params.get("name"), OK))
                self._last_message_at = self._last_used_at = self._now()
                if self._is_task(method, result) or method == "tasks/get":
                    return await self._await_task(result, request[META], client, pending_call)
                if result.get("resultType") != "input_required" or client.answers_by_retry:
                    return result
                if client.ask is None:
                    return _unanswerable(self.connection.name, method)
                request, began = await self._with_answers(request, result, client, pending_call), time()
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, params.get("name"), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, params.get("name"), _outcome_of_cancelled(pending_call)))
            self._raise_if_expired(pending_call, method)
            raise
        finally:
            self._pending_calls.remove(pending_call)
        message = f'Server "{self.connection.name}" asked for input more than {ROUNDS_LIMIT} times.'
        raise Unavailable("server.reply_invalid", message)

    def _offering_tasks(self, method: str, meta: JsonObject) -> JsonObject:
        """Return the `_meta` of a request; a server that supports tasks may answer a call with one."""
        return with_tasks(meta) if self._offers_tasks and method in _WITH_TASKS else meta

    def _is_task(self, method: str, result: JsonObject) -> bool:
        """Return whether a server answered with a task. Raises `Unavailable` for a type of result it may not return."""
        kind: Json = result.get("resultType", "complete")
        if kind in ("complete", "input_required") or not self._is_modern:
            return False
        if kind == "task" and self._offers_tasks and method in _WITH_TASKS:
            return True
        text = f'Server "{self.connection.name}" answered {method} with an unknown type of result.'
        raise Unavailable("server.reply_invalid", text)

    async def _await_task(
        self, created: JsonObject, meta: JsonObject, client: Client, pending_call: PendingCall
    ) -> JsonObject:
        """Return the result of the task that a server answered a call with."""
        leaves = _ends_with_call
        if client.on_task is not None:
            leaves = await client.on_task(self.connection.name, str(created.get("taskId")))
        alive = partial(self._pending_calls.prolong, pending_call)
        return await await_task(self.connection.name, created, meta, self._call, client.ask, alive, leaves)

    async def _with_answers(
        self, request: JsonObject, result: JsonObject, client: Client, pending_call: PendingCall
    ) -> JsonObject:
        """Return the same request with the client's answers."""
        assert client.ask is not None
        self._pending_calls.suspend_idle(pending_call)
        answers, state = await _answers_to(self.connection.name, result, client.ask)
        self._pending_calls.prolong(pending_call)
        again = {key: value for key, value in request.items() if key != "requestState"} | {"inputResponses": answers}
        return again if state is None else {**again, "requestState": state}

    def _meta(self, client: Client, trace: Trace | None) -> JsonObject:
        meta = {**_forwarded_meta(client), **self._envelope, CAPABILITIES_KEY: client.capabilities}
        if trace is not None:
            meta |= trace
        if client.info is not None:
            meta[CLIENT_INFO_KEY] = client.info
        if client.log_level is not None:
            meta[LOG_LEVEL_KEY] = client.log_level
        return meta

    def _send(
        self, method: str, params: JsonObject, pending_call: PendingCall, headers: Headers
    ) -> Awaitable[JsonObject]:
        """Send one request, with callbacks that route its progress and messages to the pending call."""
        report = pending_call.context.report_progress
        on_message = partial(self._on_call_notification, pending_call) if pending_call.can_receive else None
        if report is None:
            return self._call(method, params, on_message=on_message, headers=headers)

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            self._pending_calls.prolong(pending_call)
            await report(done, total, message)

        return self._call(method, params, on_progress=on_progress, on_message=on_message, headers=headers)

    def _raise_if_expired(self, pending_call: PendingCall, method: str) -> None:
        """Raise `server.timeout` if the cancelled call had exceeded its deadline."""
        if pending_call.deadline.has_expired():
            self.on_silence()
            message = f'Server "{self.connection.name}" did not answer {method} in time.'
            raise Unavailable("server.timeout", message)
        if self._last_message_at < pending_call.since < self._now() - _SILENCE:
            self.on_silence()

    def _on_call_notification(self, pending_call: PendingCall, method: str, params: JsonObject) -> None:
        """Handle a notification that arrived with the response to one request."""
        if method in _FOR_A_CALLER:
            self._note((time(), None, "in", method, None, None))
            self._queue_for(pending_call, method, params)
        else:
            self._on_notification(method, params)

    def _on_notification(self, method: str, params: JsonObject) -> None:
        """Handle a notification that belongs to no request."""
        self._last_message_at = self._now()
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, None))
        if method == "notifications/cancelled":
            _withdraw(self._pending_calls, params)
        elif method not in _FOR_A_CALLER:
            self.on_event(method, params)
        elif (pending_call := self._pending_calls.only_recipient(is_private=self.session is not None)) is not None:
            self._queue_for(pending_call, method, params)
        elif self.session is not None:
            self.on_event(method, params)

    def _queue_for(self, pending_call: PendingCall, method: str, params: JsonObject) -> None:
        is_wanted = method != "notifications/message" or pending_call.wants(params.get("level"))
        if is_wanted and pending_call.queue(method, params):
            self._spawn(pending_call.deliver)

    def _on_request(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Handle a request of the server. Only on the connection of one session is it clear which client to ask."""
        pending_call = self._pending_calls.newest() if self.session is not None else None
        outcome = str(METHOD_NOT_FOUND) if pending_call is None else None
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, outcome))
        if pending_call is None:
            self.connection.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")
        else:
            self._spawn(
                partial(_forward, self.connection, self._pending_calls, pending_call, request_id, method, params)
            )

    def close(self) -> None:
        """Close all pending calls."""
        self._pending_calls.close()


def _ends_with_call() -> bool:
    return False


async def _answers_to(name: str, result: JsonObject, ask: Ask) -> tuple[JsonObject, str | None]:
    """Forward each input request of a result to the client, one at a time because a single user answers them.

    Returns the answers and the state to send back to the server. Raises the client's error.
    """
    state: Json = result.get("requestState")
    wanted: Json = result.get("inputRequests")
    questions = wanted if is_object(wanted) else {}
    if state is not None and (not isinstance(state, str) or len(state) > _STATE_LIMIT):
        raise Unavailable(
            "server.reply_invalid", f'Server "{name}" sent a request state that is too large or not text.'
        )
    if len(questions) > _INPUTS_LIMIT:
        raise Unavailable(
            "server.reply_invalid", f'Server "{name}" asked for more than {_INPUTS_LIMIT} inputs at once.'
        )
    answers: JsonObject = {}
    for key, question in questions.items():
        method: Json = question.get("method") if is_object(question) else None
        if not isinstance(method, str):
            raise Unavailable("server.reply_invalid", f'Server "{name}" sent an input request that cannot be read.')
        params: Json = question.get("params")
        answers[key] = await ask(method, params if is_object(params) else {})
    return answers, state


def _unanswerable(name: str, method: str) -> JsonObject:
    """Return or raise the error for a caller whose client cannot answer the server."""
    text = f'Server "{name}" needs input from the user, which this client does not support.'
    if method != "tools/call":
        raise ProtocolError(INVALID_REQUEST, text)
    return {"content": [{"type": "text", "text": text}], "isError": True}


async def _forward(
    connection: Connection,
    pending_calls: PendingCalls,
    pending_call: PendingCall,
    request_id: RequestId,
    method: str,
    params: JsonObject,
) -> None:
    """Forward a legacy server's request to the client of a call, and send back its answer."""
    client = pending_call.context.client
    assert client is not None and client.ask is not None
    if pending_call.questions is None:
        pending_call.questions = {}
    try:
        with anyio.move_on_after(pending_calls.seconds_left(pending_call)) as pending_call.questions[request_id]:
            pending_calls.prolong(pending_call)
            connection.answer(request_id, await client.ask(method, params))
            return
        connection.refuse(request_id, INVALID_REQUEST, "No answer in time.")
    except ProtocolError as error:
        connection.refuse(request_id, error.code, error.message, error.data)
    except Exception:  # boundary: a client that fails to answer must not end the connection
        logger.exception("The client of a call failed to answer server %s.", connection.name)
        connection.refuse(request_id, INTERNAL_ERROR, "The client failed to answer.")
    finally:
        del pending_call.questions[request_id]
        pending_calls.prolong(pending_call)


def _withdraw(pending_calls: PendingCalls, params: JsonObject) -> None:
    """Cancel a request that the server has withdrawn."""
    request_id = as_id(params.get("requestId"))
    for pending_call in pending_calls:
        if request_id is not None and pending_call.questions and request_id in pending_call.questions:
            pending_call.questions[request_id].cancel()


def _forwarded_meta(client: Client) -> JsonObject:
    """Return the caller's `_meta` without the members that only concern the hop between it and the crib."""
    meta = client.meta
    return {key: meta[key] for key in meta if not key.startswith(KEY) and key != "progressToken"} if meta else {}


def _outcome_of_cancelled(pending_call: PendingCall) -> str:
    """Return how a cancelled call ended: by its deadline or by its caller."""
    return "server.timeout" if pending_call.deadline.is_over else CANCELLED
