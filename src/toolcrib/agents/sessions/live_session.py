"""One running session: its queued prompts, its runtime's process, its state.

A prompt sent during a turn waits for the end of that turn. The process starts with the first prompt and is ended after
an idle time; the next prompt starts a new one that resumes the conversation. If new tools are available between two
turns, the process is replaced in the same way.

Invariant: at most one turn and one process at a time.
"""

import logging
import math
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import anyio

from toolcrib.agents.sessions.event_log import Recorder, SessionLog, ignore
from toolcrib.agents.sessions.questions import Questions
from toolcrib.agents.sessions.runtime import Brief, Conversation, Runtime, RuntimeDetails
from toolcrib.agents.sessions.session_tools import SessionBudgets, SessionTools
from toolcrib.gate.approvals.approvals import LONGEST_WAIT, WAIT
from toolcrib.gate.gate import Gate
from toolcrib.model.errors import CODES, Conflict, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import (
    Failure,
    ServerHealth,
    Session,
    SessionEvent,
    SessionEventKind,
    SessionState,
    Spent,
    TurnEnd,
)

TITLE_LENGTH: Final = 80
MOST_EXTENDED: Final = 3_600.0
"""Seconds by which one turn can be extended in total."""
STOPPING: Final = 10.0
"""Seconds allowed for ending a session's process."""
_INTERRUPT_SECONDS: Final = 10.0
"""Seconds allowed for interrupting a runtime."""
_OPENS: Final = {"approval_required": "approvalId", "question_prompt": "questionId"}
_CLOSES: Final = {"approval_resolved": "approvalId", "question_answered": "questionId"}
"""The events between which a session waits for a person, with the member that pairs them."""
_BROKEN: Final = Failure("internal", "The session failed unexpectedly. See the log.", CODES["internal"].hint)

logger = logging.getLogger(__name__)


class BudgetKeeper(Protocol):
    """Checks budgets before turns and calls, and records usage."""

    async def exhausted(self, session: Session) -> Failure | None:
        """Return the reason why a turn must not start, or None."""
        ...

    async def call(self, session: Session) -> str | None:
        """Count a call that is about to be made; return the reason if the budget forbids it."""
        ...

    async def charge(self, session: Session, spent: Spent) -> Failure | None:
        """Record a turn's usage; return a failure if calls were refused during the turn."""
        ...


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """Dependencies shared by all sessions of a crib. `starts` limits how many processes start at once.

    `health` returns the crib's view of a server's state, seen from a directory.
    """

    gate: Gate
    questions: Questions
    budget: BudgetKeeper
    recorder: Recorder
    runner: Callable[[str], Runtime]
    brief: Callable[[Session], Awaitable[Brief]]
    starts: anyio.CapacityLimiter
    idle_seconds: float
    on_change: Callable[[Session], None]
    on_mode: Callable[[str, Mode], None]
    health: Callable[[str, str], str]
    result_budgets: SessionBudgets


@dataclass(frozen=True, slots=True)
class _Prompt:
    message: str
    text: str


@dataclass(slots=True)
class _Process:
    """An open runtime and the brief it was started with."""

    conversation: Conversation
    host: SessionTools
    brief: Brief

    def fits(self, brief: Brief) -> bool:
        """Return whether the process can serve this brief: same prompt and own tools, and no new tools."""
        had = {(offered.server, offered.name) for offered in self.brief.tools}
        same = (self.brief.prompt, self.brief.own_tools) == (brief.prompt, brief.own_tools)
        return same and all((offered.server, offered.name) in had for offered in brief.tools)


