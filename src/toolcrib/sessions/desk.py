"""The desk of one session: where its runtime asks for tools, for permission and for a person.

Every call takes the gate's one road, those of the runtime's own tools too: what stands for such a run says yes to the
runtime and then waits until it reports the end, so that intent and outcome are on record as for any other call.

Above: runners. Below: the gate, the questions, the session's record. It must never say yes itself.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from toolcrib.errors import ToolcribError
from toolcrib.gate import Gate, InSession
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.sources import CallContext, ReportProgress, RunCall
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.policy import coding
from toolcrib.sessions.questions import Questions, Tell
from toolcrib.sessions.runner import Offered, Permit, Result

Prepare: TypeAlias = Callable[[str, JsonObject, bytes], RunCall]
SETTLING: Final = 5.0
"""Seconds in which what a turn has begun comes to its end once the turn is over."""


class _OwnRun:
    """One run of a tool of the runtime's own: asked for, perhaps permitted, ended."""

    def __init__(self) -> None:
        self.permit: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self.recorded = anyio.Event()
        self.scope = anyio.CancelScope()

    def prepare(self, tool: str, arguments: JsonObject, encoded: bytes) -> RunCall:
        """Stands in for the tool's source at the gate."""

        async def run(context: CallContext) -> CallResult:
            if not self.permit.done():
                self.permit.set_result(Permit(True, arguments))
            return await self.end

        return run


class SessionDesk:
    """The desk while a session's runtime is open. `tasks` is where calls of the runtime's own tools are watched."""

    def __init__(
        self,
        gate: Gate,
        tell: Tell,
        questions: Questions,
        principal: Callable[[], Principal],
        patience: Callable[[], float],
        tasks: TaskGroup,
        beyond_budget: Callable[[], str | None] = lambda: None,
        leave_planning: Callable[[], None] = lambda: None,
    ) -> None:
        """`principal` is who the session is now; `patience` for how long a person is waited for now.

        `beyond_budget` counts a call, and gives why it must not be made where the agent has used up its budget;
        `leave_planning` is told that a person let the agent go on from its plan.
        """
        self._gate = gate
        self._tell = tell
        self._questions = questions
        self._principal = principal
        self._patience = patience
        self._beyond_budget = beyond_budget
        self._leave_planning = leave_planning
        self._own: dict[str, _OwnRun] = {}
        self._underway = 0
        self._quiet = anyio.Event()
        self._tasks = tasks

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Put an event on record."""
        self._tell(kind, data, parent)

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Call one of the crib's tools."""
        return await self._called(offered.tool.ref, arguments, self._in_session(tool_call), progress)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Ask whether one of the runtime's own tools may run."""
        run = self._own[tool_call] = _OwnRun()
        self._tasks.start_soon(self._run_own, run, ToolRef(coding.SERVER, tool), arguments, tool_call)
        try:
            permit = await asyncio.shield(run.permit)
        except asyncio.CancelledError:
            run.scope.cancel()  # nobody waits for the answer any more
            raise
        if permit.allowed and tool == coding.LEAVE_PLANNING:
            self._leave_planning()
        return permit

    async def _run_own(self, run: _OwnRun, ref: ToolRef, arguments: JsonObject, tool_call: str) -> None:
        with run.scope:
            try:
                how = self._in_session(tool_call, run.prepare)
                result = await self._called(ref, arguments, how)
                if not run.permit.done():
                    run.permit.set_result(Permit(False, arguments, _said(result.result)))
            finally:
                if not run.permit.done():
                    run.permit.set_result(Permit(False, arguments, "The call was given up."))
                self._own.pop(tool_call, None)
                run.recorded.set()

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """One of the runtime's own tools has ended."""
        run = self._own.get(tool_call)
        if run is not None:
            if not run.end.done():
                run.end.set_result(CallResult(is_error=is_error))
            await run.recorded.wait()

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Put the agent's questions to the person."""
        answers: Mapping[str, str] | None = None

        def prepare(tool: str, arguments: JsonObject, encoded: bytes) -> RunCall:
            async def run(context: CallContext) -> CallResult:
                nonlocal answers
                put = self._questions.put(self._principal(), questions, tool_call, self._patience(), self._tell)
                answers = await put or None
                return CallResult()

            return run

        how = self._in_session(tool_call, prepare)
        await self._called(ToolRef(coding.SERVER, coding.QUESTION), {"questions": list(questions)}, how)
        return answers

    def _in_session(self, tool_call: str, prepare: Prepare | None = None) -> InSession:
        return InSession(tool_call, self._patience(), self._beyond_budget, prepare)

    async def _called(
        self, ref: ToolRef, arguments: JsonObject, how: InSession, progress: ReportProgress | None = None
    ) -> Result:
        started = perf_counter()
        self._underway += 1
        try:
            called = await self._gate.call(
                self._principal(), ref, arguments, door="session", progress=progress, session=how
            )
            return Result(called.result, called.duration_ms)
        except ToolcribError as error:
            text = f"{error.message} {error.hint}" if error.hint else error.message
            return Result(CallResult.error(text), round((perf_counter() - started) * 1000, 3))
        finally:
            self._underway -= 1
            if not self._underway:
                quiet, self._quiet = self._quiet, anyio.Event()
                quiet.set()

    def give_up(self) -> None:
        """The turn is interrupted: what waits for a person or for a run of the runtime's own is withdrawn."""
        for run in tuple(self._own.values()):
            run.scope.cancel()

    async def settled(self) -> None:
        """The turn is over: what it began has ended soon, one way or the other."""
        with anyio.move_on_after(SETTLING):
            for run in tuple(self._own.values()):
                if run.permit.done() and not run.end.done():
                    run.scope.cancel()  # the runtime will not report the end any more
            while self._underway:
                await self._quiet.wait()


def _said(result: CallResult) -> str:
    return " ".join(str(block["text"]) for block in result.content if block.get("type") == "text") or "Refused."
