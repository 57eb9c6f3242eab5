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
from toolcrib.gate.gate import CallOutcome, Gate
from toolcrib.gate.policy import coding_tools
from toolcrib.gate.programs import code_tools
from toolcrib.gate.programs.planned_call import PROGRAM
from toolcrib.gate.programs.runner import ProgramRun
from toolcrib.gate.results import reading
from toolcrib.gate.results.fitting import ResultBudget, is_whole
from toolcrib.gate.search import search_tools
from toolcrib.model.agents import ListingMode
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.sources import CallContext, ReportProgress, RunCall
from toolcrib.model.tools import CallResult, Tool, ToolRef

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
_READS_ON: Final = frozenset({reading.TOOL.ref, ToolRef(reading.READ, "")})
"""`read_result`, offered and called through `call_tool`."""


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
        listing: ListingMode = "all",
    ) -> None:
        """`principal` returns the session's current principal, `answer_timeout` the seconds to wait for a person.

        `beyond_budget` counts a call and returns the reason if the budget is used up. `leave_planning` is called when a
        person has approved the plan. `budgets` shorten large results. `listing` is what the session is offered.
        """
        self._gate = gate
        self._emit = emit
        self._questions = questions
        self._current_principal = principal
        self._answer_timeout = answer_timeout
        self._beyond_budget = beyond_budget
        self._leave_planning = leave_planning
        self._budgets = budgets
        self._listing: ListingMode = listing
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
        """Call one of the crib's tools, read on in a shortened result, find tools, or run a program."""
        ref, how = offered.tool.ref, self._in_session(tool_call)
        if offered.tool in code_tools.tools_of(self._listing):
            if ref.tool != search_tools.CALL:
                return await self._measure(self._own_tool(ref.tool, arguments, how, progress))
            parsed = search_tools.parse_call(arguments)
            if isinstance(parsed, CallResult):
                return Result(parsed, 0.0)
            ref, arguments = parsed
        if ref in _READS_ON:
            return Result(await reading.read_on(self._gate.results, self.principal(), arguments), 0.0)
        return await self._call(ref, arguments, how, progress)

    async def _own_tool(
        self, name: str, arguments: JsonObject, how: InSession, progress: ReportProgress | None
    ) -> CallResult:
        """Find or describe tools, or run a program whose calls go through the gate."""
        gate, principal = self._gate, self.principal()
        if name == search_tools.FIND:
            return await code_tools.find(gate, principal, arguments, by_code=self._listing == "code")
        if name == code_tools.DESCRIBE:
            return code_tools.described(arguments, code_tools.functions(gate, principal))
        asked = code_tools.read_program(arguments)
        if isinstance(asked, CallResult):
            return asked
        run = ProgramRun(gate, gate.interpreter, principal, asked.code, door="session", progress=progress, session=how)
        result = await run.run(dry_run=asked.dry_run)
        if (budget := self._budgets.of(PROGRAM)) is None:
            return result
        fitted, digest = budget.fit(gate.results, principal, Tool(PROGRAM, "", {}), result)
        if digest is not None:
            await gate.results.share()
        return fitted

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
        called = self._gate.call(
            self.principal(),
            ref,
            arguments,
            door="session",
            progress=progress,
            session=how,
            budget=self._budgets.of(ref) if how.prepare is None else None,
        )
        return await self._measure(called)

    async def _measure(self, call: Awaitable[CallOutcome | CallResult]) -> Result:
        """Return the result of a call with its duration; a refusal is an error result."""
        started = perf_counter()
        self._running_calls += 1
        try:
            made = await call
            if isinstance(made, CallResult):
                return Result(made, round((perf_counter() - started) * 1000, 3))
            return Result(made.result, made.duration_ms, made.edited)
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