class LiveSession:
    """A session with pending work or a process."""

    def __init__(self, session: Session, log: SessionLog, deps: SessionDeps) -> None:
        self.session = session
        self.log = log
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self._deps = deps
        self._prompts: deque[_Prompt] = deque()
        self._prompt_added = anyio.Event()
        self._waits_for: set[object] = set()
        self._process: _Process | None = None
        self._servers: tuple[ServerHealth, ...] = ()
        self._reported_states: dict[str, str] = {}
        self._is_answering = False
        self._is_interrupted = False
        self._is_dropped = False
        self._deadline = math.inf
        self._extended = 0.0
        self._is_late = False
        self._end_reason = "The session was stopped during a turn."
        self.is_abandoned = False
        log.on_fenced = self.abandon

    @property
    def is_busy(self) -> bool:
        """Return whether a turn is running or queued."""
        return self._is_answering or bool(self._prompts)

    @property
    def queued(self) -> int:
        """Return the number of queued prompts."""
        return len(self._prompts)

    @property
    def writes_as(self) -> str | None:
        """Return the id under which the runtime currently records the session."""
        conversation = self._process.conversation if self._process is not None else None
        return conversation.writes_as if isinstance(conversation, RuntimeDetails) else None

    def principal(self) -> Principal:
        """Return the session's current principal."""
        return self.session.principal

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> SessionEvent:
        """Add an event to the log; opening or answering a request to a person may change the state."""
        if self.is_abandoned:
            return SessionEvent(self.log.last, "", self.session.id, kind, data, parent)
        event = self.log.add(kind, data, parent)
        if kind in _OPENS:
            self._waits_for.add(data.get(_OPENS[kind]))
            if self._is_answering:
                self._set_state("waiting")
        elif kind in _CLOSES:
            self._waits_for.discard(data.get(_CLOSES[kind]))
            if self._is_answering and not self._waits_for and self.session.state == "waiting":
                self._set_state("running")
        return event

    def send(self, text: str) -> SessionEvent:
        """Queue a prompt."""
        # A replay has to give the same events every time.
        id = f"replay{self.log.numbered}" if self.session.is_replay else secrets.token_hex(8)
        prompt = _Prompt(f"msg_{id}", text)
        queued = self.is_busy
        self._prompts.append(prompt)
        if self.session.title is None:
            line = next(iter(text.strip().splitlines()), "")
            self.session = replace(self.session, title=line[:TITLE_LENGTH] or None)
        if not queued:
            self.session = replace(self.session, state="starting", reason=None)  # if killed now, a prompt is unanswered
        event = self.emit("user_message", {"messageId": prompt.message, "content": text, "queued": queued})
        self._save()
        self._wake()
        return event

    def requeue(self, message: str, text: str) -> None:
        """Queue a prompt that is in the log already, for a session that another crib left unfinished."""
        self._prompts.append(_Prompt(message, text))

    async def interrupt(self) -> bool:
        """Interrupt the running turn; return False if there is none. Queued prompts are still answered."""
        if not self._is_answering:
            return False
        self._is_interrupted = True
        if self._process is not None:
            self._process.host.cancel_runs()
            with anyio.move_on_after(_INTERRUPT_SECONDS):
                await self._process.conversation.interrupt()
        return True

    async def change(self, *, mode: Mode | None, model: str | None, title: str | None) -> None:
        """Change the given values; a new mode applies to the next call, a new model to the next model request."""
        before = self.session
        given = {"mode": mode, "model": model, "title": title}
        self.session = replace(before, **{key: value for key, value in given.items() if value is not None})
        if self._process is not None and self.session.mode != before.mode:
            await self._process.conversation.set_mode(self.session.mode)
        if self._process is not None and self.session.model != before.model:
            await self._process.conversation.set_model(self.session.model)
        self._set_state(self.session.state, self.session.reason)

    async def stop_process(self) -> None:
        """End the process, and wait for its end for a limited time."""
        self.scope.cancel()
        with anyio.move_on_after(STOPPING):
            await self.ended.wait()

    def stop(self, reason: str) -> None:
        """Set the reason for ending the session, and drop queued prompts."""
        self._end_reason = reason
        self._is_dropped = bool(self._prompts)
        self._prompts.clear()

    def abandon(self) -> None:
        """End the process and write nothing more: another crib runs the session, or may do so at any moment."""
        if not self.is_abandoned:
            logger.warning("Session %s is no longer run here; its process is ended.", self.session.id)
        self.is_abandoned = True
        self._prompts.clear()
        self.log.drop_unwritten()
        self.scope.cancel()

    async def run(self) -> None:
        """Answer prompts until idle for too long or cancelled."""
        try:
            with self.scope:
                while self._prompts:
                    await self._run_process()
        except Exception:  # boundary: a misbehaving runtime ends only its own session
            logger.exception("Session %s failed unexpectedly.", self.session.id)
            self._finish(TurnEnd("failed", failure=_BROKEN, is_alive=False))
        finally:
            self._process = None
            if self.log.on_fenced == self.abandon:
                self.log.on_fenced = ignore
            is_cut_short = self._is_dropped or (self.scope.cancel_called and self._prompts)
            if self._is_answering or is_cut_short:
                self._record_interruption()
            self.ended.set()

    async def _wait_for_prompt(self) -> bool:
        """Wait for a prompt, up to the idle time; return whether there is one."""
        with anyio.move_on_after(self._deps.idle_seconds):
            while not self._prompts:
                self._prompt_added = anyio.Event()
                await self._prompt_added.wait()
        return bool(self._prompts)

    def _wake(self) -> None:
        self._prompt_added.set()

    async def _run_process(self) -> None:
        """Answer prompts with one process until it is idle for too long, dies, or no longer fits the brief."""
        async with AsyncExitStack() as stack:
            stack.callback(self._release_process)
            while await self._wait_for_prompt():
                brief = await self._make_brief()
                if brief is None or not self._prompts:  # the brief failed, or `stop` dropped the prompts meanwhile
                    continue
                if self._process is not None and not self._process.fits(brief):
                    return
                prompt = self._prompts.popleft()
                self._is_answering, self._is_interrupted = True, False
                if not await self._answer(prompt, brief, stack):
                    return

    async def _make_brief(self) -> Brief | None:
        try:
            return await self._deps.brief(self.session)
        except ToolcribError as error:
            if self._prompts:  # otherwise `stop` dropped them meanwhile
                self._prompts.popleft()
                self._finish(TurnEnd("failed", failure=Failure(error.code, error.message, error.hint), is_alive=False))
            return None

    def _release_process(self) -> None:
        self._process = None

    async def _answer(self, prompt: _Prompt, brief: Brief, stack: AsyncExitStack) -> bool:
        """Run one turn; return whether the process can answer another one."""
        if (spent := self._budget_failure() or await self._deps.budget.exhausted(self.session)) is not None:
            self._finish(TurnEnd("limit", failure=spent))
            return True
        is_used = self._process is not None
        try:
            process = self._process or await self._open_process(brief, stack)
        except ToolcribError as error:
            self._finish(TurnEnd("failed", failure=Failure(error.code, error.message, error.hint), is_alive=False))
            return False
        if self._is_interrupted:
            self._finish(TurnEnd("interrupted"))
            return True
        self._set_state("running")
        begun = self.log.numbered
        end = await self._turn(process, prompt)
        if is_used and not end.is_alive and self.log.numbered == begun and not self._is_interrupted:
            self._prompts.appendleft(prompt)  # the process died while idle: retry with a new one
            return False
        await process.host.settle()
        if (spent := await self._deps.budget.charge(self.session, end.spent)) is not None:
            end = replace(end, reason="limit", failure=spent)
        with anyio.move_on_after(_INTERRUPT_SECONDS):
            seen = await process.conversation.servers() if end.is_alive else ()
            self._reported_states = {server.name: server.state for server in seen}
        self._finish(end)
        return end.is_alive

    def _leave_planning(self) -> None:
        """Switch from plan to default mode, after a person approved the plan."""
        self.session = replace(self.session, mode="default")
        self._deps.on_mode(self.session.id, self.session.mode)
        self._set_state(self.session.state)

    def _budget_failure(self) -> Failure | None:
        most = self.session.limits.cost_usd
        if most is None or self.session.spent.cost_usd < most:
            return None
        return Failure("session.limit", f"The budget of the session, {most:g} USD, is used up.")

    async def _open_process(self, brief: Brief, stack: AsyncExitStack) -> _Process:
        self._set_state("starting")
        runner = self._deps.runner(self.session.runner)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        deps = self._deps
        host = SessionTools(
            deps.gate,
            self.emit,
            deps.questions,
            self.principal,
            self._answer_timeout,
            tasks,
            self._beyond_budget,
            self._leave_planning,
            deps.result_budgets,
            brief.listing,
        )
        async with self._deps.starts:
            conversation = await stack.enter_async_context(runner.open(brief, host))
        self._process = _Process(conversation, host, brief)
        if conversation.runtime is not None:
            self.session = replace(self.session, runtime=conversation.runtime, is_fork_due=False)
        return self._process

    async def _beyond_budget(self) -> str | None:
        return await self._deps.budget.call(self.session)

    def _answer_timeout(self) -> float:
        """Return the seconds to wait for a person; longer while one reads the session."""
        return LONGEST_WAIT if self.log.readers else WAIT

    async def _turn(self, process: _Process, prompt: _Prompt) -> TurnEnd:
        """Run a turn within its time limit; interrupt it with reason `limit` when the deadline passes."""
        seconds = self.session.limits.seconds
        self._deadline = math.inf if seconds is None else anyio.current_time() + seconds
        self._is_late, self._extended = False, 0.0
        end = TurnEnd("interrupted")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_in_time)
            end = await process.conversation.turn(prompt.text)
            tasks.cancel_scope.cancel()
        if not self._is_late:
            return end
        late = Failure("session.limit", "The turn reached its time limit and was ended.")
        return replace(end, reason="limit", failure=late)

    async def _end_in_time(self) -> None:
        while (left := self._deadline - anyio.current_time()) > 0:  # noqa: ASYNC110 the deadline may move meanwhile
            await anyio.sleep(left)
        self._is_late = True
        await self.interrupt()

    def extend(self, seconds: float) -> float:
        """Extend the running turn; return its remaining seconds, infinite without a limit.

        Raises `session.extend` if no turn is running, or if it would be extended by more than an hour in total.
        """
        if not self._is_answering:
            raise Conflict("session.extend", "No turn is running.")
        if self._extended + seconds > MOST_EXTENDED:
            left = (MOST_EXTENDED - self._extended) / 60
            message = f"A turn can be extended by {MOST_EXTENDED / 60:g} minutes in total; {left:g} are left."
            raise Conflict("session.extend", message)
        self._extended += seconds
        self._deadline += seconds
        return self._deadline - anyio.current_time()

    def _finish(self, end: TurnEnd) -> None:
        """Record the end of a turn and add its usage."""
        spent, more = self.session.spent, end.spent
        total = Spent(
            round(spent.cost_usd + more.cost_usd, 9),
            spent.input_tokens + more.input_tokens,
            spent.output_tokens + more.output_tokens,
            spent.turns + more.turns,
        )
        runtime = end.runtime or self.session.runtime
        is_fork_due = self.session.is_fork_due and end.runtime is None
        self.session = replace(self.session, spent=total, runtime=runtime, is_fork_due=is_fork_due)
        if end.failure is not None:
            self.emit("error", end.failure.to_json())
        self._is_answering = False
        data: JsonObject = {"reason": end.reason, "costUsd": more.cost_usd, "turns": more.turns}
        state, reason = _after(end)
        self._set_state(state, reason)
        self.emit("done", data)
        self._save()

    def _record_interruption(self) -> None:
        """Record that the session was stopped during a turn or before one could start."""
        self._is_answering = False
        self._set_state("interrupted", self._end_reason)
        self.emit("done", {"reason": "interrupted"})
        self._save()

    def _set_state(self, state: SessionState, reason: str | None = None) -> None:
        self.session = replace(self.session, state=state, reason=reason)
        self._servers = self._health()
        self.emit("session_status", status(self.session, self._servers, self._model()))
        self._save()

    def check_servers(self) -> None:
        """Publish a status event if the state of one of the session's servers changed."""
        if self._health() != self._servers:
            self._set_state(self.session.state, self.session.reason)

    def _health(self) -> tuple[ServerHealth, ...]:
        """Return the current state of the session's servers.

        If the crib has lost a server, that state wins over the runtime's view: the runtime only sees the crib, which is
        always reachable.
        """
        if self._process is None:
            return self._servers
        counted = Counter((offered.server, offered.tool.ref.server) for offered in self._process.brief.tools)
        return tuple(self._health_of(name, server, tools) for (name, server), tools in counted.items())

    def _health_of(self, name: str, server: str, tools: int) -> ServerHealth:
        state = self._deps.health(server, self.session.cwd)
        return ServerHealth(name, self._reported_states.get(name, state) if state == "connected" else state, tools)

    def _model(self) -> str | None:
        """Return the configured model, else the one that the runtime chose."""
        conversation = self._process.conversation if self._process is not None else None
        chosen = conversation.model if isinstance(conversation, RuntimeDetails) else None
        return self.session.model or chosen

    def _save(self) -> None:
        if self.is_abandoned:
            return
        self.session = replace(self.session, updated_at=datetime.now(UTC), last_seq=self.log.numbered)
        self._deps.recorder.change(self.session)
        self._deps.on_change(self.session)


def _after(end: TurnEnd) -> tuple[SessionState, str | None]:
    """Return the state after a turn, and the reason."""
    why = end.failure.message if end.failure is not None else None
    if end.reason != "failed":
        return "idle", why
    has_died = end.failure is not None and end.failure.code == "runner.died"
    return ("interrupted" if has_died else "failed"), why


def status(session: Session, servers: tuple[ServerHealth, ...] = (), model: str | None = None) -> JsonObject:
    """Return the data of a `session_status` event; `model` is the one in use if the session does not set one."""
    data: JsonObject = {
        "state": session.state,
        "mode": session.mode,
        "model": session.model or model,
        **session.spent.to_json(),
        "servers": [server.to_json() for server in servers],
    }
    return data if session.reason is None else {**data, "reason": session.reason}
