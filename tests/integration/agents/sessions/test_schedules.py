"""Schedules through a whole crib, with a clock that the test moves and a runtime that plays scripts."""

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


class Hands:
    """A clock that moves when the test says so."""

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
        """Set the clock to another time once it was read so many times more."""
        self._steps[self._reads + reads] = by

    async def sleep(self, span: timedelta) -> None:
        """Sleep for a span, as a machine does: a step of the clock does not change that."""
        wake_at = self._passed + span
        while self._passed < wake_at:
            await self._moved.wait()

    def move(self, **by: float) -> None:
        """Let time pass."""
        self._passed += timedelta(**by)
        self.step(**by)

    def step(self, **by: float) -> None:
        """Set the clock to another time without any passing."""
        self.time += timedelta(**by)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


@pytest.fixture
def hands() -> Hands:
    return Hands()


@asynccontextmanager
async def opened(
    home: Path, hands: Hands, *, database: str | None = None, on_time: bool = True
) -> AsyncGenerator[Crib]:
    """A crib on this home that follows the test's clock."""
    (home / "user").mkdir(parents=True, exist_ok=True)
    settings = Settings(home=home / "crib", port=0, default_cwd=home / "user", database_url=database)
    clock = Clock(hands.now, hands.sleep)
    environment = bare_environment(home / "user")
    async with Crib(settings, environment=environment, clock=clock, on_time=on_time) as crib:
        runner = PlayedRunner(SCRIPTS)
        runner.name = "claude"
        crib.runners.add(runner)
        yield crib


@pytest.fixture
async def crib(tmp_path: Path, hands: Hands) -> AsyncIterator[Crib]:
    async with opened(tmp_path, hands) as crib:
        yield crib


async def test_a_run_begins_when_it_is_due_as_a_session_of_the_scheduler(crib: Crib, hands: Hands) -> None:
    schedule = await crib.schedules.add(nightly(crib))
    assert schedule.next_at == START.replace(hour=9)

    hands.move(minutes=61)
    (run,) = await ended(crib, schedule.id, 1)
    assert (run.state, run.due_at) == ("completed", START.replace(hour=9))
    (session,) = await crib.sessions.list(SessionFilter(agent="reviewer"))
    assert (session.id, session.source, session.title) == (run.session, "scheduler", "Nightly")
    assert (await crib.schedules.get(schedule.id)).next_at == START.replace(day=3, hour=9)


@pytest.mark.parametrize("back", [timedelta(hours=1), timedelta(days=400)])
async def test_an_interval_goes_on_after_the_clock_went_back(crib: Crib, hands: Hands, back: timedelta) -> None:
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(every_seconds=600)))
    hands.move(minutes=11)
    await ended(crib, schedule.id, 1)
    hands.step(seconds=-back.total_seconds())
    await eventually(partial(comes_due_within, crib, schedule.id, hands, timedelta(minutes=10)))
    hands.move(minutes=11)
    runs = await ended(crib, schedule.id, 2)
    assert sorted(run.due_at for run in runs)[0] <= hands.time


@pytest.mark.parametrize("reads", [1, 2, 3])
async def test_clock_that_goes_back_while_schedules_are_looked_at_delays_nothing(
    crib: Crib, hands: Hands, reads: int
) -> None:
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(every_seconds=600)))
    hands.step_after(reads, timedelta(days=-400))
    crib.schedules.look_again()

    async def is_due_at_the_new_time() -> bool:
        is_due = await comes_due_within(crib, schedule.id, hands, timedelta(minutes=10))
        return is_due and hands.time < START

    await eventually(is_due_at_the_new_time)


async def test_a_daily_run_is_not_made_twice_after_the_clock_went_back(crib: Crib, hands: Hands) -> None:
    schedule = await crib.schedules.add(nightly(crib))
    hands.move(minutes=61)
    await ended(crib, schedule.id, 1)
    hands.step(minutes=-30)
    await eventually(partial(comes_due_within, crib, schedule.id, hands, timedelta(hours=1)))
    hands.move(minutes=40)
    await eventually(partial(due_after, crib, schedule.id, START.replace(day=3)))
    assert len(await crib.schedules.history(schedule.id)) == 1
    hands.move(days=1)
    assert [run.state for run in await ended(crib, schedule.id, 2)] == ["completed", "completed"]


