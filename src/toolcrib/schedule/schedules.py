"""All schedules of a crib: kept, followed, run when they are due.

The clock of the machine is looked at again at least every half minute, so a jump or a sleep of the machine only makes a
run late. Of what was missed meanwhile one run is made up for, or none. A run that another crib on the same database has
claimed is that crib's. A schedule that fails again and again is paused, with a notice.

Above: the doors, tools that manage schedules. Below: `cadence`, `readiness`, `runs`, the store. It must never run one
that is paused, and never begin the same due run twice.
"""

import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.errors import Conflict, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.schedules import Run, Schedule
from toolcrib.schedule.cadence import checked, following, latest_missed, spread
from toolcrib.schedule.readiness import Readiness, ReadinessCheck
from toolcrib.schedule.runs import Runs
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
)

LOOK_AGAIN: Final = timedelta(seconds=30)
LATE: Final = timedelta(minutes=2)
"""A run that is due for longer than that was missed."""
MOST_FAILURES: Final = 3
"""Failed runs in a row after which a schedule is paused."""
LONGEST: Final = timedelta(days=1)
"""A run of another crib that says no longer than that it goes on is believed, unless its limit is another."""
FIRST_RETRY: Final = timedelta(minutes=1)
"""Between the end of a run and its first retry; each further one waits twice as long."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is, and how to wait: tests have their own."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep_until: Callable[[datetime], Awaitable[None]] = lambda moment: _sleep_until(moment)


class Schedules:
    """`async with Schedules(…) as schedules`: they are followed for as long as this is open.

    Without `on_time` nothing is begun by itself: whoever stays for a moment only would cut every run short.
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
        on_time: bool = True,
    ) -> None:
        self._store = store
        self._on_time = on_time
        self._runs = runs
        self._check = check
        self._publish = publish
        self._clock = clock
        self._crib = crib
        self._running: dict[str, int] = {}
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._news = anyio.Event()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        if self._on_time:
            await self._take_up_lost()
            self._tasks.start_soon(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def list(self) -> Sequence[Schedule]:
        """All of them, by name."""
        return await load_schedules(self._store)

    async def get(self, id: str) -> Schedule:
        """One of them; raises `schedule.unknown`."""
        found = await load_schedule(self._store, id)
        if found is None:
            raise NotFound("schedule.unknown", f"There is no schedule {id!r}.")
        return found

    async def add(self, schedule: Schedule) -> Schedule:
        """Keep a new one, from now on. Raises `schedule.cadence` for a time that cannot be followed."""
        id = schedule.id or secrets.token_hex(4)
        kept = self._timed(replace(schedule, id=id, cadence=checked(schedule.cadence)))
        await save_schedule(self._store, kept)
        self._changed(kept)
        return kept

    async def replace(self, schedule: Schedule) -> Schedule:
        """Change one as a whole; its time begins anew. Raises as `add` and `get` do."""
        kept = self._timed(replace(schedule, cadence=checked(schedule.cadence)))
        return await self._revise(schedule.id, lambda _: kept)

    async def pause(self, id: str, reason: str | None = None, *, by: str | None = None) -> Schedule:
        """Let it rest; a run that goes on is not touched. `by` is the agent that wants it, if not a person."""
        return await self._revise(
            id, lambda kept: replace(kept, paused=True, reason=reason, paused_by=by, next_at=None)
        )

    async def resume(self, id: str) -> Schedule:
        """Follow it again, with its failures forgotten."""

        def followed(kept: Schedule) -> Schedule:
            return self._timed(replace(kept, paused=False, reason=None, paused_by=None, failures=0))

        return await self._revise(id, followed)

    async def remove(self, id: str) -> Schedule:
        """Remove one with its history; the sessions of its runs stay."""
        schedule = await self.get(id)
        await delete_schedule(self._store, id)
        self._changed(schedule)
        return schedule

    async def run_now(self, id: str) -> Run:
        """Begin a run now, whatever the time; gives it as it begins. Raises `schedule.running`."""
        schedule = await self.get(id)
        if self._running.get(id):
            raise Conflict("schedule.running", f"{schedule.name} is running already.")
        run = await self._runs.claim(schedule, self._clock.now())
        if run is None:
            raise Conflict("schedule.running", f"{schedule.name} was just begun elsewhere.")
        self._begin(schedule, run)
        return run

    async def history(self, id: str, limit: int = 50) -> Sequence[Run]:
        """The runs of a schedule, the newest first."""
        await self.get(id)
        return await load_runs(self._store, id, limit)

    async def last_runs(self) -> Mapping[str, Run]:
        """The newest run of each schedule that ever ran, by the schedule's id."""
        return {run.schedule: run for run in await load_last_runs(self._store)}

    async def readiness(self, schedule: Schedule) -> Readiness:
        """What stands in the way of a run now."""
        return await self._check.look(schedule)

    def _timed(self, schedule: Schedule) -> Schedule:
        """With its next moment, unless it rests."""
        moments = [] if schedule.paused else following(schedule.cadence, self._clock.now())
        return replace(schedule, next_at=moments[0] if moments else None)

    async def _revise(self, id: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        revised = await revise_schedule(self._store, id, change)
        if revised is None:
            raise NotFound("schedule.unknown", f"There is no schedule {id!r}.")
        self._changed(revised)
        return revised

    def _changed(self, schedule: Schedule) -> None:
        self._publish("config_changed", {"what": "schedule", "schedule": schedule.id})
        self._news.set()

    async def _take_up_lost(self) -> None:
        """Runs that were going on when this crib ended are unknown, and are made up for like missed ones."""
        for run in await load_running(self._store, crib=self._crib):
            lost = "The crib ended in the middle of it; how far it came is in its session."
            await end_run(self._store, replace(run, state="unknown", ended_at=self._clock.now(), reason=lost))
            schedule = await load_schedule(self._store, run.schedule)
            if schedule is not None and not schedule.paused and schedule.missed == "once":
                again = await self._runs.claim(schedule, run.due_at, run.attempt + 1)
                if again is not None:
                    self._begin(schedule, again)

    async def _follow(self) -> None:
        while True:
            self._news = anyio.Event()
            wake_at = self._clock.now() + LOOK_AGAIN
            try:
                wake_at = await self._look()
            except Exception:  # boundary: a look that fails is made again; nothing is begun by it
                logger.exception("Schedules could not be looked at.")
            async with anyio.create_task_group() as waiting:

                async def until_due(moment: datetime) -> None:
                    await self._clock.sleep_until(moment)
                    self._news.set()

                waiting.start_soon(until_due, wake_at)
                await self._news.wait()
                waiting.cancel_scope.cancel()

    async def _look(self) -> datetime:
        """Begin what is due; gives the moment until which nothing is."""
        now = self._clock.now()
        soonest = now + LOOK_AGAIN
        for schedule in await load_schedules(self._store):
            if schedule.paused or schedule.next_at is None:
                continue
            if schedule.next_at <= now:
                await self._due(schedule, schedule.next_at, now)
            else:
                soonest = min(soonest, schedule.next_at)
        return soonest

    async def _due(self, schedule: Schedule, due_at: datetime, now: datetime) -> None:
        """Settle one due moment, then go on to the next: in this order, since a crash between must not lose a run."""
        await self._settle(schedule, due_at, now)
        await revise_schedule(
            self._store, schedule.id, lambda kept: self._timed(kept) if kept.next_at == due_at else kept
        )

    async def _settle(self, schedule: Schedule, due_at: datetime, now: datetime) -> None:
        """Run it, or say why not."""
        if now - due_at > LATE:
            if schedule.missed == "skip":
                return await self._runs.leave_out(schedule, due_at, "No crib was there when it was due.")
            due_at = latest_missed(schedule.cadence, due_at, now)
        if schedule.overlap == "skip" and await self._goes_on(schedule, now):
            return await self._runs.leave_out(schedule, due_at, "The run before it still went on.")
        run = await self._runs.claim(schedule, due_at)
        if run is not None:
            self._begin(schedule, run)
        return None

    async def _goes_on(self, schedule: Schedule, now: datetime) -> bool:
        """Whether a run goes on here, or at another crib that has not been silent for too long."""
        if self._running.get(schedule.id):
            return True
        limit = schedule.limits.seconds
        since = now - (LONGEST if limit is None else timedelta(seconds=limit) + LATE)
        return any(run.started_at > since for run in await load_running(self._store, schedule=schedule.id))

    def _begin(self, schedule: Schedule, run: Run) -> None:
        self._running[schedule.id] = self._running.get(schedule.id, 0) + 1
        self._tasks.start_soon(self._run, schedule, run)

    async def _run(self, schedule: Schedule, run: Run) -> None:
        try:
            async with self._turns[schedule.id]:  # one that is due meanwhile and may wait, waits here
                await self._in_turn(schedule, run)
        except Exception:  # boundary: one run that breaks must not end the others
            logger.exception("A run of schedule %s broke.", schedule.id)
        finally:
            self._running[schedule.id] -= 1

    async def _in_turn(self, schedule: Schedule, run: Run) -> None:
        if schedule.jitter_seconds and run.attempt == 1:
            await self._clock.sleep_until(run.started_at + spread(schedule.jitter_seconds))
        ended = await self._runs.make(schedule, run, await self._check.look(schedule))
        while ended.state == "failed" and ended.attempt <= schedule.retries:
            await self._clock.sleep_until(
                (ended.ended_at or self._clock.now()) + FIRST_RETRY * 2 ** (ended.attempt - 1)
            )
            again = await self._runs.claim(schedule, run.due_at, ended.attempt + 1)
            if again is None:
                return
            ended = await self._runs.make(schedule, again, await self._check.look(schedule))
        await self._judge(schedule, ended)

    async def _judge(self, schedule: Schedule, run: Run) -> None:
        """Count failures in a row; too many pause the schedule, and a person is told."""

        def judged(kept: Schedule) -> Schedule:
            failures = kept.failures + 1 if run.state == "failed" else 0
            if failures < MOST_FAILURES or kept.paused:
                return replace(kept, failures=failures)
            reason = f"Paused after {failures} failed runs in a row. The last one: {run.reason}"
            return replace(kept, failures=failures, paused=True, reason=reason, next_at=None)

        changed = await revise_schedule(self._store, schedule.id, judged)
        if changed is None:
            return
        if changed.paused and run.state == "failed" and changed.failures == MOST_FAILURES:
            self._publish("notice", {"level": "warning", "message": f"Schedule {changed.name}: {changed.reason}"})
        self._changed(changed)


async def _sleep_until(moment: datetime) -> None:
    await anyio.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
