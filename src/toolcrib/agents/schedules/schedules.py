"""All schedules of a crib: stores them and starts their runs when due.

The system clock is checked at least every 30 seconds, so a clock jump or suspend only delays a run. After the clock
went back, due times are recomputed. Missed runs are made up for once, or not at all, as configured. Cribs that share a
database use its clock and claim runs, so each run starts once. A schedule that keeps failing is paused, with a notice.

Must never run a paused schedule, and never start the same due run twice.
"""

import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.schedules.cadence import checked, following, latest_missed, spread
from toolcrib.agents.schedules.readiness import Readiness, ReadinessCheck
from toolcrib.agents.schedules.runs import Runs
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.schedules import Run, Schedule
from toolcrib.store.engine import Store
from toolcrib.store.schedules import (
    delete_schedule,
    end_run,
    load_last_runs,
    load_running,
    load_runs,
    load_schedule,
    load_schedules,
    revise_schedule,
    save_schedule,
    take_run,
)

if TYPE_CHECKING:
    from toolcrib.nodes.jobs import Jobs

LOOK_AGAIN: Final = timedelta(seconds=30)
LATE: Final = timedelta(minutes=2)
"""A run overdue by more than this counts as missed."""
MOST_FAILURES: Final = 3
"""Consecutive failed runs after which a schedule is paused."""
LONGEST: Final = timedelta(days=1)
"""Another crib's run older than this is considered dead, unless the schedule has its own time limit."""
FIRST_RETRY: Final = timedelta(minutes=1)
"""Delay between the end of a run and its first retry; doubles for each further retry."""

RUN_JOB: Final = "schedule_run"
_RETRY_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


async def _sleep(span: timedelta) -> None:
    await anyio.sleep(max(0.0, span.total_seconds()))


