"""One run of a schedule: claim it, execute it as a session with source `scheduler`, and record the outcome.

Must never start a run that another crib has claimed.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from toolcrib.agents.schedules.readiness import Readiness
from toolcrib.agents.sessions.sessions import NewSession, Sessions
from toolcrib.model.errors import Conflict, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.schedules import Run, RunState, Schedule
from toolcrib.store.engine import Store
from toolcrib.store.schedules import claim_run, end_run

_STATES: dict[str, RunState] = {
    "completed": "completed", "interrupted": "interrupted", "failed": "failed", "limit": "limit",
}  # fmt: skip
_LAST_WORDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runs:
    """Executes runs for one crib."""

    store: Store
    sessions: Sessions
    crib: str
    now: Callable[[], datetime]
    may_write: Callable[[], bool] = lambda: True
    """Returns False once another crib may have the runs of this one."""

    async def claim(self, schedule: Schedule, due_at: datetime, attempt: int = 1) -> Run | None:
        """Claim a run for this crib; return None if another crib has it."""
        run = Run(schedule.id, due_at, attempt, "running", self.now())
        return run if await claim_run(self.store, run, self.crib) else None

    async def leave_out(self, schedule: Schedule, due_at: datetime, reason: str) -> None:
        """Record a skipped run and the reason."""
        now = self.now()
        run = Run(schedule.id, due_at, 1, "skipped", now, ended_at=now, reason=reason)
        await claim_run(self.store, run, self.crib)

    async def make(self, schedule: Schedule, run: Run, readiness: Readiness) -> Run:
        """Execute a claimed run and return it in its final state."""
        if not readiness.is_ready:
            reason = " ".join(problem.message for problem in readiness.problems)
            return await self._end_run(replace(run, state="failed", reason=f"Not ready: {reason}"))
        try:
            if run.session is None:
                run = await self._with_session(schedule, run)
            done = await self._send_prompt(schedule, run)
            state = _STATES.get(str(done.get("reason")), "failed")
            session = await self.sessions.get(run.session or "")
            return await self._end_run(
                replace(run, state=state, reason=session.reason, cost_usd=session.spent.cost_usd)
            )
        except ToolcribError as error:
            return await self._end_run(replace(run, state="failed", reason=error.message))
        except BaseException:  # boundary: the crib stops; record the run as interrupted, as its session does
            if not self.may_write():
                raise
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                await self._end_run(replace(run, state="interrupted", reason="The crib stopped during the run."))
            raise

    async def _with_session(self, schedule: Schedule, run: Run) -> Run:
        new = NewSession(
            "scheduler",
            schedule.cwd,
            schedule.agent,
            schedule.mode,
            schedule.model,
            schedule.name,
            limits=schedule.limits,
            creator=schedule.creator,
        )
        session = await self.sessions.create(new)
        run = replace(run, session=session.id)
        await end_run(self.store, run, self.crib)
        return run

    async def _send_prompt(self, schedule: Schedule, run: Run) -> JsonObject:
        """Send the schedule's prompt and return the data of the turn's `done` event.

        If another crib has sent the prompt already, only the end of the turn is waited for.
        """
        id = run.session or ""
        log = await self.sessions.events(id)
        after = 0 if log.last else (await self.sessions.send(id, schedule.prompt)).seq
        async for batch in log.follow(after, is_person=False):
            for event in batch:
                if event.kind == "done":
                    with suppress(Conflict):  # the crib that continued the session ends its process when it is idle
                        await self.sessions.close(id)
                    return event.data
        return {"reason": "interrupted"}

    async def _end_run(self, run: Run) -> Run:
        run = replace(run, ended_at=self.now())
        await end_run(self.store, run, self.crib)
        return run
