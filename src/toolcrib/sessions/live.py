"""One session while it is at work: its prompts in a row, its runtime's process, its state.

A prompt that comes during a turn waits for its end. The process is started for the first prompt, stays for the next
ones, and is let go when none comes for a while; the next prompt starts another one that goes on where this one was.
When there are new tools for the session between two turns, its process is renewed in the same way.

Above: the manager. Below: a runner, the desk, the record. It must never have two turns, or two processes, at once.
"""

import logging
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import anyio

from toolcrib.errors import CODES, Conflict, ToolcribError
from toolcrib.gate import Gate
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
from toolcrib.policy.approvals import LONGEST_WAIT, WAIT
from toolcrib.sessions.budget import Budget
from toolcrib.sessions.desk import SessionDesk
from toolcrib.sessions.log import Recorder, SessionLog
from toolcrib.sessions.questions import Questions
from toolcrib.sessions.runner import Brief, Conversation, Runner

TITLE_LENGTH: Final = 80
MOST_EXTENDED: Final = 3_600.0
"""Seconds by which one turn can be made longer."""
_LAST_WORDS: Final = 10.0
"""Seconds in which a runtime is told to stop before it is ended."""
_OPENS: Final = {"approval_required": "approvalId", "question_prompt": "questionId"}
_CLOSES: Final = {"approval_resolved": "approvalId", "question_answered": "questionId"}
"""The events between which a session waits for a person, and what says which of them belong together."""
_BROKEN: Final = Failure("internal", "The session failed unexpectedly; it was logged.", CODES["internal"].hint)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class House:
    """What all sessions of a crib have in common. `starts` is how many processes may start at once."""

    gate: Gate
    questions: Questions
    budget: Budget
    recorder: Recorder
    runner: Callable[[str], Runner]
    brief: Callable[[Session], Awaitable[Brief]]
    starts: anyio.CapacityLimiter
    idle_seconds: float
    on_change: Callable[[Session], None]


@dataclass(frozen=True, slots=True)
class _Prompt:
    message: str
    text: str


@dataclass(slots=True)
class _Process:
    """A runtime that is open, and what it was begun with."""

    conversation: Conversation
    desk: SessionDesk
    brief: Brief

    def fits(self, brief: Brief) -> bool:
        """Whether what a session begins with now is no more than what this one was begun with."""
        had = {(offered.server, offered.name) for offered in self.brief.tools}
        same = (self.brief.prompt, self.brief.own_tools) == (brief.prompt, brief.own_tools)
        return same and all((offered.server, offered.name) in had for offered in brief.tools)