async def test_a_clock_that_went_back_while_no_crib_ran_delays_nothing(tmp_path: Path, hands: Hands) -> None:
    async with opened(tmp_path, hands) as crib:
        schedule = await crib.schedules.add(nightly(crib))
    hands.step(days=-700)
    async with opened(tmp_path, hands) as crib:
        await eventually(partial(due_within, crib, schedule.id, hands, timedelta(days=1)))
        hands.move(days=1)
        await ended(crib, schedule.id, 1)


async def due_within(crib: Crib, id: str, hands: Hands, span: timedelta) -> bool:
    next_at = (await crib.schedules.get(id)).next_at
    return next_at is not None and next_at <= hands.time + span


async def comes_due_within(crib: Crib, id: str, hands: Hands, span: timedelta) -> bool:
    """Let a second pass: a look that goes on while the clock is set does not see it, the next one does."""
    hands.move(seconds=1)
    return await due_within(crib, id, hands, span)


async def due_after(crib: Crib, id: str, moment: datetime) -> bool:
    next_at = (await crib.schedules.get(id)).next_at
    return next_at is not None and next_at > moment


async def test_what_would_be_asked_is_refused_on_a_schedule(crib: Crib, hands: Hands) -> None:
    schedule = await crib.schedules.add(nightly(crib, script="ping"))
    await crib.schedules.run_now(schedule.id)
    (run,) = await ended(crib, schedule.id, 1)

    results = [e async for e in crib.sessions.transcript(run.session or "") if e.kind == "tool_result"]
    assert [event.data["isError"] for event in results] == [True]


async def test_a_run_that_is_due_while_another_goes_on_is_left_out(crib: Crib, hands: Hands) -> None:
    schedule = await crib.schedules.add(nightly(crib, script="hang", cadence=Cadence(every_seconds=3600)))
    hands.move(minutes=61)
    await running(crib, schedule.id)
    hands.move(minutes=60)

    runs = await ended(crib, schedule.id, 2)
    assert [run.state for run in runs] == ["skipped", "running"]
    assert "still in progress" in (runs[0].reason or "")
    with pytest.raises(Conflict, match="already running"):
        await crib.schedules.run_now(schedule.id)


async def test_a_run_that_is_due_while_another_goes_on_waits_for_its_end_where_it_may(crib: Crib, hands: Hands) -> None:
    hourly = nightly(crib, script="hang", cadence=Cadence(every_seconds=3600))
    schedule = await crib.schedules.add(replace(hourly, overlap="wait"))
    hands.move(minutes=61)
    await running(crib, schedule.id)
    hands.move(minutes=60)
    await eventually(partial(has_runs, crib, schedule.id, 2))
    waiting, first = await crib.schedules.history(schedule.id)
    assert (waiting.session, waiting.state) == (None, "running")

    await crib.sessions.interrupt(first.session or "")
    await eventually(partial(have_sessions, crib, schedule.id, 2))
    assert [run.state for run in await crib.schedules.history(schedule.id)] == ["running", "interrupted"]


async def test_a_crib_that_stays_for_a_moment_only_begins_nothing_by_itself(tmp_path: Path, hands: Hands) -> None:
    async with opened(tmp_path, hands) as crib:
        schedule = await crib.schedules.add(nightly(crib))
    hands.move(days=3)
    async with opened(tmp_path, hands, on_time=False) as crib:
        assert await crib.schedules.history(schedule.id) == []
        await crib.schedules.run_now(schedule.id)
        (run,) = await ended(crib, schedule.id, 1)
        assert (run.state, run.due_at) == ("completed", hands.time)
    async with opened(tmp_path, hands) as crib:
        assert len(await ended(crib, schedule.id, 2)) == 2


