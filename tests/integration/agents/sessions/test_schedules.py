"""Schedules through a whole crib, with a clock that the test moves and a scripted runtime."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from toolcrib import Crib, Settings
from toolcrib.agents.schedules.schedules import Clock
from toolcrib.model.errors import Conflict, InvalidRequest
from toolcrib.model.json import Json
from toolcrib.model.schedules import Cadence, Run, Schedule
from toolcrib.store.sessions import SessionFilter
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

AT_NINE = Cadence(cron="0 9 * * *")
START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
SCRIPTS: dict[str, Json] = {
    "text": [{"blocks": [{"text": "done"}]}],
    "fail": [{"status": 500, "message": "broken"}],
    "hang": [{"hang_s": 600}],
    "ping": [{"blocks": [{"tool": "mcp__toolcrib__ping", "input": {}}]}, {"blocks": [{"text": "done"}]}],
}


class ManualClock:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.time = START
        self._passed = timedelta()
        self._moved = anyio.Event()
        self._steps: dict[int, timedelta] = {}
        self._reads = 0

    def now(self) -> datetime:
        time = self.time
        self._reads += 1
        self.time += self._steps.pop(self._reads, timedelta())
        return time

    def step_after(self, reads: int, by: timedelta) -> None:
        """Step the clock after this many further reads."""
        self._steps[self._reads + reads] = by

    async def sleep(self, span: timedelta) -> None:
        """Sleep for a span of elapsed time; stepping the clock does not change that."""
        wake_at = self._passed + span
        while self._passed < wake_at:
            await self._moved.wait()

    def move(self, **by: float) -> None:
        """Let time pass."""
        self._passed += timedelta(**by)
        self.step(**by)

    def step(self, **by: float) -> None:
        """Step the clock without time passing."""
        self.time += timedelta(**by)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def open_crib(
    home: Path, manual_clock: ManualClock, *, database: str | None = None, on_time: bool = True
) -> AsyncGenerator[Crib]:
    """Open a crib on this home that uses the manual clock."""
    (home / "user").mkdir(parents=True, exist_ok=True)
    settings = Settings(home=home / "crib", port=0, default_cwd=home / "user", database_url=database)
    clock = Clock(manual_clock.now, manual_clock.sleep)
    environment = bare_environment(home / "user")
    async with Crib(settings, environment=environment, clock=clock, on_time=on_time) as crib:
        runner = PlayedRunner(SCRIPTS)
        runner.name = "claude"
        crib.runners.add(runner)
        yield crib


@pytest.fixture
async def crib(tmp_path: Path, manual_clock: ManualClock) -> AsyncIterator[Crib]:
    async with open_crib(tmp_path, manual_clock) as crib:
        yield crib


async def test_due_run_is_a_session_of_the_scheduler(crib: Crib, manual_clock: ManualClock) -> None:
    schedule = await crib.schedules.add(nightly(crib))
    assert schedule.next_at == START.replace(hour=9)

    manual_clock.move(minutes=61)
    (run,) = await wait_for_runs(crib, schedule.id, 1)
    assert (run.state, run.due_at) == ("completed", START.replace(hour=9))
    (session,) = await crib.sessions.list(SessionFilter(agent="reviewer"))
    assert (session.id, session.source, session.title) == (run.session, "scheduler", "Nightly")
    assert (await crib.schedules.get(schedule.id)).next_at == START.replace(day=3, hour=9)


@pytest.mark.parametrize("back", [timedelta(hours=1), timedelta(days=400)])
async def test_interval_continues_after_the_clock_went_back(
    crib: Crib, manual_clock: ManualClock, back: timedelta
) -> None:
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(every_seconds=600)))
    manual_clock.move(minutes=11)
    await wait_for_runs(crib, schedule.id, 1)
    manual_clock.step(seconds=-back.total_seconds())
    await eventually(partial(comes_due_within, crib, schedule.id, manual_clock, timedelta(minutes=10)))
    manual_clock.move(minutes=11)
    runs = await wait_for_runs(crib, schedule.id, 2)
    assert sorted(run.due_at for run in runs)[0] <= manual_clock.time


@pytest.mark.parametrize("reads", [1, 2, 3])
async def test_clock_going_back_during_the_check_delays_no_run(
    crib: Crib, manual_clock: ManualClock, reads: int
) -> None:
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(every_seconds=600)))
    manual_clock.step_after(reads, timedelta(days=-400))
    crib.schedules.look_again()

    async def is_due_at_the_new_time() -> bool:
        is_due = await comes_due_within(crib, schedule.id, manual_clock, timedelta(minutes=10))
        return is_due and manual_clock.time < START

    await eventually(is_due_at_the_new_time)


async def test_daily_run_is_not_repeated_after_the_clock_went_back(crib: Crib, manual_clock: ManualClock) -> None:
    schedule = await crib.schedules.add(nightly(crib))
    manual_clock.move(minutes=61)
    await wait_for_runs(crib, schedule.id, 1)
    manual_clock.step(minutes=-30)
    await eventually(partial(comes_due_within, crib, schedule.id, manual_clock, timedelta(hours=1)))
    manual_clock.move(minutes=40)
    await eventually(partial(due_after, crib, schedule.id, START.replace(day=3)))
    assert len(await crib.schedules.history(schedule.id)) == 1
    manual_clock.move(days=1)
    assert [run.state for run in await wait_for_runs(crib, schedule.id, 2)] == ["completed", "completed"]


async def test_clock_going_back_while_no_crib_runs_delays_no_run(tmp_path: Path, manual_clock: ManualClock) -> None:
    async with open_crib(tmp_path, manual_clock) as crib:
        schedule = await crib.schedules.add(nightly(crib))
    manual_clock.step(days=-700)
    async with open_crib(tmp_path, manual_clock) as crib:
        await eventually(partial(due_within, crib, schedule.id, manual_clock, timedelta(days=1)))
        manual_clock.move(days=1)
        await wait_for_runs(crib, schedule.id, 1)


async def due_within(crib: Crib, id: str, manual_clock: ManualClock, span: timedelta) -> bool:
    next_at = (await crib.schedules.get(id)).next_at
    return next_at is not None and next_at <= manual_clock.time + span


async def comes_due_within(crib: Crib, id: str, manual_clock: ManualClock, span: timedelta) -> bool:
    """Let a second pass, so that a check in progress is followed by one that sees the new time."""
    manual_clock.move(seconds=1)
    return await due_within(crib, id, manual_clock, span)


async def due_after(crib: Crib, id: str, moment: datetime) -> bool:
    next_at = (await crib.schedules.get(id)).next_at
    return next_at is not None and next_at > moment


async def test_call_that_needs_approval_is_refused_in_a_scheduled_run(crib: Crib, manual_clock: ManualClock) -> None:
    schedule = await crib.schedules.add(nightly(crib, script="ping"))
    await crib.schedules.run_now(schedule.id)
    (run,) = await wait_for_runs(crib, schedule.id, 1)

    results = [e async for e in crib.sessions.transcript(run.session or "") if e.kind == "tool_result"]
    assert [event.data["isError"] for event in results] == [True]


async def test_overlapping_run_is_skipped(crib: Crib, manual_clock: ManualClock) -> None:
    schedule = await crib.schedules.add(nightly(crib, script="hang", cadence=Cadence(every_seconds=3600)))
    manual_clock.move(minutes=61)
    await wait_for_session(crib, schedule.id)
    manual_clock.move(minutes=60)

    runs = await wait_for_runs(crib, schedule.id, 2)
    assert [run.state for run in runs] == ["skipped", "running"]
    assert "still in progress" in (runs[0].reason or "")
    with pytest.raises(Conflict, match="already running"):
        await crib.schedules.run_now(schedule.id)


async def test_overlapping_run_waits_with_overlap_wait(crib: Crib, manual_clock: ManualClock) -> None:
    hourly = nightly(crib, script="hang", cadence=Cadence(every_seconds=3600))
    schedule = await crib.schedules.add(replace(hourly, overlap="wait"))
    manual_clock.move(minutes=61)
    await wait_for_session(crib, schedule.id)
    manual_clock.move(minutes=60)
    await eventually(partial(has_runs, crib, schedule.id, 2))
    waiting, first = await crib.schedules.history(schedule.id)
    assert (waiting.session, waiting.state) == (None, "running")

    await eventually(partial(crib.sessions.interrupt, first.session or ""))  # its turn may not have begun
    await eventually(partial(have_sessions, crib, schedule.id, 2))
    assert [run.state for run in await crib.schedules.history(schedule.id)] == ["running", "interrupted"]


async def test_short_lived_crib_starts_no_due_runs(tmp_path: Path, manual_clock: ManualClock) -> None:
    async with open_crib(tmp_path, manual_clock) as crib:
        schedule = await crib.schedules.add(nightly(crib))
    manual_clock.move(days=3)
    async with open_crib(tmp_path, manual_clock, on_time=False) as crib:
        assert await crib.schedules.history(schedule.id) == []
        await crib.schedules.run_now(schedule.id)
        (run,) = await wait_for_runs(crib, schedule.id, 1)
        assert (run.state, run.due_at) == ("completed", manual_clock.time)
    async with open_crib(tmp_path, manual_clock) as crib:
        assert len(await wait_for_runs(crib, schedule.id, 2)) == 2


async def test_two_cribs_on_one_database_run_each_due_moment_once(
    tmp_path: Path, manual_clock: ManualClock, postgres_url: str
) -> None:
    async with (
        open_crib(tmp_path / "a", manual_clock, database=postgres_url) as first,
        open_crib(tmp_path / "b", manual_clock, database=postgres_url) as second,
    ):
        schedule = await first.schedules.add(nightly(first, cadence=Cadence(cron="*/5 * * * *")))
        for count in range(1, 9):
            manual_clock.move(minutes=5)
            await wait_for_runs(first, schedule.id, count)
            assert await second.schedules.history(schedule.id) == await first.schedules.history(schedule.id)
        runs = await first.schedules.history(schedule.id)
        assert [run.due_at for run in runs] == [START + timedelta(minutes=5 * step) for step in range(8, 0, -1)]
        assert {run.state for run in runs} == {"completed"}
        sessions = await second.sessions.list(SessionFilter(agent="reviewer"))
        assert {session.id for session in sessions} == {run.session for run in runs}


@pytest.mark.parametrize("reads", range(3, 7))
async def test_no_due_moment_is_lost_while_a_run_begins(crib: Crib, manual_clock: ManualClock, reads: int) -> None:
    every_minute = nightly(crib, cadence=Cadence(cron="* * * * *"))
    schedule = await crib.schedules.add(replace(every_minute, overlap="wait"))
    manual_clock.step_after(reads, timedelta(minutes=1))
    manual_clock.move(minutes=1)
    while manual_clock.time < START + timedelta(minutes=4):
        manual_clock.move(seconds=30)
        await eventually(partial(is_scheduled_after, crib, schedule.id, manual_clock.time))
    due = sorted(run.due_at for run in await crib.schedules.history(schedule.id))
    assert due == [START + timedelta(minutes=step) for step in range(1, len(due) + 1)]
    assert len(due) >= 4


async def test_ended_run_does_not_delay_the_next_while_failures_are_counted(
    crib: Crib, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count_forever(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(crib.schedules, "_count_failures", count_forever)
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(cron="*/5 * * * *")))
    manual_clock.move(minutes=5)
    await wait_for_runs(crib, schedule.id, 1)
    manual_clock.move(minutes=5)
    await eventually(partial(has_runs, crib, schedule.id, 2))
    newest, _ = await crib.schedules.history(schedule.id)
    assert newest.state == "running"


@pytest.mark.parametrize(("missed", "state"), [("once", "completed"), ("skip", "skipped")])
async def test_missed_runs_are_made_up_once_or_skipped(
    tmp_path: Path, manual_clock: ManualClock, missed: str, state: str
) -> None:
    async with open_crib(tmp_path, manual_clock) as crib:
        schedule = await crib.schedules.add(replace(nightly(crib), missed=missed))  # pyright: ignore[reportArgumentType]
    manual_clock.move(days=3)
    async with open_crib(tmp_path, manual_clock) as crib:
        (run,) = await wait_for_runs(crib, schedule.id, 1)

    assert run.state == state
    if missed == "once":
        assert run.due_at == START.replace(day=4, hour=9)


async def test_failed_run_is_retried_and_repeated_failures_pause_the_schedule(
    crib: Crib, manual_clock: ManualClock
) -> None:
    notices: list[str] = []
    crib.feed.listen(lambda event: notices.append(event.data["message"]) if event.kind == "notice" else None)
    schedule = await crib.schedules.add(nightly(crib, script="fail", retries=1))
    for day in range(3):
        manual_clock.move(hours=1 if day == 0 else 24, minutes=1)
        await wait_for_runs(crib, schedule.id, 2 * day + 1)
        manual_clock.move(minutes=2)
        await wait_for_runs(crib, schedule.id, 2 * day + 2)
        await eventually(partial(has_failed, crib, schedule.id, day + 1))
    await eventually(lambda: is_paused(crib, schedule.id))
    runs = await crib.schedules.history(schedule.id)
    assert [run.attempt for run in runs] == [2, 1, 2, 1, 2, 1]
    paused = await crib.schedules.get(schedule.id)
    assert "3 consecutive failed runs" in (paused.reason or "")
    assert paused.next_at is None
    assert notices and "Nightly" in notices[0]
    assert not (await crib.schedules.resume(schedule.id)).paused


async def test_app_entry_of_the_crib_itself_leaves_its_tools_ready(tmp_path: Path, manual_clock: ManualClock) -> None:
    (tmp_path / "user").mkdir()
    state = {"mcpServers": {"toolcrib": {"type": "stdio", "command": "/usr/local/bin/toolcrib", "args": ["stdio"]}}}
    (tmp_path / "user" / ".claude.json").write_text(json.dumps(state))
    async with open_crib(tmp_path, manual_clock) as crib:
        schedule = await crib.schedules.add(
            replace(nightly(crib), mode="acceptEdits", tools=("toolcrib/ping", "crew/crib_list_agents"))
        )
        assert (await crib.schedules.readiness(schedule)).problems == ()


async def test_required_pattern_is_ready_if_one_matching_tool_can_run(crib: Crib) -> None:
    requiring = replace(nightly(crib), mode="acceptEdits", tools=("toolcrib/*",))
    assert (await crib.schedules.readiness(await crib.schedules.add(requiring))).problems == ()
    asking = await crib.schedules.add(replace(requiring, mode="default", tools=("toolcrib/*", "nowhere/*")))
    refused, missing = (await crib.schedules.readiness(asking)).problems
    assert "would be refused" in refused.message
    assert missing.message == "There is no tool 'nowhere/*'."


async def test_run_of_a_schedule_that_is_not_ready_fails_without_a_session(
    crib: Crib, manual_clock: ManualClock
) -> None:
    requiring = replace(nightly(crib), tools=("toolcrib/ping", "nowhere/tool"))
    schedule = await crib.schedules.add(requiring)
    readiness = await crib.schedules.readiness(schedule)

    assert [problem.code for problem in readiness.problems] == ["schedule.tool", "schedule.tool"]
    assert "has no person who could approve" in readiness.problems[0].message
    await crib.schedules.run_now(schedule.id)
    (run,) = await wait_for_runs(crib, schedule.id, 1)
    assert run.state == "failed"
    assert run.session is None
    assert "Not ready" in (run.reason or "")


async def test_run_lost_in_a_crash_is_unknown_and_made_up(tmp_path: Path, manual_clock: ManualClock) -> None:
    async with open_crib(tmp_path, manual_clock) as crib:
        schedule = await crib.schedules.add(nightly(crib))
        runs = crib.schedules._runs  # pyright: ignore[reportPrivateUsage] as after a kill right after the claim
        await runs.claim(schedule, START)
    async with open_crib(tmp_path, manual_clock) as crib:
        found = await wait_for_runs(crib, schedule.id, 2)

    assert [(run.state, run.attempt) for run in found] == [("completed", 2), ("unknown", 1)]


@pytest.mark.parametrize(
    ("cadence", "expected"),
    [
        (Cadence(cron="61 * * * *"), "not a cron expression"),
        (Cadence(cron="* * * * * *"), "five fields"),
        (Cadence(cron="0 9 * * *", timezone="Mars/Olympus"), "not a time zone"),
        (Cadence(cron="0 0 30 2 *"), "not a cron expression"),
        (Cadence(every_seconds=5), "at least 60"),
        (Cadence(), "exactly one"),
        (Cadence(cron="0 9 * * *", every_seconds=60), "exactly one"),
        (Cadence(at=datetime(2026, 1, 1)), "offset"),  # noqa: DTZ001 the missing time zone is the fault
    ],
)
async def test_invalid_cadence_is_refused_with_the_reason(crib: Crib, cadence: Cadence, expected: str) -> None:
    with pytest.raises(InvalidRequest, match=expected):
        await crib.schedules.add(nightly(crib, cadence=cadence))


def nightly(crib: Crib, script: str = "text", cadence: Cadence = AT_NINE, retries: int = 0) -> Schedule:
    cwd = str(crib.settings.default_cwd)
    return Schedule(
        "", "Nightly", "reviewer", f"Go. [[script:{script}]]", cwd, cadence, START, mode="default", retries=retries
    )


async def wait_for_runs(crib: Crib, id: str, count: int) -> Sequence[Run]:
    """Wait until there are this many runs and at most the newest is in progress."""
    with anyio.fail_after(20):
        while True:
            runs = await crib.schedules.history(id)
            finished = [run for run in runs if run.state != "running"]
            if (
                len(runs) >= count
                and len(finished) >= count - 1
                and (len(finished) == count or runs[0].state == "skipped")
            ):
                return runs
            await anyio.sleep(0.02)


async def wait_for_session(crib: Crib, id: str) -> None:
    async def has_session() -> bool:
        return any(run.session for run in await crib.schedules.history(id))

    await eventually(has_session)


async def has_runs(crib: Crib, id: str, count: int) -> bool:
    return len(await crib.schedules.history(id)) == count


async def is_scheduled_after(crib: Crib, id: str, moment: datetime) -> bool:
    next_at = (await crib.schedules.get(id)).next_at
    return next_at is not None and next_at > moment


async def have_sessions(crib: Crib, id: str, count: int) -> bool:
    return sum(run.session is not None for run in await crib.schedules.history(id)) == count


async def has_failed(crib: Crib, id: str, times: int) -> bool:
    return (await crib.schedules.get(id)).failures == times


async def is_paused(crib: Crib, id: str) -> bool:
    return (await crib.schedules.get(id)).paused


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(20):
        while not await condition():  # noqa: ASYNC110 there is no event for what the store has
            await anyio.sleep(0.02)
