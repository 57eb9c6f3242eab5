"""Requests over one open connection, in the server's era and with the caller's capabilities.

A modern server learns the client's capabilities with each request and asks for input through its result. A legacy
server learned them in the handshake and sends requests of its own. Either way, the request for input only reaches the
caller's client. Notifications beside the results go to the one caller they certainly belong to, or are dropped.

Must never wait on behalf of a call outside the call's own task, except to answer a request of the server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from time import time
from typing import Any, Final

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    KEY,
    LOG_LEVEL_KEY,
    META,
    METHOD_NOT_FOUND,
)
from toolcrib.model.sources import CallContext, Client, ProtocolError
from toolcrib.upstream.connection import OnNotification
from toolcrib.upstream.handshake import ClientIntroduction
from toolcrib.upstream.jsonrpc import RequestId
from toolcrib.upstream.opener import OpenConnection
from toolcrib.upstream.pending_calls import PendingCall, PendingCalls
from toolcrib.upstream.protocol_log import CANCELLED, OK, ProtocolLog, ending, named
from toolcrib.upstream.retries import Timing
from toolcrib.upstream.server_requests import answers_to, put, refuse, take_back, unanswerable

ROUNDS_LIMIT: Final = 10
_FOR_A_CALLER = frozenset({"notifications/message", "notifications/elicitation/complete"})
_SILENCE = 30.0
"""Seconds without a message after which a cancelled call triggers a liveness check."""
_METHOD_SHOWN = 100
"""Maximum length of a method name in the protocol log."""
_NO_RESULT = (ProtocolError, ToolcribError)

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that ends with the connection."""
Headers = Mapping[str, str] | None


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
        self.conversation = conversation = opened.conversation
        self.greeting = opened.greeting
        self.session = session
        self.on_event: OnNotification = lambda method, params: None
        self.on_silence: Callable[[], None] = lambda: None
        self._call = conversation.call
        self._note = protocol_log.note
        self._is_modern = opened.greeting.era == "modern"
        self._envelope = hello.envelope()
        self._spawn = spawn
        self._pending_calls = PendingCalls(timing)
        self._now = asyncio.get_running_loop().time
        self._heard_at = self._used_at = self._now()
        conversation.on_notification = self._heard
        conversation.on_request = self._asked

    @property
    def is_used(self) -> bool:
        """Whether a call is in flight."""
        return bool(self._pending_calls)

    @property
    def silent_for(self) -> float:
        """Seconds since the last message from the server."""
        return self._now() - self._heard_at

    @property
    def unused_for(self) -> float:
        """Seconds since the last call ended."""
        return self._now() - self._used_at

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
        self._heard_at = self._now()
        return result

    def request(
        self, method: str, params: JsonObject, context: CallContext, headers: Headers = None
    ) -> Awaitable[JsonObject]:
        """Send a caller's request and return its result unchanged.

        When awaited, raises `ProtocolError`, `ServerFailed` or `Unavailable` (`server.timeout`).
        """
        client = context.client
        if self._is_modern and client is not None:
            return self._rounds(method, params, context, client, headers)
        return self._once(method, params, context, headers)

    async def _once(self, method: str, params: JsonObject, context: CallContext, headers: Headers) -> JsonObject:
        """Send a request to a legacy server, or to a modern one without a client."""
        client = context.client
        if self._is_modern:
            params = {**params, META: self._envelope}
        elif client is not None and client.meta:
            params = {**params, META: _passed_on(client)}
        pending_call, began = self._pending_calls.add(context), time()
        try:
            if context.report_progress is None and (client is None or client.log_level is None):
                result = await self._call(method, params, headers=headers)
            else:
                result = await self._begun(method, params, pending_call, headers)
                if pending_call.has_messages:
                    await pending_call.deliver()
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, named(method, params), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, named(method, params), _gave_up(pending_call)))
            self._explain(pending_call, method)
            raise
        finally:
            self._pending_calls.remove(pending_call)
        self._note((began, time(), "out", method, named(method, params), OK))
        self._heard_at = self._used_at = self._now()
        if self._is_modern and result.get("resultType") == "input_required":
            return unanswerable(self.conversation.name, method)
        return result

    async def _rounds(
        self, method: str, params: JsonObject, context: CallContext, client: Client, headers: Headers
    ) -> JsonObject:
        """Send a client's request to a modern server, and retry it with answers while the server requires input."""
        asked = {**params, META: self._meta(client)}
        if client.responses is not None:
            asked["inputResponses"] = client.responses
        if client.state is not None:
            asked["requestState"] = client.state
        pending_call, began = self._pending_calls.add(context), time()
        try:
            for _ in range(ROUNDS_LIMIT):
                result = await self._begun(method, asked, pending_call, headers)
                if pending_call.has_messages:
                    await pending_call.deliver()  # deliver earlier messages before the result
                self._note((began, time(), "out", method, named(method, params), OK))
                self._heard_at = self._used_at = self._now()
                if result.get("resultType") != "input_required" or client.answers_by_retry:
                    return result
                if client.ask is None:
                    return unanswerable(self.conversation.name, method)
                asked, began = await self._answered(asked, result, client, pending_call), time()
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, named(method, params), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, named(method, params), _gave_up(pending_call)))
            self._explain(pending_call, method)
            raise
        finally:
            self._pending_calls.remove(pending_call)
        message = f'Server "{self.conversation.name}" asked for input more than {ROUNDS_LIMIT} times.'
        raise Unavailable("server.reply_invalid", message)

    async def _answered(
        self, asked: JsonObject, result: JsonObject, client: Client, pending_call: PendingCall
    ) -> JsonObject:
        """Return the same request with the client's answers."""
        assert client.ask is not None
        self._pending_calls.suspend_idle(pending_call)
        answers, state = await answers_to(self.conversation.name, result, client.ask)
        self._pending_calls.prolong(pending_call)
        again = {key: value for key, value in asked.items() if key != "requestState"} | {"inputResponses": answers}
        return again if state is None else {**again, "requestState": state}

    def _meta(self, client: Client) -> JsonObject:
        meta = {**_passed_on(client), **self._envelope, CAPABILITIES_KEY: client.capabilities}
        if client.info is not None:
            meta[CLIENT_INFO_KEY] = client.info
        if client.log_level is not None:
            meta[LOG_LEVEL_KEY] = client.log_level
        return meta

    def _begun(
        self, method: str, params: JsonObject, pending_call: PendingCall, headers: Headers
    ) -> Awaitable[JsonObject]:
        """Send one request, with callbacks that route its progress and messages to the pending call."""
        report = pending_call.context.report_progress
        on_message = partial(self._hear_for, pending_call) if pending_call.can_hear else None
        if report is None:
            return self._call(method, params, on_message=on_message, headers=headers)

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            self._pending_calls.prolong(pending_call)
            await report(done, total, message)

        return self._call(method, params, on_progress=on_progress, on_message=on_message, headers=headers)

    def _explain(self, pending_call: PendingCall, method: str) -> None:
        """Raise `server.timeout` if the cancelled call had exceeded its deadline."""
        if pending_call.deadline.has_expired():
            self.on_silence()
            message = f'Server "{self.conversation.name}" did not answer {method} in time.'
            raise Unavailable("server.timeout", message)
        if self._heard_at < pending_call.since < self._now() - _SILENCE:
            self.on_silence()

    def _hear_for(self, pending_call: PendingCall, method: str, params: JsonObject) -> None:
        """Handle a notification that arrived with the response to one request."""
        if method in _FOR_A_CALLER:
            self._note((time(), None, "in", method, None, None))
            self._pass(pending_call, method, params)
        else:
            self._heard(method, params)

    def _heard(self, method: str, params: JsonObject) -> None:
        """Handle a notification that belongs to no request."""
        self._heard_at = self._now()
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, None))
        if method == "notifications/cancelled":
            take_back(self._pending_calls, params)
        elif method not in _FOR_A_CALLER:
            self.on_event(method, params)
        elif (pending_call := self._pending_calls.certain(is_private=self.session is not None)) is not None:
            self._pass(pending_call, method, params)
        elif self.session is not None:
            self.on_event(method, params)

    def _pass(self, pending_call: PendingCall, method: str, params: JsonObject) -> None:
        is_wanted = method != "notifications/message" or pending_call.wants(params.get("level"))
        if is_wanted and pending_call.queue(method, params):
            self._spawn(pending_call.deliver)

    def _asked(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Handle a request of the server. Only on the connection of one session is it clear which client to ask."""
        pending_call = self._pending_calls.newest() if self.session is not None else None
        ended = str(METHOD_NOT_FOUND) if pending_call is None else None
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, ended))
        if pending_call is None:
            refuse(self.conversation, request_id, method)
        else:
            self._spawn(partial(put, self.conversation, self._pending_calls, pending_call, request_id, method, params))

    def close(self) -> None:
        """Close all pending calls."""
        self._pending_calls.close()


def _passed_on(client: Client) -> JsonObject:
    """Return the caller's `_meta` without the members that only concern the hop between it and the crib."""
    meta = client.meta
    return {key: meta[key] for key in meta if not key.startswith(KEY) and key != "progressToken"} if meta else {}


def _gave_up(pending_call: PendingCall) -> str:
    """Return how a cancelled call ended: by its deadline or by its caller."""
    return "server.timeout" if pending_call.deadline.is_over else CANCELLED
