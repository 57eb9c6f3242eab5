"""One run of a schedule: claimed, made as a session with source `scheduler`, and what became of it kept.

Above: the schedules. Below: the sessions, the store. It must never begin a run that another crib has claimed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.schedules import Run, RunState, Schedule
from toolcrib.schedule.readiness import Readiness
from toolcrib.sessions import NewSession, Sessions
from toolcrib.store.engine import Store
from toolcrib.store.schedules import claim_run, end_run

_STATES: dict[str, RunState] = {
    "completed": "completed", "interrupted": "interrupted", "failed": "failed", "limit": "limit",
}  # fmt: skip
_LAST_WORDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runs:
    """Makes runs for one crib."""

    store: Store
    sessions: Sessions
    crib: str
    now: Callable[[], datetime]

    async def claim(self, schedule: Schedule, due_at: datetime, attempt: int = 1) -> Run | None:
        """A run that is this crib's to make; None if another crib has it."""
        run = Run(schedule.id, due_at, attempt, "running", self.now())
        return run if await claim_run(self.store, run, self.crib) else None

    async def leave_out(self, schedule: Schedule, due_at: datetime, reason: str) -> None:
        """Keep that a run was not made, and why."""
        now = self.now()
        run = Run(schedule.id, due_at, 1, "skipped", now, ended_at=now, reason=reason)
        await claim_run(self.store, run, self.crib)

    async def make(self, schedule: Schedule, run: Run, readiness: Readiness) -> Run:
        """Make a claimed run, and give it as it ended."""
        if not readiness.is_ready:
            reason = " ".join(problem.message for problem in readiness.problems)
            return await self._ended(replace(run, state="failed", reason=f"Not ready: {reason}"))
        try:
            run = await self._with_session(schedule, run)
            done = await self._spoken(schedule, run)
            state = _STATES.get(str(done.get("reason")), "failed")
            session = await self.sessions.get(run.session or "")
            return await self._ended(replace(run, state=state, reason=session.reason, cost_usd=session.spent.cost_usd))
        except ToolcribError as error:
            return await self._ended(replace(run, state="failed", reason=error.message))
        except BaseException:  # boundary: the crib stops; the session says so too, and the run is on record as that
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                await self._ended(replace(run, state="interrupted", reason="The crib stopped in the middle of it."))
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
        await end_run(self.store, run)
        return run

    async def _spoken(self, schedule: Schedule, run: Run) -> JsonObject:
        """The end of the turn that the prompt of a schedule makes."""
        id = run.session or ""
        log = await self.sessions.events(id)
        sent = await self.sessions.send(id, schedule.prompt)
        async for batch in log.follow(sent.seq, is_person=False):
            for event in batch:
                if event.kind == "done":
                    await self.sessions.close(id)
                    return event.data
        return {"reason": "interrupted"}

    async def _ended(self, run: Run) -> Run:
        run = replace(run, ended_at=self.now())
        await end_run(self.store, run)
        return run