class LiveSession:
    """A session that has something to do, or a process."""

    def __init__(self, session: Session, log: SessionLog, house: House) -> None:
        self.session = session
        self.log = log
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self._house = house
        self._prompts: deque[_Prompt] = deque()
        self._news = anyio.Event()
        self._waits_for: set[object] = set()
        self._process: _Process | None = None
        self._servers: tuple[ServerHealth, ...] = ()
        self._is_answering = False
        self._is_interrupted = False
        self._deadline = math.inf
        self._extended = 0.0
        self._is_late = False

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or waits to."""
        return self._is_answering or bool(self._prompts)

    @property
    def queued(self) -> int:
        """How many prompts wait."""
        return len(self._prompts)

    @property
    def has_process(self) -> bool:
        """Whether its runtime is open."""
        return self._process is not None

    def principal(self) -> Principal:
        """Who the session is now."""
        return self.session.principal

    def tell(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> SessionEvent:
        """Put an event on record; one that asks or answers a person may change the state."""
        event = self.log.tell(kind, data, parent)
        if kind in _OPENS:
            self._waits_for.add(data.get(_OPENS[kind]))
            if self._is_answering:
                self._become("waiting")
        elif kind in _CLOSES:
            self._waits_for.discard(data.get(_CLOSES[kind]))
            if self._is_answering and not self._waits_for and self.session.state == "waiting":
                self._become("running")
        return event

    def send(self, text: str) -> SessionEvent:
        """Put a prompt in the row."""
        prompt = _Prompt(f"msg_{secrets.token_hex(8)}", text)
        queued = self.is_busy
        self._prompts.append(prompt)
        if self.session.title is None:
            line = next(iter(text.strip().splitlines()), "")
            self.session = replace(self.session, title=line[:TITLE_LENGTH] or None)
        event = self.tell("user_message", {"messageId": prompt.message, "content": text, "queued": queued})
        self._keep()
        self._wake()
        return event

    async def interrupt(self) -> bool:
        """End the running turn; false if there is none. What waits in the row is answered all the same."""
        if not self._is_answering:
            return False
        self._is_interrupted = True
        if self._process is not None:
            self._process.desk.give_up()
            with anyio.move_on_after(_LAST_WORDS):
                await self._process.conversation.interrupt()
        return True

    async def change(self, *, mode: Mode | None, model: str | None, title: str | None) -> None:
        """Change what is given; the mode counts from the next call on, the model from the next thought."""
        before = self.session
        given = {"mode": mode, "model": model, "title": title}
        self.session = replace(before, **{key: value for key, value in given.items() if value is not None})
        if self._process is not None and self.session.mode != before.mode:
            await self._process.conversation.set_mode(self.session.mode)
        if self._process is not None and self.session.model != before.model:
            await self._process.conversation.set_model(self.session.model)
        self._become(self.session.state, self.session.reason)

    async def run(self) -> None:
        """Answer prompts until none comes for a while, or until cancelled."""
        try:
            with self.scope:
                while self._prompts:
                    await self._one_process()
        except Exception:  # boundary: a runtime that breaks its promises ends its own session and nothing else
            logger.exception("Session %s failed in a way it should not.", self.session.id)
            self._finish(TurnEnd("failed", failure=_BROKEN, is_alive=False))
        finally:
            self._process = None
            if self._is_answering:
                self._broken_off()
            self.ended.set()

    async def _prompted(self) -> bool:
        """Wait for a prompt for as long as processes are kept."""
        with anyio.move_on_after(self._house.idle_seconds):
            while not self._prompts:
                self._news = anyio.Event()
                await self._news.wait()
        return bool(self._prompts)

    def _wake(self) -> None:
        self._news.set()

    async def _one_process(self) -> None:
        """Answer with one process, until it is idle for long, has died, or does not fit any more."""
        async with AsyncExitStack() as stack:
            stack.callback(self._let_go)
            while await self._prompted():
                brief = await self._briefed()
                if brief is None:
                    continue
                if self._process is not None and not self._process.fits(brief):
                    return
                prompt = self._prompts.popleft()
                self._is_answering, self._is_interrupted = True, False
                if not await self._answer(prompt, brief, stack):
                    return

    async def _briefed(self) -> Brief | None:
        try:
            return await self._house.brief(self.session)
        except ToolcribError as error:
            self._prompts.popleft()
            self._finish(TurnEnd("failed", failure=Failure(error.code, error.message, error.hint), is_alive=False))
            return None

    def _let_go(self) -> None:
        self._process = None

    async def _answer(self, prompt: _Prompt, brief: Brief, stack: AsyncExitStack) -> bool:
        """One turn; gives whether the process can answer another one."""
        if (spent := self._overspent() or await self._house.budget.exhausted(self.session)) is not None:
            self._finish(TurnEnd("limit", failure=spent))
            return True
        is_used = self._process is not None
        try:
            process = self._process or await self._opened(brief, stack)
        except ToolcribError as error:
            self._finish(TurnEnd("failed", failure=Failure(error.code, error.message, error.hint), is_alive=False))
            return False
        if self._is_interrupted:
            self._finish(TurnEnd("interrupted"))
            return True
        self._become("running")
        begun = self.log.numbered
        end = await self._turn(process, prompt)
        if is_used and not end.is_alive and self.log.numbered == begun and not self._is_interrupted:
            self._prompts.appendleft(prompt)  # it had died while nobody spoke to it: another one answers
            return False
        await process.desk.settled()
        if (spent := await self._house.budget.charge(self.session, end.spent)) is not None:
            end = replace(end, reason="limit", failure=spent)
        with anyio.move_on_after(_LAST_WORDS):
            self._servers = await process.conversation.servers() if end.is_alive else self._servers
        self._finish(end)
        return end.is_alive

    def _leave_planning(self) -> None:
        """A person let the agent go on from its plan: from now on it asks."""
        self.session = replace(self.session, mode="default")
        self._become(self.session.state)

    def _overspent(self) -> Failure | None:
        most = self.session.limits.cost_usd
        if most is None or self.session.spent.cost_usd < most:
            return None
        return Failure("session.limit", f"The session has used its budget of {most:g} USD.")

    async def _opened(self, brief: Brief, stack: AsyncExitStack) -> _Process:
        self._become("starting")
        runner = self._house.runner(self.session.runner)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        house = self._house
        desk = SessionDesk(
            house.gate,
            self.tell,
            house.questions,
            self.principal,
            self._patience,
            tasks,
            self._beyond_budget,
            self._leave_planning,
        )
        async with self._house.starts:
            conversation = await stack.enter_async_context(runner.open(brief, desk))
        self._process = _Process(conversation, desk, brief)
        if conversation.runtime is not None:
            self.session = replace(self.session, runtime=conversation.runtime, is_fork_due=False)
        return self._process

    def _beyond_budget(self) -> str | None:
        return self._house.budget.call(self.session)

    def _patience(self) -> float:
        """A session that somebody reads is waited for longer."""
        return LONGEST_WAIT if self.log.readers else WAIT

    async def _turn(self, process: _Process, prompt: _Prompt) -> TurnEnd:
        """The turn within its time; one that takes longer is interrupted, and that is its limit."""
        seconds = self.session.limits.seconds
        self._deadline = math.inf if seconds is None else anyio.current_time() + seconds
        self._is_late, self._extended = False, 0.0
        end = TurnEnd("interrupted")
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._end_in_time)
            end = await process.conversation.turn(prompt.text)
            beside.cancel_scope.cancel()
        if not self._is_late:
            return end
        late = Failure("session.limit", "The answer took longer than the session may take for one, and was ended.")
        return replace(end, reason="limit", failure=late)

    async def _end_in_time(self) -> None:
        while (left := self._deadline - anyio.current_time()) > 0:  # noqa: ASYNC110 the deadline may move meanwhile
            await anyio.sleep(left)
        self._is_late = True
        await self.interrupt()

    def extend(self, seconds: float) -> float:
        """Give the running turn more time; gives the seconds it has now, without end if it has no limit.

        Raises `session.extend` where no turn runs, or one would have been given more than an hour in all.
        """
        if not self._is_answering:
            raise Conflict("session.extend", "No turn is running.")
        if self._extended + seconds > MOST_EXTENDED:
            left = (MOST_EXTENDED - self._extended) / 60
            message = f"A turn is given {MOST_EXTENDED / 60:g} minutes more in all; of these {left:g} are left."
            raise Conflict("session.extend", message)
        self._extended += seconds
        self._deadline += seconds
        return self._deadline - anyio.current_time()

    def _finish(self, end: TurnEnd) -> None:
        """Put the end of a turn on record and take up what it has used."""
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
            self.tell("error", end.failure.to_json())
        self._is_answering = False
        data: JsonObject = {"reason": end.reason, "costUsd": more.cost_usd, "turns": more.turns}
        state, reason = _after(end)
        self._become(state, reason)
        self.tell("done", data)
        self._keep()

    def _broken_off(self) -> None:
        """The crib stops, or the session is closed, in the middle of a turn."""
        self._is_answering = False
        self._become("interrupted", "The session was stopped in the middle of a turn.")
        self.tell("done", {"reason": "interrupted"})
        self._keep()

    def _become(self, state: SessionState, reason: str | None = None) -> None:
        self.session = replace(self.session, state=state, reason=reason)
        self.tell("session_status", status(self.session, self._servers))
        self._keep()

    def _keep(self) -> None:
        self.session = replace(self.session, updated_at=datetime.now(UTC), last_seq=self.log.numbered)
        self._house.recorder.change(self.session)
        self._house.on_change(self.session)


def _after(end: TurnEnd) -> tuple[SessionState, str | None]:
    """The state a turn leaves behind, and why."""
    why = end.failure.message if end.failure is not None else None
    if end.reason != "failed":
        return "idle", why
    has_died = end.failure is not None and end.failure.code == "runner.died"
    return ("interrupted" if has_died else "failed"), why


def status(session: Session, servers: tuple[ServerHealth, ...] = ()) -> JsonObject:
    """Data of the event `session_status`."""
    data: JsonObject = {
        "state": session.state,
        "mode": session.mode,
        "model": session.model,
        **session.spent.to_json(),
        "servers": [server.to_json() for server in servers],
    }
    return data if session.reason is None else {**data, "reason": session.reason}
