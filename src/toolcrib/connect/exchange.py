"""An open conversation as callers use it: each request in the server's era, with the caller's own abilities.

A modern server is told with each request what the caller's client can do, and asks by its result; a legacy one was
told at the handshake and asks live. Either way the question reaches the caller's client and nobody else's. What the
server says beside its results goes to the one caller it certainly belongs to, or to nobody.

Above: `link`. Below: `Conversation`, `flights`, `asking`, `talk`. It must never wait on behalf of a call in any task
but the call's own, except for a question that the server asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from time import time
from typing import Any, Final

from toolcrib.connect.asking import answers_to, put, refuse, take_back, unanswerable
from toolcrib.connect.conversation import OnNotification
from toolcrib.connect.flights import Flight, Flights
from toolcrib.connect.greet import Hello
from toolcrib.connect.opening import Opened
from toolcrib.connect.retries import Timing
from toolcrib.connect.talk import CANCELLED, OK, Talk, ending, named
from toolcrib.connect.wire import RequestId
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import CAPABILITIES_KEY, CLIENT_INFO_KEY, KEY, LOG_LEVEL_KEY, META, METHOD_NOT_FOUND
from toolcrib.model.sources import CallContext, Client, ProtocolError

ROUNDS_LIMIT: Final = 10
_FOR_A_CALLER = frozenset({"notifications/message", "notifications/elicitation/complete"})
_SILENCE = 30.0
"""Seconds after which a call that is taken back without a word from the server makes it suspect."""
_METHOD_SHOWN = 100
"""Characters of what a server calls its message that are kept."""
_NO_RESULT = (ProtocolError, ToolcribError)

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that ends with the conversation."""
Headers = Mapping[str, str] | None


