"""The history checker: no finding in the recorded history of a crib, and one for each planted violation."""

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from cluster.cribs import crib_on
from integration.store.databases import fetch_rows, run
from toolcrib.agents.sessions.new_session import NewSession
from toolcrib.store.engine import open_store
from toolcrib.testing.history import check_history

pytestmark = pytest.mark.anyio

MARKER = "marker 7."
PREPARED = (
    *(
        "INSERT INTO schedule_runs (schedule_id, due_at, attempt, crib, state, started_at, session, cost_usd)"
        f" VALUES ('s', '{due}', {attempt}, 'a', '{state}', '', '{due}-{attempt}', 0)"
        for due, attempt, state in (("12:00", 1, "failed"), ("12:00", 2, "completed"), ("12:01", 1, "completed"))
    ),
    *(f"INSERT INTO events VALUES ({n}, '', 'notice', x'', 'a', '{n}')" for n in (7, 8, 9)),
)
CALL = f"instr(body, '{MARKER}') > 0"
ANSWER = "tool = 'approvals.answer' AND phase = 'outcome'"
ALLOWED = "tool = 'ping' AND phase = 'intent'"


def recorded_again(where: str, change: str = "body") -> str:
    """Return the statement that adds a copy of audit records, with a changed body."""
    columns = "hash, at, phase, door, principal, agent, session, server, tool, decision"
    return f"INSERT INTO audit (id, {columns}, body) SELECT id + 1000, {columns}, {change} FROM audit WHERE {where}"


def repeated(kind: str) -> str:
    """Return the statement that turns the last event into a second one of this kind."""
    return (
        f"UPDATE session_events SET (kind, data) = (SELECT kind, data FROM session_events WHERE kind = '{kind}')"
        " WHERE seq = (SELECT max(seq) - 1 FROM session_events)"
    )


PLANTED: dict[str, tuple[str, str]] = {
    "a gap in a session": ("session.epochs", "DELETE FROM session_events WHERE seq = 3"),
    "a lost end of a session": ("session.epochs", "UPDATE sessions SET last_seq = last_seq + 1"),
    "interleaved epochs": ("session.epochs", "UPDATE session_events SET epoch = 1 - seq % 2"),
    "an epoch that was never granted": ("session.epochs", "UPDATE sessions SET epoch = 0"),
    "a second end of a turn": ("session.turns", repeated("done")),
    "a second result of a call": ("session.turns", repeated("tool_result")),
    "a second run for a due moment": ("schedule.runs", "UPDATE schedule_runs SET state = 'completed'"),
    "a run after a lost attempt": ("schedule.runs", "UPDATE schedule_runs SET attempt = 3 WHERE attempt = 2"),
    "a session of two runs": ("schedule.runs", "UPDATE schedule_runs SET session = '12:00-1'"),
    "a second answer in a session": ("approval.answers", repeated("approval_resolved")),
    "a second accepted answer": ("approval.answers", recorded_again(ANSWER, "replace(body, '\"call\"', '\"x\"')")),
    "a second call with an approval": (
        "approval.answers",
        recorded_again(ALLOWED, "replace(body, '\"call\"', '\"other\"')"),
    ),
    "a call with a denied approval": ("approval.answers", "UPDATE approvals SET status = 'denied'"),
    "an intent without an outcome": ("audit.outcomes", f"DELETE FROM audit WHERE {ANSWER}"),
    "an outcome without an intent": ("audit.outcomes", "DELETE FROM audit WHERE tool = 'ping' AND phase = 'intent'"),
    "a second outcome": ("audit.outcomes", recorded_again("tool = 'ping' AND phase = 'outcome'")),
    "an answered call that is missing": ("audit.acknowledged", f"DELETE FROM audit WHERE {CALL}"),
    "an answered call with an unknown outcome": (
        "audit.acknowledged",
        'UPDATE audit SET body = CAST(replace(body, \'"durationMs"\', \'"outcome":"unknown","durationMs"\') AS BLOB)'
        f" WHERE {CALL} AND phase = 'outcome'",
    ),
    "an answered call that was repeated": (
        "audit.acknowledged",
        recorded_again(CALL, 'replace(body, \'"call":"\', \'"call":"again \')'),
    ),
    "a gap in the events": ("events.numbers", "DELETE FROM events WHERE seq = 8"),
}


async def record(url: str, folder: Path) -> None:
    """Run a call, and a turn with an approved call."""
    async with crib_on(url, folder) as crib:
        await crib.call("agent_zoo/agent_zoo_get_agent", {"agentId": MARKER}, principal=crib.owner())
        session = await crib.sessions.create(NewSession("api", mode="default"))
        await crib.sessions.send(session.id, "[[script:ping]]")
        with anyio.fail_after(30):
            while not (found := fetch_rows(url, "SELECT id FROM approvals")):  # noqa: ASYNC110 nothing announces it
                await anyio.sleep(0.02)
            id = found[0][0]
            details = {"id": id, "decision": "approve"}
            await crib.changes.make(
                "approvals.answer", details, lambda: crib.approvals.answer(id, "approve", by=crib.owner()),
                by=crib.owner(), door="rest",
            )  # fmt: skip
            while not fetch_rows(url, "SELECT 1 FROM session_events WHERE kind = 'done'"):  # noqa: ASYNC110 as above
                await anyio.sleep(0.02)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Run the module on one loop, for the recorded history."""
    return "asyncio"


@pytest.fixture(scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Path]:
    """Return the database of a crib with calls, sessions, runs and events."""
    folder = tmp_path_factory.mktemp("history")
    url = f"sqlite:///{folder / 'toolcrib.db'}"
    await record(url, folder / "crib")
    run(url, *PREPARED, "UPDATE sessions SET epoch = 1", "UPDATE session_events SET epoch = 1 WHERE seq > 3")
    run(url, "PRAGMA wal_checkpoint(TRUNCATE)")
    yield folder / "toolcrib.db"


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> str:
    """Return the URL of a copy, in which violations are planted."""
    shutil.copy(recorded, tmp_path / "toolcrib.db")
    return f"sqlite:///{tmp_path / 'toolcrib.db'}"


async def test_history_of_a_crib_has_no_violation(copied: str) -> None:
    async with open_store(copied) as store:
        assert await check_history(store, acknowledged=[MARKER], readers=[[7, 8, 9], []]) == []


@pytest.mark.parametrize("planted", PLANTED)
async def test_planted_violation_is_found_and_nothing_else(copied: str, planted: str) -> None:
    check, statement = PLANTED[planted]
    run(copied, statement)
    async with open_store(copied) as store:
        findings = await check_history(store, acknowledged=[MARKER])
    assert findings
    assert {finding.check for finding in findings} == {check}, findings


@pytest.mark.parametrize("seen", [[7, 9], [7, 8, 8, 9], [8, 7]])
async def test_gap_repeat_or_wrong_order_of_a_reader_is_found(copied: str, seen: list[int]) -> None:
    async with open_store(copied) as store:
        findings = await check_history(store, readers=[[7, 8, 9], seen])
    assert next((each.check, "Reader 2" in each.detail) for each in findings) == ("events.numbers", True)


async def test_calls_in_flight_are_accepted_while_the_nodes_work(copied: str) -> None:
    run(copied, f"DELETE FROM audit WHERE {ANSWER}")
    async with open_store(copied) as store:
        assert await check_history(store, is_idle=False) == []
        assert [finding.check for finding in await check_history(store)] == ["audit.outcomes"]