async def test_of_two_cribs_on_one_database_one_makes_each_run(tmp_path: Path, hands: Hands, postgres_url: str) -> None:
    async with (
        opened(tmp_path / "a", hands, database=postgres_url) as here,
        opened(tmp_path / "b", hands, database=postgres_url) as there,
    ):
        schedule = await here.schedules.add(nightly(here, cadence=Cadence(cron="*/5 * * * *")))
        for count in range(1, 9):
            hands.move(minutes=5)
            await ended(here, schedule.id, count)
            assert await there.schedules.history(schedule.id) == await here.schedules.history(schedule.id)
        runs = await here.schedules.history(schedule.id)
        assert [run.due_at for run in runs] == [START + timedelta(minutes=5 * step) for step in range(8, 0, -1)]
        assert {run.state for run in runs} == {"completed"}
        sessions = await there.sessions.list(SessionFilter(agent="reviewer"))
        assert {session.id for session in sessions} == {run.session for run in runs}


@pytest.mark.parametrize("reads", range(3, 7))
async def test_no_moment_is_lost_when_time_passes_while_a_run_begins(crib: Crib, hands: Hands, reads: int) -> None:
    every_minute = nightly(crib, cadence=Cadence(cron="* * * * *"))
    schedule = await crib.schedules.add(replace(every_minute, overlap="wait"))
    hands.step_after(reads, timedelta(minutes=1))
    hands.move(minutes=1)
    while hands.time < START + timedelta(minutes=4):
        hands.move(seconds=30)
        await eventually(partial(is_scheduled_after, crib, schedule.id, hands.time))
    due = sorted(run.due_at for run in await crib.schedules.history(schedule.id))
    assert due == [START + timedelta(minutes=step) for step in range(1, len(due) + 1)]
    assert len(due) >= 4


