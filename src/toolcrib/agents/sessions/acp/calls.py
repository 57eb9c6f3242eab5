"""The calls of an agent during a turn: the crib's tools, which arrive at the endpoint, and its own, if permitted.

A call of a crib's tool arrives twice: the agent announces it on its pipe and makes it over the network. Both are
matched here, so that approvals and events refer to the announced call. Permitting the agent to make it is safe: the
gate decides when the call arrives.

Must never let the agent's own tool run without the host's permission, nor with other arguments than permitted.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from toolcrib.agents.sessions.acp.mapping import AcpCall, AcpEmission, AcpMapper, AcpOutcome
from toolcrib.agents.sessions.runtime import Offered, Permit, SessionHost
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef

logger = logging.getLogger(__name__)

TIMEOUT: Final = 1.0
"""Seconds to wait for the announcement of a call that already arrived."""
SETTLING: Final = 5.0
CANCELLED: Final[JsonObject] = {"outcome": {"outcome": "cancelled"}}
"""The answer to a permission request that will no longer be decided."""
_CHANGED: Final = "A person approved the call with other arguments. Repeat it with exactly these: {}"


class AcpCalls:
    """The calls of one conversation."""

    def __init__(
        self, host: SessionHost, mapper: AcpMapper, offered: Mapping[ToolRef, Offered], name: Callable[[ToolRef], str]
    ) -> None:
        """`offered` are the crib's tools of this session; `name` returns a tool's name at the endpoint."""
        self._host = host
        self._mapper = mapper
        self._offered = offered
        self._name = name
        self._permitted: dict[str, float] = {}
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()
        self._reported = anyio.Event()
        self._is_open = False

    def begin(self) -> None:
        """Start a turn; calls are accepted from now on."""
        self._is_open = True

    def emit(self, emissions: Iterable[AcpEmission]) -> None:
        """Emit events to the host."""
        for kind, data, parent in emissions:
            self._host.emit(kind, data, parent)

    async def take(self, update: JsonObject) -> None:
        """Process an update; if it ends a permitted own call, the outcome is in the audit log on return."""
        id = str(update.get("toolCallId"))
        is_over = update.get("status") in ("completed", "failed")
        started = self._permitted.pop(id, None) if is_over else None
        call = self._mapper.call(id)
        if started is not None and call is not None and call.outcome is None:
            call.outcome = AcpOutcome(_since(started))
        self.emit(self._mapper.take(update))
        self._wake_waiters()
        if started is not None:
            await self._host.ended(id, is_error=update.get("status") == "failed")

    async def call(self, ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None) -> CallResult:
        """Handle a call of a crib's tool that arrived over the network."""
        offered = self._offered.get(ref)
        if offered is None or not self._is_open:
            await self._host.refused(ref, arguments)
            why = "was not offered to this session" if offered is None else "cannot be called between two messages"
            return CallResult.error(f"{ref} {why}.")
        result = CallResult.error("The call was cancelled.")
        async with self._cancellable():
            call = await self._find_call(offered, arguments)
            made = await self._host.call(offered, arguments, call.id, progress)
            result = made.result if made.result.is_final else _UNANSWERABLE
            call.outcome = AcpOutcome(made.duration_ms, result)
            self.emit(self._mapper.result(call))
            result = made.for_model if made.result.is_final else _UNANSWERABLE
        return result

    async def _find_call(self, offered: Offered, arguments: JsonObject) -> AcpCall:
        """Return the announced call that matches, else a new one."""
        call = self._mapper.announced(offered, arguments, exactly=True)
        with anyio.move_on_after(TIMEOUT):
            while call is None:
                await self._reported.wait()
                call = self._mapper.announced(offered, arguments, exactly=True)
        call = call or self._mapper.announced(offered, arguments, exactly=False)
        call, emissions = self._mapper.make(call, offered, arguments, self._name(offered.tool.ref))
        self.emit(emissions)
        return call

    async def permission(self, params: JsonObject) -> JsonObject:
        """Answer the agent's permission request for a call."""
        announced: Json = params.get("toolCall")
        options = [each for each in params["options"] if is_object(each)] if is_array(params.get("options")) else []
        if not is_object(announced) or not self._is_open:
            return _permission_answer(options, is_allowed=False)
        self.emit(self._mapper.asked(announced))
        self._wake_waiters()
        call = self._mapper.call(str(announced.get("toolCallId")))
        if call is None:
            return _permission_answer(options, is_allowed=False)
        if call.offered is not None:
            return _permission_answer(options, is_allowed=True)
        answer = CANCELLED
        async with self._cancellable():
            answer = _permission_answer(options, is_allowed=await self._permit(call, options))
        return answer

    async def _permit(self, call: AcpCall, options: list[JsonObject]) -> bool:
        tool, arguments = self._mapper.own_call(call)
        if not _of_kind(options, "allow_once"):
            logger.warning("The agent has no option to allow %s once, so the call is denied.", tool)
            return False
        permit = await self._host.permit(tool, arguments, call.id)
        if permit.allowed and permit.arguments == arguments:
            self._permitted[call.id] = perf_counter()
            return True
        if permit.allowed:
            await self._host.ended(call.id, is_error=True)
        call.outcome = AcpOutcome(0.0, CallResult.error(_edit_note(permit) if permit.allowed else permit.reason))
        return False

    def cancel(self) -> None:
        """Cancel everything that is running or waiting for a person, after an interrupt."""
        self._is_open = False
        for scope in tuple(self._running):
            scope.cancel()

    async def settle(self, why: str) -> None:
        """End the turn: cancel running calls, wait for them, and close open items."""
        self.cancel()
        with anyio.move_on_after(SETTLING):
            while self._running:
                await self._ended.wait()
        while self._permitted:
            await self._host.ended(self._permitted.popitem()[0], is_error=True)
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

    def _wake_waiters(self) -> None:
        reported, self._reported = self._reported, anyio.Event()
        reported.set()


_UNANSWERABLE: Final = CallResult.error("The tool requests input beyond its arguments, which sessions do not support.")


def _edit_note(permit: Permit) -> str:
    return _CHANGED.format(dumps(permit.arguments).decode())


def _of_kind(options: list[JsonObject], kind: str) -> str | None:
    return next((str(each.get("optionId")) for each in options if each.get("kind") == kind), None)


def _permission_answer(options: list[JsonObject], *, is_allowed: bool) -> JsonObject:
    """Return the answer to a permission request; never one for later calls, which are decided individually."""
    kinds = ("allow_once",) if is_allowed else ("reject_once", "reject_always")
    chosen = next((option for kind in kinds if (option := _of_kind(options, kind)) is not None), None)
    return {"outcome": {"outcome": "selected", "optionId": chosen}} if chosen is not None else CANCELLED


def _since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)