class Exchange:
    """Requests over one open conversation.

    `on_event` hears what concerns no single call: changed lists, updated resources. `on_silence` is told when a call
    ended without an answer and the server has said nothing for a while. `session` is set where the conversation
    belongs to one client's session alone.
    """

    def __init__(
        self,
        opened: Opened,
        hello: Hello,
        timing: Timing,
        talk: Talk,
        spawn: Spawn,
        session: str | None = None,
    ) -> None:
        self.conversation = conversation = opened.conversation
        self.greeting = opened.greeting
        self.session = session
        self.on_event: OnNotification = lambda method, params: None
        self.on_silence: Callable[[], None] = lambda: None
        self._call = conversation.call
        self._note = talk.note
        self._is_modern = opened.greeting.era == "modern"
        self._envelope = hello.envelope()
        self._spawn = spawn
        self._flights = Flights(timing)
        self._now = asyncio.get_running_loop().time
        self._heard_at = self._used_at = self._now()
        conversation.on_notification = self._heard
        conversation.on_request = self._asked

    @property
    def is_used(self) -> bool:
        """Whether a call is under way."""
        return bool(self._flights)

    @property
    def silent_for(self) -> float:
        """The seconds since the server last said something."""
        return self._now() - self._heard_at

    @property
    def unused_for(self) -> float:
        """The seconds since a call last ended."""
        return self._now() - self._used_at

    async def ask(
        self, method: str, params: JsonObject | None = None, on_message: OnNotification | None = None
    ) -> JsonObject:
        """A request of our own, in nobody's name."""
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
        """A request of a caller; gives the result as it came.

        Raises `ProtocolError`, `ServerFailed`, or `Unavailable` (`server.timeout`), all when it is awaited.
        """
        client = context.client
        if self._is_modern and client is not None:
            return self._rounds(method, params, context, client, headers)
        return self._once(method, params, context, headers)

    async def _once(self, method: str, params: JsonObject, context: CallContext, headers: Headers) -> JsonObject:
        """Ask a legacy server, or a modern one in nobody's name."""
        client = context.client
        if self._is_modern:
            params = {**params, META: self._envelope}
        elif client is not None and client.meta:
            params = {**params, META: _passed_on(client)}
        flight, began = self._flights.board(context), time()
        try:
            if context.report_progress is None and (client is None or client.log_level is None):
                result = await self._call(method, params, headers=headers)
            else:
                result = await self._begun(method, params, flight, headers)
                if flight.has_messages:
                    await flight.tell()
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, named(method, params), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, named(method, params), _gave_up(flight)))
            self._explain(flight, method)
            raise
        finally:
            self._flights.leave(flight)
        self._note((began, time(), "out", method, named(method, params), OK))
        self._heard_at = self._used_at = self._now()
        if self._is_modern and result.get("resultType") == "input_required":
            return unanswerable(self.conversation.name, method)
        return result

    async def _rounds(
        self, method: str, params: JsonObject, context: CallContext, client: Client, headers: Headers
    ) -> JsonObject:
        """Ask a modern server in the name of a client, and again with answers as long as it wants to know more."""
        asked = {**params, META: self._meta(client)}
        if client.responses is not None:
            asked["inputResponses"] = client.responses
        if client.state is not None:
            asked["requestState"] = client.state
        flight, began = self._flights.board(context), time()
        try:
            for _ in range(ROUNDS_LIMIT):
                result = await self._begun(method, asked, flight, headers)
                if flight.has_messages:
                    await flight.tell()  # what was said before the result comes before it
                self._note((began, time(), "out", method, named(method, params), OK))
                self._heard_at = self._used_at = self._now()
                if result.get("resultType") != "input_required" or client.answers_by_retry:
                    return result
                if client.ask is None:
                    return unanswerable(self.conversation.name, method)
                asked, began = await self._answered(asked, result, client, flight), time()
        except _NO_RESULT as error:
            self._note((began, time(), "out", method, named(method, params), ending(error)))
            raise
        except asyncio.CancelledError:
            self._note((began, time(), "out", method, named(method, params), _gave_up(flight)))
            self._explain(flight, method)
            raise
        finally:
            self._flights.leave(flight)
        message = f'Server "{self.conversation.name}" asks more than {ROUNDS_LIMIT} times.'
        raise Unavailable("server.reply_invalid", message)

    async def _answered(self, asked: JsonObject, result: JsonObject, client: Client, flight: Flight) -> JsonObject:
        """The same request with the client's answers."""
        assert client.ask is not None
        self._flights.let_think(flight)
        answers, state = await answers_to(self.conversation.name, result, client.ask)
        self._flights.prolong(flight)
        again = {key: value for key, value in asked.items() if key != "requestState"} | {"inputResponses": answers}
        return again if state is None else {**again, "requestState": state}

    def _meta(self, client: Client) -> JsonObject:
        meta = {**_passed_on(client), **self._envelope, CAPABILITIES_KEY: client.capabilities}
        if client.info is not None:
            meta[CLIENT_INFO_KEY] = client.info
        if client.log_level is not None:
            meta[LOG_LEVEL_KEY] = client.log_level
        return meta

    def _begun(self, method: str, params: JsonObject, flight: Flight, headers: Headers) -> Awaitable[JsonObject]:
        """One request with what is said beside it: progress, and messages, which are the flight's when it is over."""
        report = flight.context.report_progress
        on_message = partial(self._hear_for, flight) if flight.can_hear else None
        if report is None:
            return self._call(method, params, on_message=on_message, headers=headers)

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            self._flights.prolong(flight)
            await report(done, total, message)

        return self._call(method, params, on_progress=on_progress, on_message=on_message, headers=headers)

    def _explain(self, flight: Flight, method: str) -> None:
        """A call was cancelled: raise `server.timeout` if that was because it took too long."""
        if flight.was_given_up():
            self.on_silence()
            message = f'Server "{self.conversation.name}" did not answer {method} in time.'
            raise Unavailable("server.timeout", message)
        if self._heard_at < flight.since < self._now() - _SILENCE:
            self.on_silence()

    def _hear_for(self, flight: Flight, method: str, params: JsonObject) -> None:
        """A notification that came with the answer to one request."""
        if method in _FOR_A_CALLER:
            self._note((time(), None, "in", method, None, None))
            self._pass(flight, method, params)
        else:
            self._heard(method, params)

    def _heard(self, method: str, params: JsonObject) -> None:
        """A notification that came by itself."""
        self._heard_at = self._now()
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, None))
        if method == "notifications/cancelled":
            take_back(self._flights, params)
        elif method not in _FOR_A_CALLER:
            self.on_event(method, params)
        elif (flight := self._flights.certain(is_private=self.session is not None)) is not None:
            self._pass(flight, method, params)
        elif self.session is not None:
            self.on_event(method, params)

    def _pass(self, flight: Flight, method: str, params: JsonObject) -> None:
        if method != "notifications/message" or flight.wants(params.get("level")):
            flight.put(method, params)
            self._spawn(flight.tell)

    def _asked(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """A request of the server. Only on a connection of one session is it clear whom to ask."""
        flight = self._flights.newest() if self.session is not None else None
        ended = str(METHOD_NOT_FOUND) if flight is None else None
        self._note((time(), None, "in", method[:_METHOD_SHOWN], None, ended))
        if flight is None:
            refuse(self.conversation, request_id, method)
        else:
            self._spawn(partial(put, self.conversation, self._flights, flight, request_id, method, params))

    def close(self) -> None:
        """The conversation is over."""
        self._flights.close()


def _passed_on(client: Client) -> JsonObject:
    """The rest of the caller's `_meta`; what belongs to the hop between it and us stays here."""
    meta = client.meta
    return {key: meta[key] for key in meta if not key.startswith(KEY) and key != "progressToken"} if meta else {}


def _gave_up(flight: Flight) -> str:
    """How a call ended that was cancelled: by its caller, or because it took too long."""
    return "server.timeout" if flight.is_overdue else CANCELLED
