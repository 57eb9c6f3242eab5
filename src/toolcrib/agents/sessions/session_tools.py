"""What one session's runtime can request: tools, permissions, and answers from a person.

Every call goes through the gate, including calls of the runtime's own tools. For these a placeholder runs in the gate:
it permits the run and then waits until the runtime reports the end. So intent and outcome are audited like any other
call.

Must never permit a call itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.sessions.questions import Emit, Questions
from toolcrib.agents.sessions.runtime import Offered, Permit, Result
from toolcrib.gate.admission import InSession
from toolcrib.gate.gate import Gate
from toolcrib.gate.policy import coding_tools
from toolcrib.gate.results import reading
from toolcrib.gate.results.fitting import ResultBudget, is_whole
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.sources import CallContext, ReportProgress, RunCall
from toolcrib.model.tools import CallResult, ToolRef

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[str, JsonObject, bytes], RunCall]
SETTLING: Final = 5.0
"""Seconds allowed for pending calls to end after their turn."""


class SessionBudgets(NamedTuple):
    """The estimated tokens of a result that a session's model receives; 0 means all. `whole` results are exceptions."""

    tokens: int = 0
    whole: Sequence[str] = ()

    def of(self, ref: ToolRef) -> ResultBudget | None:
        """Return the budget for the results of a tool."""
        if not self.tokens or is_whole(ref, self.whole):
            return None
        return ResultBudget(self.tokens, f"Read on with `{reading.READ}`.", takes_links=False, keeps_blobs=True)


WHOLE_RESULTS: Final = SessionBudgets()


class _OwnRun:
    """One run of a runtime's own tool: requested, possibly permitted, ended."""

    def __init__(self) -> None:
        self.permit: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self.recorded = anyio.Event()
        self.scope = anyio.CancelScope()

    def prepare(self, tool: str, arguments: JsonObject, encoded: bytes) -> RunCall:
        """Return the placeholder that runs in the gate instead of the tool."""

        async def run(context: CallContext) -> CallResult:
            if not self.permit.done():
                self.permit.set_result(Permit(True, arguments))
            return await self.end

        return run


