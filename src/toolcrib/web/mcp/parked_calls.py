"""Calls that wait for their client's answers in the modern era.

When a server asks something during a call, the original request is answered with the question (`input_required`) and a
sealed state, while the call continues in its task. The client repeats the request with its answers. They are passed to
the call, and the new request waits for the next question or the result. Uninterrupted calls cost nothing extra.

Must never resume a call for another principal, or keep a call without a time limit.
"""

import asyncio
import itertools
import logging
import secrets
from dataclasses import dataclass

from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.jsonrpc import ANSWER_WAIT, RpcError, capability_for
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    META,
    MISSING_CAPABILITY,
    SERVER_INFO_KEY,
)
from toolcrib.model.sources import ProtocolError
from toolcrib.web.mcp.request import McpRequest
from toolcrib.web.mcp.sealed_state import BrokenSeal, StateSeal

PARKED_FOR_ONE = 100
"""Parked calls allowed per principal."""

logger = logging.getLogger(__name__)

Outcome = JsonObject | RpcError


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    params: JsonObject
    answer: asyncio.Future[JsonObject]


class _Parked:
    """One interrupted call."""

    def __init__(self, request: McpRequest) -> None:
        self.id = secrets.token_hex(16)
        self.request = request
        self.work = request.response
        self.questions: dict[str, _Question] = {}
        self.waiter: asyncio.Future[Outcome] | None = None
        self.outcome: Outcome | None = None
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def is_asking(self) -> bool:
        return any(not question.answer.done() for question in self.questions.values())


class ParkedCalls:
    """The parked calls."""

    def __init__(self, seal: StateSeal, node: str | None = None) -> None:
        """`node` is this node of a cluster, which the sealed state names."""
        self._seal = seal
        self._place: JsonObject = {} if node is None else {"node": node}
        self._calls: dict[str, _Parked] = {}
        self._keys = (str(number) for number in itertools.count(1))

    async def ask(self, request: McpRequest, method: str, params: JsonObject) -> JsonObject:
        """Ask the client of this call a server's question and wait for the answer."""
        if request.candidate is not None:
            await request.candidate.until_settled()
        if request.task is not None:
            return await request.task.ask(method, params)
        need = capability_for(method)
        if need not in request.message.meta[CAPABILITIES_KEY]:
            text = f"The client does not support {method}."
            data: JsonObject = {"requiredCapabilities": {need: {}} if need else {}}
            request.missing_capability = RpcError(MISSING_CAPABILITY, text, data)
            raise ProtocolError(MISSING_CAPABILITY, text, data)
        call = self._calls.get(request.parked_as or "") or self._park(request)
        key, question = next(self._keys), _Question(method, params, asyncio.get_running_loop().create_future())
        call.questions[key] = question
        try:
            await self._send_questions(call)
            async with asyncio.timeout(ANSWER_WAIT):
                return await question.answer
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, f"The client did not answer within {ANSWER_WAIT:g} s.") from None
        finally:
            del call.questions[key]

    def end(self, request: McpRequest, outcome: Outcome) -> None:
        """Deliver the outcome of a parked call to the waiting request, or keep it for the next one until it expires."""
        call = self._calls.get(request.parked_as or "")
        if call is None:
            return
        call.outcome = outcome
        if call.waiter is not None:
            self._forget(call)
            _settle(call.waiter, outcome)

    async def resume(self, call_id: str, request: McpRequest) -> JsonObject:
        """Pass the client's answers to its call and wait for the next question or the result."""
        call = self._calls.get(call_id)
        if call is None or call.waiter is not None:
            raise RpcError(INVALID_PARAMS, "The request state has expired.")
        self._deliver_answers(call, request.message.params.get("inputResponses"))
        if call.outcome is not None:
            self._forget(call)
            return _unwrap(call.outcome)
        if call.is_asking:
            return self._input_required(call)
        # From now on, the call reports progress to the request that waits for it.
        call.request.response, call.request.progress_token = request.response, request.progress_token
        call.waiter = asyncio.get_running_loop().create_future()
        try:
            outcome = await call.waiter
        except asyncio.CancelledError:
            self._drop(call)  # the client disconnected, and only it could resume the call
            raise
        return _unwrap(outcome)

    def close(self) -> None:
        """End every parked call."""
        for call in list(self._calls.values()):
            self._drop(call)

    def _park(self, request: McpRequest) -> _Parked:
        mine = sum(call.request.principal == request.principal for call in self._calls.values())
        if mine >= PARKED_FOR_ONE:
            raise ProtocolError(INTERNAL_ERROR, f"Too many calls are waiting for answers (limit {PARKED_FOR_ONE}).")
        call = _Parked(request)
        request.parked_as = call.id
        self._calls[call.id] = call
        return call

    async def _send_questions(self, call: _Parked) -> None:
        """Answer the waiting request with the open questions. Without one, the next request gets them."""
        if call.waiter is not None:
            waiter, call.waiter = call.waiter, None
            _settle(waiter, self._input_required(call))
        elif not call.work.is_over:
            body = {"jsonrpc": "2.0", "id": call.request.message.id, "result": self._input_required(call)}
            await call.work.finish(dumps(body))

    def _input_required(self, call: _Parked) -> JsonObject:
        """Return the `input_required` result, sealed for this principal and request, and restart the timeout."""
        self._start_clock(call)
        request = call.request
        open_questions = {key: one for key, one in call.questions.items() if not one.answer.done()}
        return {
            "resultType": "input_required",
            "inputRequests": {
                key: {"method": question.method, "params": question.params} for key, question in open_questions.items()
            },
            "requestState": self._seal.close({"parked": call.id, **self._place}, request.bound_to, seconds=ANSWER_WAIT),
            META: {SERVER_INFO_KEY: request.mcp_view.server_info(request.principal)},
        }

    def _deliver_answers(self, call: _Parked, responses: Json) -> None:
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
        """End a call that can no longer be resumed."""
        logger.info("ended a parked call of %s", call.request.principal.name)
        self._forget(call)
        call.work.cancel()

    def _forget(self, call: _Parked) -> None:
        self._calls.pop(call.id, None)
        if call.expiry is not None:
            call.expiry.cancel()


def _settle(waiter: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not waiter.done():
        waiter.set_result(outcome)


def _unwrap(outcome: Outcome) -> JsonObject:
    if isinstance(outcome, RpcError):
        raise outcome
    return outcome


def open_state(seal: StateSeal, request: McpRequest) -> JsonObject | None:
    """Return the content of the client's sealed state, or None if it sent none. Raises `RpcError` if invalid."""
    state: Json = request.message.params.get("requestState")
    if state is None:
        return None
    try:
        if isinstance(state, str):
            return seal.open(state, request.bound_to)
    except BrokenSeal:
        pass
    raise RpcError(INVALID_PARAMS, "The request state does not belong to this request.")
