"""Calls that wait for their client's answers: a client of the modern era is asked by being answered.

When a server asks something in the middle of a call, the request that began it is answered with the question
(`input_required`) and a sealed state; the call itself goes on in the task that it has. The client asks the same again
with its answers, which are handed to the call, and that request then waits for what comes next: another question, or
the result. So only calls that are interrupted cost anything.

Above: the endpoint parks and resumes. Below: the exchange of the first request, whose work the call is. It must never
resume a call for anybody but the one who began it, and never keep one without a bound.
"""

import asyncio
import itertools
import logging
import secrets
from dataclasses import dataclass

import orjson

from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    META,
    MISSING_CAPABILITY,
    SERVER_INFO_KEY,
)
from toolcrib.model.sources import ProtocolError
from toolcrib.server.mcp.asking import ANSWER_WAIT, capability_for
from toolcrib.server.mcp.request import Request
from toolcrib.server.mcp.rpc import RpcError
from toolcrib.server.mcp.seal import BrokenSeal, Seal

PARKED_FOR_ONE = 100
"""Calls of one asker that may wait at the same time."""

logger = logging.getLogger(__name__)

Outcome = JsonObject | RpcError


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    params: JsonObject
    answer: asyncio.Future[JsonObject]


class _Parked:
    """One call that was interrupted."""

    def __init__(self, request: Request) -> None:
        self.id = secrets.token_hex(16)
        self.request = request
        self.work = request.exchange
        self.questions: dict[str, _Question] = {}
        self.waiter: asyncio.Future[Outcome] | None = None
        self.outcome: Outcome | None = None
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def is_asking(self) -> bool:
        return any(not question.answer.done() for question in self.questions.values())


class Parking:
    """The calls that wait."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._calls: dict[str, _Parked] = {}
        self._keys = (str(number) for number in itertools.count(1))

    async def ask(self, request: Request, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the client of this call, and wait for the client to come back with the answer."""
        need = capability_for(method)
        if need not in request.message.meta[CAPABILITIES_KEY]:
            text = f"The client does not take {method}."
            data: JsonObject = {"requiredCapabilities": {need: {}} if need else {}}
            request.lacks = RpcError(MISSING_CAPABILITY, text, data)
            raise ProtocolError(MISSING_CAPABILITY, text, data)
        call = self._calls.get(request.parked_as or "") or self._park(request)
        key, question = next(self._keys), _Question(method, params, asyncio.get_running_loop().create_future())
        call.questions[key] = question
        try:
            await self._show(call)
            async with asyncio.timeout(ANSWER_WAIT):
                return await question.answer
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, f"The client did not answer within {ANSWER_WAIT:g} s.") from None
        finally:
            del call.questions[key]

    def end(self, request: Request, outcome: Outcome) -> None:
        """A parked call is done: whoever waits for it gets this, else whoever asks for it in time."""
        call = self._calls.get(request.parked_as or "")
        if call is None:
            return
        call.outcome = outcome
        if call.waiter is not None:
            self._forget(call)
            _settle(call.waiter, outcome)

    async def resume(self, call_id: str, request: Request) -> JsonObject:
        """Hand the client's answers to its call and wait for the next question or the result."""
        call = self._calls.get(call_id)
        if call is None or call.waiter is not None:
            raise RpcError(INVALID_PARAMS, "The request state does not hold any more.")
        self._hand_in(call, request.message.params.get("inputResponses"))
        if call.outcome is not None:
            self._forget(call)
            return _told(call.outcome)
        if call.is_asking:
            return self._wanted(call)
        # From now on what the call reports goes to the request that waits for it.
        call.request.exchange, call.request.progress_token = request.exchange, request.progress_token
        call.waiter = asyncio.get_running_loop().create_future()
        try:
            outcome = await call.waiter
        except asyncio.CancelledError:
            self._drop(call)  # the client has gone, and with it the only one who could ask again
            raise
        return _told(outcome)

    def close(self) -> None:
        """End every call that waits."""
        for call in list(self._calls.values()):
            self._drop(call)

    def _park(self, request: Request) -> _Parked:
        mine = sum(call.request.principal == request.principal for call in self._calls.values())
        if mine >= PARKED_FOR_ONE:
            raise ProtocolError(INTERNAL_ERROR, f"{PARKED_FOR_ONE} calls wait for answers already.")
        call = _Parked(request)
        request.parked_as = call.id
        self._calls[call.id] = call
        return call

    async def _show(self, call: _Parked) -> None:
        """Answer whoever waits with the open questions; if nobody does, the next one who asks gets them."""
        if call.waiter is not None:
            waiter, call.waiter = call.waiter, None
            _settle(waiter, self._wanted(call))
        elif not call.work.is_over:
            body = {"jsonrpc": "2.0", "id": call.request.message.id, "result": self._wanted(call)}
            await call.work.finish(orjson.dumps(body))

    def _wanted(self, call: _Parked) -> JsonObject:
        """The answer that asks, sealed for this asker and request; the call waits for so long and no longer."""
        self._start_clock(call)
        request = call.request
        open_questions = {key: one for key, one in call.questions.items() if not one.answer.done()}
        return {
            "resultType": "input_required",
            "inputRequests": {
                key: {"method": question.method, "params": question.params} for key, question in open_questions.items()
            },
            "requestState": self._seal.close({"parked": call.id}, request.bound_to, seconds=ANSWER_WAIT),
            META: {SERVER_INFO_KEY: request.face.server_info(request.principal)},
        }

    def _hand_in(self, call: _Parked, responses: Json) -> None:
        if not is_object(responses):
            return
        for key, question in call.questions.items():
            if key in responses and not question.answer.done():
                if not is_object(responses[key]):
                    raise RpcError(INVALID_PARAMS, f"params.inputResponses.{key} must be an object.")
                question.answer.set_result(responses[key])

    def _start_clock(self, call: _Parked) -> None:
        if call.expiry is not None:
            call.expiry.cancel()
        call.expiry = asyncio.get_running_loop().call_later(ANSWER_WAIT, self._drop, call)

    def _drop(self, call: _Parked) -> None:
        """End a call that nobody will ask for."""
        logger.info("ended a parked call of %s", call.request.principal.name)
        self._forget(call)
        call.work.withdraw()

    def _forget(self, call: _Parked) -> None:
        self._calls.pop(call.id, None)
        if call.expiry is not None:
            call.expiry.cancel()


def _settle(waiter: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not waiter.done():
        waiter.set_result(outcome)


def _told(outcome: Outcome) -> JsonObject:
    if isinstance(outcome, RpcError):
        raise outcome
    return outcome


def opened(seal: Seal, request: Request) -> JsonObject | None:
    """What the state that a client brings back says; None if it brings none."""
    state: Json = request.message.params.get("requestState")
    if state is None:
        return None
    try:
        if isinstance(state, str):
            return seal.open(state, request.bound_to)
    except BrokenSeal:
        pass
    raise RpcError(INVALID_PARAMS, "The request state was not given for this request, or not by this server.")