async def test_run_that_ended_does_not_hold_up_the_next_while_it_is_still_judged(
    crib: Crib, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge_forever(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(crib.schedules, "_judge", judge_forever)
    schedule = await crib.schedules.add(nightly(crib, cadence=Cadence(cron="*/5 * * * *")))
    hands.move(minutes=5)
    await ended(crib, schedule.id, 1)
    hands.move(minutes=5)
    await eventually(partial(has_runs, crib, schedule.id, 2))
    newest, _ = await crib.schedules.history(schedule.id)
    assert newest.state == "running"


@pytest.mark.parametrize(("missed", "state"), [("once", "completed"), ("skip", "skipped")])
async def test_what_was_missed_is_made_up_for_once_or_left_out(
    tmp_path: Path, hands: Hands, missed: str, state: str
) -> None:
    async with opened(tmp_path, hands) as crib:
        schedule = await crib.schedules.add(replace(nightly(crib), missed=missed))  # pyright: ignore[reportArgumentType]
    hands.move(days=3)
    async with opened(tmp_path, hands) as crib:
        (run,) = await ended(crib, schedule.id, 1)

    assert run.state == state
    if missed == "once":
        assert run.due_at == START.replace(day=4, hour=9)


async def test_a_failed_run_is_tried_again_and_too_many_pause_the_schedule_with_a_notice(
    crib: Crib, hands: Hands
) -> None:
    notices: list[str] = []
    crib.feed.listen(lambda event: notices.append(event.data["message"]) if event.kind == "notice" else None)
    schedule = await crib.schedules.add(nightly(crib, script="fail", retries=1))
    for day in range(3):
        hands.move(hours=1 if day == 0 else 24, minutes=1)
        await ended(crib, schedule.id, 2 * day + 1)
        hands.move(minutes=2)
        await ended(crib, schedule.id, 2 * day + 2)
        await eventually(partial(has_failed, crib, schedule.id, day + 1))
    await eventually(lambda: is_paused(crib, schedule.id))
    runs = await crib.schedules.history(schedule.id)
    assert [run.attempt for run in runs] == [2, 1, 2, 1, 2, 1]
    paused = await crib.schedules.get(schedule.id)
    assert "3 consecutive failed runs" in (paused.reason or "")
    assert paused.next_at is None
    assert notices and "Nightly" in notices[0]
    assert not (await crib.schedules.resume(schedule.id)).paused


async def test_entry_of_an_app_that_reaches_the_crib_leaves_its_own_tools_ready(tmp_path: Path, hands: Hands) -> None:
    (tmp_path / "user").mkdir()
    state = {"mcpServers": {"toolcrib": {"type": "stdio", "command": "/usr/local/bin/toolcrib", "args": ["stdio"]}}}
    (tmp_path / "user" / ".claude.json").write_text(json.dumps(state))
    async with opened(tmp_path, hands) as crib:
        schedule = await crib.schedules.add(
            replace(nightly(crib), mode="acceptEdits", tools=("toolcrib/ping", "crew/crib_list_agents"))
        )
        assert (await crib.schedules.readiness(schedule)).problems == ()


async def test_a_required_pattern_is_ready_if_one_of_its_tools_can_run(crib: Crib) -> None:
    needs = replace(nightly(crib), mode="acceptEdits", tools=("toolcrib/*",))
    assert (await crib.schedules.readiness(await crib.schedules.add(needs))).problems == ()
    asking = await crib.schedules.add(replace(needs, mode="default", tools=("toolcrib/*", "nowhere/*")))
    refused, missing = (await crib.schedules.readiness(asking)).problems
    assert "would be refused" in refused.message
    assert missing.message == "There is no tool 'nowhere/*'."


async def test_a_schedule_that_is_not_ready_fails_before_anything_is_spent(crib: Crib, hands: Hands) -> None:
    needs = replace(nightly(crib), tools=("toolcrib/ping", "nowhere/tool"))
    schedule = await crib.schedules.add(needs)
    readiness = await crib.schedules.readiness(schedule)

    assert [problem.code for problem in readiness.problems] == ["schedule.tool", "schedule.tool"]
    assert "has no person who could approve" in readiness.problems[0].message
    await crib.schedules.run_now(schedule.id)
    (run,) = await ended(crib, schedule.id, 1)
    assert run.state == "failed"
    assert run.session is None
    assert "Not ready" in (run.reason or "")


async def test_a_run_lost_in_a_crash_is_unknown_and_made_up_for(tmp_path: Path, hands: Hands) -> None:
    async with opened(tmp_path, hands) as crib:
        schedule = await crib.schedules.add(nightly(crib))
        runs = crib.schedules._runs  # pyright: ignore[reportPrivateUsage] as if the crib had died right after the claim
        await runs.claim(schedule, START)
    async with opened(tmp_path, hands) as crib:
        found = await ended(crib, schedule.id, 2)

    assert [(run.state, run.attempt) for run in found] == [("completed", 2), ("unknown", 1)]


@pytest.mark.parametrize(
    ("cadence", "wrong"),
    [
        (Cadence(cron="61 * * * *"), "not a cron expression"),
        (Cadence(cron="* * * * * *"), "five fields"),
        (Cadence(cron="0 9 * * *", timezone="Mars/Olympus"), "not a time zone"),
        (Cadence(cron="0 0 30 2 *"), "not a cron expression"),
        (Cadence(every_seconds=5), "at least 60"),
        (Cadence(), "exactly one"),
        (Cadence(cron="0 9 * * *", every_seconds=60), "exactly one"),
        (Cadence(at=datetime(2026, 1, 1)), "offset"),  # noqa: DTZ001 that is what is wrong with it
    ],
)
async def test_a_time_that_cannot_be_followed_is_refused_with_the_reason(
    crib: Crib, cadence: Cadence, wrong: str
) -> None:
    with pytest.raises(InvalidRequest, match=wrong):
        await crib.schedules.add(nightly(crib, cadence=cadence))


def nightly(crib: Crib, script: str = "text", cadence: Cadence = AT_NINE, retries: int = 0) -> Schedule:
    cwd = str(crib.settings.default_cwd)
    return Schedule(
        "", "Nightly", "reviewer", f"Go. [[script:{script}]]", cwd, cadence, START, mode="default", retries=retries
    )


async def ended(crib: Crib, id: str, count: int) -> Sequence[Run]:
    """The runs of a schedule once there are so many and at most the last one goes on."""
    with anyio.fail_after(20):
        while True:
            runs = await crib.schedules.history(id)
            over = [run for run in runs if run.state != "running"]
            if len(runs) >= count and len(over) >= count - 1 and (len(over) == count or runs[0].state == "skipped"):
                return runs
            await anyio.sleep(0.02)


async def running(crib: Crib, id: str) -> None:
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


async def eventually(so: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(20):
        while not await so():  # noqa: ASYNC110 there is no event for what the store has
            await anyio.sleep(0.02)