async def _no_source() -> None:
    """Do nothing: the system clock needs no synchronisation."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The current time and how to wait; replaced in tests. Cribs that share a database use its clock.

    Waits are spans of time, never moments: a clock set back between the two must not stretch a wait. `synchronise` is
    called before due times are compared.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[timedelta], Awaitable[None]] = _sleep
    synchronise: Callable[[], Awaitable[None]] = _no_source


class Schedules:
    """Manages schedules and starts due runs while open: `async with Schedules(…) as schedules`.

    With `on_time=False` no run starts automatically: a short-lived process would cut it short.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        check: ReadinessCheck,
        *,
        publish: Callable[[str, JsonObject], object],
        clock: Clock,
        crib: str,
        stop_switch: StopSwitch,
        on_time: bool = True,
        jobs: "Jobs | None" = None,
    ) -> None:
        """While `stop_switch` is set no run starts; runs due in the meantime count as missed.

        With `jobs`, any crib on the same database executes a run, and another one continues it if that crib dies.
        """
        self._jobs = jobs
        if jobs is not None:
            jobs.handle(RUN_JOB, self._execute)
        self._stop_switch = stop_switch
        self._store = store
        self._on_time = on_time
        self._runs = runs
        self._check = check
        self._publish = publish
        self._clock = clock
        self._crib = crib
        self._running: dict[str, int] = {}
        self._retrying: set[str] = set()
        """Schedules whose failed run waits here for its next attempt."""
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._news = anyio.Event()
        self._looked_at: datetime | None = None
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        await self._clock.synchronise()
        if self._on_time:
            await self.pause_revoked()
            if self._jobs is None:
                await self._take_up_lost()
            self._tasks.start_soon(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def list(self) -> Sequence[Schedule]:
        """Return all schedules, sorted by name."""
        return await load_schedules(self._store)

    async def get(self, id: str) -> Schedule:
        """Return the schedule; raises `schedule.unknown`."""
        found = await load_schedule(self._store, id)
        if found is None:
            raise NotFound("schedule.unknown", f"There is no schedule {id!r}.")
        return found

    async def add(self, schedule: Schedule) -> Schedule:
        """Store a new schedule and start following it. Raises `schedule.cadence`."""
        id = schedule.id or secrets.token_hex(4)
        kept = self._with_due_time(replace(schedule, id=id, cadence=checked(schedule.cadence)))
        await save_schedule(self._store, kept)
        self._publish_change(kept)
        return kept

    async def replace(self, schedule: Schedule) -> Schedule:
        """Replace a schedule and recompute its next due time. Raises like `add` and `get`."""
        kept = self._with_due_time(replace(schedule, cadence=checked(schedule.cadence)))
        return await self._revise(schedule.id, lambda _: kept)

    async def pause(self, id: str, reason: str | None = None, *, by: str | None = None) -> Schedule:
        """Pause a schedule; a run in progress continues. `by` is the pausing agent, None for a person."""
        return await self._revise(
            id, lambda kept: replace(kept, paused=True, reason=reason, paused_by=by, next_at=None)
        )

    async def resume(self, id: str) -> Schedule:
        """Resume a schedule and reset its failure count."""

        def followed(kept: Schedule) -> Schedule:
            return self._with_due_time(replace(kept, paused=False, reason=None, paused_by=None, failures=0))

        return await self._revise(id, followed)

    async def remove(self, id: str) -> Schedule:
        """Delete a schedule and its history; the sessions of its runs are kept."""
        schedule = await self.get(id)
        await delete_schedule(self._store, id)
        self._publish_change(schedule)
        return schedule

    async def run_now(self, id: str) -> Run:
        """Start a run immediately and return it. Raises `schedule.running`, `crib.stopped`."""
        self._stop_switch.check()
        schedule = await self.get(id)
        if await self._is_running(schedule, self._clock.now()):
            raise Conflict("schedule.running", f"Schedule {schedule.name} is already running.")
        run = await self._runs.claim(schedule, self._clock.now())
        if run is None:
            raise Conflict("schedule.running", f"Another crib has just started schedule {schedule.name}.")
        self._begin(schedule, run)
        return run

    async def history(self, id: str, limit: int = 50) -> Sequence[Run]:
        """Return the runs of a schedule, newest first."""
        await self.get(id)
        return await load_runs(self._store, id, limit)

    async def last_runs(self) -> Mapping[str, Run]:
        """Return the newest run of each schedule by schedule id."""
        return {run.schedule: run for run in await load_last_runs(self._store)}

    async def readiness(self, schedule: Schedule) -> Readiness:
        """Return whether the schedule could run now."""
        return await self._check.look(schedule)

    def _with_due_time(self, schedule: Schedule, after: datetime | None = None) -> Schedule:
        """Return the schedule with its next due time after a moment, by default now; none while paused."""
        moments = [] if schedule.paused else following(schedule.cadence, after or self._clock.now())
        return replace(schedule, next_at=moments[0] if moments else None)

    async def _revise(self, id: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        revised = await revise_schedule(self._store, id, change)
        if revised is None:
            raise NotFound("schedule.unknown", f"There is no schedule {id!r}.")
        self._publish_change(revised)
        return revised

    def _publish_change(self, schedule: Schedule) -> None:
        self._publish("config_changed", {"what": "schedule", "schedule": schedule.id})
        self._news.set()

    async def _take_up_lost(self) -> None:
        """Mark runs that this crib left running as unknown, and make up for them like missed ones."""
        for run in await load_running(self._store, crib=self._crib):
            lost = "The crib stopped during the run. Its session shows how far it got."
            ended = replace(run, state="unknown", ended_at=self._clock.now(), reason=lost)
            await end_run(self._store, ended, self._crib)
            schedule = await load_schedule(self._store, run.schedule)
            if schedule is None or schedule.paused or self._stop_switch.is_stopped:
                continue
            if schedule.missed == "once":
                again = await self._runs.claim(schedule, run.due_at, run.attempt + 1)
                if again is not None:
                    self._begin(schedule, again)

    def look_again(self) -> None:
        """Check for due runs immediately."""
        self._news.set()

    async def _follow(self) -> None:
        while True:
            self._news = anyio.Event()
            wake_at = self._clock.now() + LOOK_AGAIN
            try:
                wake_at = await self._look()
            except Exception:  # boundary: a failed check starts nothing and is repeated
                logger.exception("Could not check the schedules.")
            async with anyio.create_task_group() as waiting:

                async def until_due(moment: datetime) -> None:
                    # The clock may have gone back during the check, which leaves `moment` far ahead.
                    await self._clock.sleep(min(moment - self._clock.now(), LOOK_AGAIN))
                    self._news.set()

                waiting.start_soon(until_due, wake_at)
                await self._news.wait()
                waiting.cancel_scope.cancel()

    async def _look(self) -> datetime:
        """Start all due runs; return when to check next."""
        await self._clock.synchronise()
        now = self._clock.now()
        soonest = now + LOOK_AGAIN
        if self._stop_switch.is_stopped:
            return soonest
        went_back, self._looked_at = self._looked_at is None or now < self._looked_at, now
        for kept in await load_schedules(self._store):
            if kept.paused or kept.next_at is None:
                continue
            schedule = await self._brought_forward(kept, now) if went_back else kept
            if schedule.next_at is None:
                continue
            next_at = schedule.next_at if schedule.next_at > now else await self._due(schedule, schedule.next_at, now)
            soonest = min(soonest, next_at or soonest)
        return soonest

    async def _brought_forward(self, schedule: Schedule, now: datetime) -> Schedule:
        """Return the schedule with its next due time recomputed.

        A due time computed before the clock went back may lie hours or years ahead. A run made before the step is
        already claimed, so it does not run again.
        """
        moments = following(schedule.cadence, now)
        planned = schedule.next_at
        if planned is None or not moments or moments[0] >= planned:
            return schedule
        logger.info("The clock went back: schedule %s is due at %s, not at %s.", schedule.id, moments[0], planned)
        brought = await revise_schedule(
            self._store,
            schedule.id,
            lambda kept: replace(kept, next_at=moments[0]) if kept.next_at == planned else kept,
        )
        return brought or replace(schedule, next_at=None)

    async def _due(self, schedule: Schedule, due_at: datetime, now: datetime) -> datetime | None:
        """Settle one due time, then advance to the next and return it.

        The order matters: a crash in between must not lose a run. The next one follows the settled moment, not the time
        when that was stored, or a slow database would skip runs.
        """
        await self._settle(schedule, due_at, now)
        settled = due_at if now - due_at <= LATE else now
        advanced = await revise_schedule(
            self._store,
            schedule.id,
            lambda kept: self._with_due_time(kept, settled) if kept.next_at == due_at else kept,
        )
        return None if advanced is None else advanced.next_at

    async def _settle(self, schedule: Schedule, due_at: datetime, now: datetime) -> None:
        """Start the run, or record why it was skipped."""
        if now - due_at > LATE:
            if schedule.missed == "skip":
                return await self._runs.leave_out(schedule, due_at, "Skipped: no crib was running when it was due.")
            due_at = latest_missed(schedule.cadence, due_at, now)
        if schedule.overlap == "skip" and await self._is_running(schedule, now):
            return await self._runs.leave_out(schedule, due_at, "Skipped: the previous run was still in progress.")
        run = await self._runs.claim(schedule, due_at)
        if run is not None:
            self._begin(schedule, run)
        return None

    async def _is_running(self, schedule: Schedule, now: datetime) -> bool:
        """Return whether a run is in progress, here or in another crib that is presumably alive.

        The database decides: a run that has ended there must not hold up the next one while this crib finishes it.
        """
        if schedule.id in self._retrying:
            return True
        limit = schedule.limits.seconds
        since = now - (LONGEST if limit is None else timedelta(seconds=limit) + LATE)
        is_here = self._running.get(schedule.id, 0) > 0
        return any(is_here or run.started_at > since for run in await load_running(self._store, schedule=schedule.id))

    async def take_over(self, crib: str) -> None:
        """Have the runs executed that a dead crib claimed; those that it handed to another one continue there."""
        for run in await load_running(self._store, crib=crib):
            await self._defer(run)

    async def _defer(self, run: Run) -> None:
        """Store the job that executes a run; retries until the database accepts it."""
        assert self._jobs is not None
        due_at = run.due_at.isoformat()
        arguments: JsonObject = {"schedule": run.schedule, "due_at": due_at, "attempt": run.attempt}
        key = f"{run.schedule} {due_at} {run.attempt}"
        while True:
            try:
                return await self._jobs.defer(RUN_JOB, arguments, lock=f"schedule:{run.schedule}", key=key)
            except Unavailable as error:
                logger.warning("Could not start a run of schedule %s, retrying: %s", run.schedule, error)
                await anyio.sleep(_RETRY_SECONDS)

    async def _execute(self, arguments: JsonObject) -> None:
        """Execute the run of a job, or continue it if the crib that had it is dead."""
        id, attempt = str(arguments["schedule"]), int(arguments["attempt"])
        due_at = datetime.fromisoformat(str(arguments["due_at"]))
        schedule = await load_schedule(self._store, id)
        run = await take_run(self._store, id, due_at, attempt, self._crib)
        if schedule is not None and run is not None:
            self._running[id] = self._running.get(id, 0) + 1
            await self._run(schedule, run)

    def _begin(self, schedule: Schedule, run: Run) -> None:
        if self._jobs is not None:
            self._tasks.start_soon(self._defer, run)
            return
        self._running[schedule.id] = self._running.get(schedule.id, 0) + 1
        self._tasks.start_soon(self._run, schedule, run)

    async def _run(self, schedule: Schedule, run: Run) -> None:
        try:
            async with self._turns[schedule.id]:  # with `overlap` other than skip, the next run waits here
                await self._in_turn(schedule, run)
        except Exception:  # boundary: one failing run must not affect the others
            logger.exception("A run of schedule %s failed unexpectedly.", schedule.id)
        finally:
            self._running[schedule.id] -= 1

    async def _in_turn(self, schedule: Schedule, run: Run) -> None:
        if schedule.jitter_seconds and run.attempt == 1 and run.session is None:
            await self._clock.sleep(spread(schedule.jitter_seconds))
        readiness = await self._check.look(schedule)
        ended = await self._runs.make(schedule, run, readiness)
        if readiness.revoked is not None:
            await self._pause_revoked(schedule, readiness.revoked)
            return
        while ended.state == "failed" and ended.attempt <= schedule.retries:
            self._retrying.add(schedule.id)
            try:
                await self._clock.sleep(FIRST_RETRY * 2 ** (ended.attempt - 1))
                again = await self._runs.claim(schedule, run.due_at, ended.attempt + 1)
            finally:
                self._retrying.discard(schedule.id)
            if again is None:
                return
            ended = await self._runs.make(schedule, again, await self._check.look(schedule))
        await self._count_failures(schedule, ended)

    async def pause_revoked(self) -> None:
        """Pause every schedule whose creator was revoked."""
        for schedule in await load_schedules(self._store):
            revoked = None if schedule.paused else await self._check.revoked(schedule)
            if revoked is not None:
                await self._pause_revoked(schedule, revoked)

    async def _pause_revoked(self, schedule: Schedule, revoked: str) -> None:
        """Pause a schedule whose creator was revoked, with a notice."""
        paused = await self.pause(schedule.id, f"Paused. {revoked}")
        self._publish("notice", {"level": "warning", "message": f"Schedule {paused.name}: {paused.reason}"})

    async def _count_failures(self, schedule: Schedule, run: Run) -> None:
        """Count consecutive failures; pause the schedule with a notice after too many."""

        def count_failure(kept: Schedule) -> Schedule:
            failures = kept.failures + 1 if run.state == "failed" else 0
            if failures < MOST_FAILURES or kept.paused:
                return replace(kept, failures=failures)
            reason = f"Paused after {failures} consecutive failed runs. Last reason: {run.reason}"
            return replace(kept, failures=failures, paused=True, reason=reason, next_at=None)

        changed = await revise_schedule(self._store, schedule.id, count_failure)
        if changed is None:
            return
        if changed.paused and run.state == "failed" and changed.failures == MOST_FAILURES:
            self._publish("notice", {"level": "warning", "message": f"Schedule {changed.name}: {changed.reason}"})
        self._publish_change(changed)
