"""What an agent calls while a turn runs: the crib's tools, which come in at the endpoint, and its own, if permitted.

A call of the crib's tool takes two ways at once: the agent announces it on its pipe and makes it over the network. Here
both meet, so that what a person is asked, and what is told of it, is the call that was announced. To let the agent make
it costs nothing: the gate decides when it comes in.

Above: `conversation`, and the endpoint through the session's secret. Below: `mapping`, the desk. It must never let a
tool of the agent's own run that the desk did not permit, nor with other arguments than it did.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.sessions.acp.mapping import Call, Emission, Mapper, Outcome
from toolcrib.sessions.runner import Desk, Offered

logger = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds to wait for an agent's word on a call that came in already, before it is told without."""
SETTLING: Final = 5.0
CANCELLED: Final[JsonObject] = {"outcome": {"outcome": "cancelled"}}
"""The answer to a question that nobody will decide any more."""
_CHANGED: Final = "It was approved with other arguments, which this agent cannot be given. Call it with those instead."


class Calls:
    """Those of one conversation."""

    def __init__(
        self, desk: Desk, mapper: Mapper, offered: Mapping[ToolRef, Offered], name: Callable[[ToolRef], str]
    ) -> None:
        """`offered` are the crib's tools of this session; `name` is what one is called at the endpoint."""
        self._desk = desk
        self._mapper = mapper
        self._offered = offered
        self._name = name
        self._permitted: dict[str, float] = {}
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()
        self._told = anyio.Event()
        self._is_open = False

    def begin(self) -> None:
        """A turn begins: from now on calls are made."""
        self._is_open = True

    def emit(self, emissions: Iterable[Emission]) -> None:
        """Tell events at the desk."""
        for kind, data, parent in emissions:
            self._desk.emit(kind, data, parent)

    async def take(self, update: JsonObject) -> None:
        """Take an update up; one that ends a call of the agent's own is on record when this is over."""
        id = str(update.get("toolCallId"))
        is_over = update.get("status") in ("completed", "failed")
        started = self._permitted.pop(id, None) if is_over else None
        call = self._mapper.call(id)
        if started is not None and call is not None and call.outcome is None:
            call.outcome = Outcome(_since(started))
        self.emit(self._mapper.take(update))
        self._tell_news()
        if started is not None:
            await self._desk.ended(id, is_error=update.get("status") == "failed")

    async def call(self, ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None) -> CallResult:
        """The agent calls one of the crib's tools over the network."""
        offered = self._offered.get(ref)
        if offered is None or not self._is_open:
            why = "was not offered to this session" if offered is None else "cannot be called between two messages"
            return CallResult.error(f"{ref} {why}.")
        result = CallResult.error("The call was given up.")
        async with self._cancellable():
            call = await self._announced(offered, arguments)
            made = await self._desk.call(offered, arguments, call.id, progress)
            result = made.result if made.result.is_final else _UNANSWERABLE
            call.outcome = Outcome(made.duration_ms, result)
            self.emit(self._mapper.result(call))
        return result

    async def _announced(self, offered: Offered, arguments: JsonObject) -> Call:
        """The call as the agent has announced it, else as it came in."""
        call = self._mapper.announced(offered, arguments, exactly=True)
        with anyio.move_on_after(PATIENCE):
            while call is None:
                await self._told.wait()
                call = self._mapper.announced(offered, arguments, exactly=True)
        call = call or self._mapper.announced(offered, arguments, exactly=False)
        call, emissions = self._mapper.make(call, offered, arguments, self._name(offered.tool.ref))
        self.emit(emissions)
        return call

    async def permission(self, params: JsonObject) -> JsonObject:
        """The agent asks whether it may make a call."""
        announced: Json = params.get("toolCall")
        options = [each for each in params["options"] if is_object(each)] if is_array(params.get("options")) else []
        if not is_object(announced) or not self._is_open:
            return _chosen(options, is_allowed=False)
        self.emit(self._mapper.asked(announced))
        self._tell_news()
        call = self._mapper.call(str(announced.get("toolCallId")))
        if call is None:
            return _chosen(options, is_allowed=False)
        if call.offered is not None:
            return _chosen(options, is_allowed=True)
        answer = CANCELLED
        async with self._cancellable():
            answer = _chosen(options, is_allowed=await self._permit(call, options))
        return answer

    async def _permit(self, call: Call, options: list[JsonObject]) -> bool:
        tool, arguments = self._mapper.own_call(call)
        if not _of_kind(options, "allow_once"):
            logger.warning("An agent offers no way to allow %s once; it is refused.", tool)
            return False
        permit = await self._desk.permit(tool, arguments, call.id)
        if permit.allowed and permit.arguments == arguments:
            self._permitted[call.id] = perf_counter()
            return True
        if permit.allowed:
            await self._desk.ended(call.id, is_error=True)
        call.outcome = Outcome(0.0, CallResult.error(_CHANGED if permit.allowed else permit.reason))
        return False

    def cancel(self) -> None:
        """The turn is interrupted: nothing that runs or waits for a person goes on."""
        self._is_open = False
        for scope in tuple(self._running):
            scope.cancel()

    async def settle(self, why: str) -> None:
        """The turn is over: what still runs is cancelled and waited for, what is open is closed."""
        self.cancel()
        with anyio.move_on_after(SETTLING):
            while self._running:
                await self._ended.wait()
        while self._permitted:
            await self._desk.ended(self._permitted.popitem()[0], is_error=True)
        self.emit(self._mapper.finish(why))

    @asynccontextmanager
    async def _cancellable(self) -> AsyncGenerator[None]:
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                yield
            finally:
                self._running.discard(scope)
                ended, self._ended = self._ended, anyio.Event()
                ended.set()

    def _tell_news(self) -> None:
        told, self._told = self._told, anyio.Event()
        told.set()


_UNANSWERABLE: Final = CallResult.error(
    "The tool asks for more than its arguments, which cannot be given in a session."
)


def _of_kind(options: list[JsonObject], kind: str) -> str | None:
    return next((str(each.get("optionId")) for each in options if each.get("kind") == kind), None)


def _chosen(options: list[JsonObject], *, is_allowed: bool) -> JsonObject:
    """The answer to a question: never one that would hold for later calls, which are decided each by itself."""
    kinds = ("allow_once",) if is_allowed else ("reject_once", "reject_always")
    chosen = next((option for kind in kinds if (option := _of_kind(options, kind)) is not None), None)
    return {"outcome": {"outcome": "selected", "optionId": chosen}} if chosen is not None else CANCELLED


def _since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)