class SessionTools:
    """Implements `SessionHost` while a session's runtime is open. `tasks` watches calls of the runtime's own tools."""

    def __init__(
        self,
        gate: Gate,
        emit: Emit,
        questions: Questions,
        principal: Callable[[], Principal],
        answer_timeout: Callable[[], float],
        tasks: TaskGroup,
        beyond_budget: Callable[[], Awaitable[str | None]] | None = None,
        leave_planning: Callable[[], None] = lambda: None,
        budgets: SessionBudgets = WHOLE_RESULTS,
    ) -> None:
        """`principal` returns the session's current principal, `answer_timeout` the seconds to wait for a person.

        `beyond_budget` counts a call and returns the reason if the budget is used up. `leave_planning` is called when a
        person has approved the plan. `budgets` shorten large results.
        """
        self._gate = gate
        self._emit = emit
        self._questions = questions
        self._current_principal = principal
        self._answer_timeout = answer_timeout
        self._beyond_budget = beyond_budget
        self._leave_planning = leave_planning
        self._budgets = budgets
        self._own: dict[str, _OwnRun] = {}
        self._running_calls = 0
        self._all_ended = anyio.Event()
        self._tasks = tasks

    def principal(self) -> Principal:
        """Return the session's current principal."""
        return self._current_principal()

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Add an event to the session's log."""
        self._emit(kind, data, parent)

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Call one of the crib's tools, or read on in a shortened result."""
        if offered.tool.ref == reading.TOOL.ref:
            return Result(await reading.read_on(self._gate.results, self.principal(), arguments), 0.0)
        return await self._call(offered.tool.ref, arguments, self._in_session(tool_call), progress)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Return whether one of the runtime's own tools may run."""
        run = self._own[tool_call] = _OwnRun()
        self._tasks.start_soon(self._run_own, run, ToolRef(coding_tools.SERVER, tool), arguments, tool_call)
        try:
            permit = await asyncio.shield(run.permit)
        except asyncio.CancelledError:
            run.scope.cancel()  # the runtime no longer waits for the answer
            raise
        if permit.allowed and tool == coding_tools.LEAVE_PLANNING:
            self._leave_planning()
        return permit

    async def _run_own(self, run: _OwnRun, ref: ToolRef, arguments: JsonObject, tool_call: str) -> None:
        with run.scope:
            try:
                how = self._in_session(tool_call, run.prepare)
                result = await self._call(ref, arguments, how)
                if not run.permit.done():
                    run.permit.set_result(Permit(False, arguments, _result_text(result.result)))
            finally:
                if not run.permit.done():
                    run.permit.set_result(Permit(False, arguments, "The call was cancelled."))
                self._own.pop(tool_call, None)
                run.recorded.set()

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Report that one of the runtime's own tools has ended."""
        run = self._own.get(tool_call)
        if run is not None:
            if not run.end.done():
                run.end.set_result(CallResult(is_error=is_error))
            await run.recorded.wait()

    async def refused(self, tool: ToolRef | str, arguments: JsonObject) -> None:
        """Record a call that the runtime refused itself."""
        ref = tool if isinstance(tool, ToolRef) else self._gate.ref_of_name("claude", tool) or _guess_ref(tool)
        try:
            await self._gate.refuse(self.principal(), ref, arguments, door="session")
        except ToolcribError as error:
            logger.warning("Could not record a refused call of %s: %s", ref, error)

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Ask the person the agent's questions."""
        answers: Mapping[str, str] | None = None

        def prepare(tool: str, arguments: JsonObject, encoded: bytes) -> RunCall:
            async def run(context: CallContext) -> CallResult:
                nonlocal answers
                put = self._questions.put(self.principal(), questions, tool_call, self._answer_timeout(), self._emit)
                answers = await put or None
                return CallResult()

            return run

        how = self._in_session(tool_call, prepare)
        await self._call(ToolRef(coding_tools.SERVER, coding_tools.QUESTION), {"questions": list(questions)}, how)
        return answers

    def _in_session(self, tool_call: str, prepare: Prepare | None = None) -> InSession:
        return InSession(tool_call, self._answer_timeout(), self._beyond_budget, prepare)

    async def _call(
        self, ref: ToolRef, arguments: JsonObject, how: InSession, progress: ReportProgress | None = None
    ) -> Result:
        started = perf_counter()
        self._running_calls += 1
        try:
            called = await self._gate.call(
                self.principal(),
                ref,
                arguments,
                door="session",
                progress=progress,
                session=how,
                budget=self._budgets.of(ref) if how.prepare is None else None,
            )
            return Result(called.result, called.duration_ms, called.edited)
        except ToolcribError as error:
            text = f"{error.message} {error.hint}" if error.hint else error.message
            return Result(CallResult.error(text), round((perf_counter() - started) * 1000, 3))
        finally:
            self._running_calls -= 1
            if not self._running_calls:
                all_ended, self._all_ended = self._all_ended, anyio.Event()
                all_ended.set()

    def cancel_runs(self) -> None:
        """Cancel pending approvals and own runs after an interrupt."""
        for run in tuple(self._own.values()):
            run.scope.cancel()

    async def settle(self) -> None:
        """Wait for the turn's calls to end, and cancel own runs without a reported end."""
        with anyio.move_on_after(SETTLING):
            for run in tuple(self._own.values()):
                if run.permit.done() and not run.end.done():
                    run.scope.cancel()  # the runtime will not report the end any more
            while self._running_calls:
                await self._all_ended.wait()


def _guess_ref(name: str) -> ToolRef:
    """Return the reference to record for a name that no tool has."""
    server, mark, tool = name.removeprefix("mcp__").partition("__")
    return ToolRef(server, tool) if mark and name.startswith("mcp__") else ToolRef(coding_tools.SERVER, name)


def _result_text(result: CallResult) -> str:
    return " ".join(str(block["text"]) for block in result.content if block.get("type") == "text") or "Refused."
