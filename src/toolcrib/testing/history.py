"""Checks the history in a database after failures: what several nodes did must look as if one had done it.

`check_history` reads the tables of sessions, schedules, approvals, audit and events, and returns what is wrong:

| check | what must hold |
|---|---|
| `session.epochs` | the events of a session are numbered without gap, and no two epochs interleave |
| `session.turns` | every prompt has at most one end, and every call of a session one result |
| `schedule.runs` | a due moment has one run; a further attempt only follows one that failed or is unknown |
| `approval.answers` | an approval is answered once, and permits one call |
| `audit.outcomes` | every intent has one outcome, and every outcome an intent |
| `audit.acknowledged` | every call that a client received an answer to is in the audit once, with its outcome |
| `events.numbers` | the events have no gap, and no reader saw a gap or a repeat |

Calls may be in flight while the check runs; `is_idle=False` accepts intents without an outcome.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Select, select

from toolcrib.model.json import JsonObject, is_object, loads
from toolcrib.store.engine import Store
from toolcrib.store.schema import approvals, audit, events, schedule_runs, session_events, sessions

Rows = Sequence[Any]


@dataclass(frozen=True, slots=True)
class HistoryFinding:
    """Something in the history that must not be. `check` is the name of the violated condition."""

    check: str
    detail: str


@dataclass(frozen=True, slots=True)
class HistoryTables:
    """The rows that the checks read."""

    sessions: Rows
    session_events: Rows
    runs: Rows
    approvals: Rows
    records: Sequence[JsonObject]
    events: Rows


async def check_history(
    store: Store,
    *,
    acknowledged: Collection[str] = (),
    readers: Sequence[Sequence[int]] = (),
    is_idle: bool = True,
) -> list[HistoryFinding]:
    """Return everything in the history of this database that must not be.

    `acknowledged` are markers of calls whose answer a client received, each contained in the arguments of its call.
    `readers` are the numbers of the crib's events that each reader received, in order.
    """
    found = await store.read(_load)
    return [
        *_epochs(found),
        *_turns(found),
        *_runs(found.runs),
        *_answers(found),
        *_outcomes(found.records, is_idle),
        *_acknowledged_calls(found.records, acknowledged),
        *_numbers([row.seq for row in found.events], readers),
    ]


def _load(connection: Connection) -> HistoryTables:
    def rows(query: Select[*tuple[Any, ...]]) -> Rows:
        return connection.execute(query).all()

    by_number = (session_events.c.session_id, session_events.c.seq)
    bodies = [loads(row.body) for row in rows(select(audit.c.body).order_by(audit.c.at))]
    return HistoryTables(
        rows(select(sessions.c.id, sessions.c.epoch, sessions.c.last_seq)),
        rows(select(session_events).order_by(*by_number)),
        rows(select(schedule_runs).order_by(schedule_runs.c.due_at, schedule_runs.c.attempt)),
        rows(select(approvals.c.id, approvals.c.status)),
        [body for body in bodies if is_object(body)],
        rows(select(events.c.seq).order_by(events.c.seq)),
    )


def _by_session(found: HistoryTables) -> Mapping[str, list[Any]]:
    by_session: defaultdict[str, list[Any]] = defaultdict(list)
    for event in found.session_events:
        by_session[event.session_id].append(event)
    return by_session


def _epochs(found: HistoryTables) -> Iterator[HistoryFinding]:
    by_session = _by_session(found)
    for session in found.sessions:
        own = by_session.get(session.id, [])
        numbers = [event.seq for event in own]
        if numbers != list(range(1, session.last_seq + 1)):
            yield HistoryFinding("session.epochs", f"Session {session.id} has a gap before event {session.last_seq}.")
        if any(after.epoch < before.epoch for before, after in pairwise(own)):
            yield HistoryFinding("session.epochs", f"Session {session.id} has events of an earlier epoch after others.")
        if any(event.epoch > session.epoch for event in own):
            yield HistoryFinding("session.epochs", f"Session {session.id} has events of an epoch it never had.")


def _turns(found: HistoryTables) -> Iterator[HistoryFinding]:
    for session, own in _by_session(found).items():
        kinds = Counter(event.kind for event in own)
        if kinds["done"] > kinds["user_message"]:
            yield HistoryFinding("session.turns", f"Session {session} has more ends than prompts.")
        results = Counter(loads(event.data)["toolCallId"] for event in own if event.kind == "tool_result")
        for call in [call for call, count in results.items() if count > 1]:
            yield HistoryFinding("session.turns", f"Call {call} of session {session} has more than one result.")


def _runs(runs: Rows) -> Iterator[HistoryFinding]:
    by_moment: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for run in runs:
        by_moment[run.schedule_id, run.due_at].append(run)
    for (schedule, due_at), attempts in by_moment.items():
        for before, after in pairwise(attempts):
            if before.state not in ("failed", "unknown") or after.attempt != before.attempt + 1:
                detail = f"Schedule {schedule} ran again for {due_at} after attempt {before.attempt}: {before.state}."
                yield HistoryFinding("schedule.runs", detail)
    for session, count in Counter(run.session for run in runs if run.session is not None).items():
        if count > 1:
            yield HistoryFinding("schedule.runs", f"Session {session} belongs to {count} runs.")


def _answers(found: HistoryTables) -> Iterator[HistoryFinding]:
    closed = (loads(event.data)["approvalId"] for event in found.session_events if event.kind == "approval_resolved")
    for approval, count in Counter(closed).items():
        if count > 1:
            yield HistoryFinding("approval.answers", f"Approval {approval} was answered {count} times in its session.")
    for approval, count in Counter(_accepted_answers(found.records)).items():
        if count > 1:
            yield HistoryFinding("approval.answers", f"Approval {approval} accepted {count} answers.")
    used = Counter(
        record["approvalId"] for record in found.records if record.get("phase") == "intent" and "approvalId" in record
    )
    programs = {record["approvalId"] for record in found.records if "programId" in record and "approvalId" in record}
    status = {row.id: row.status for row in found.approvals}
    for approval, count in used.items():
        if count > 1 and approval not in programs:  # one approval may cover all calls of a program
            yield HistoryFinding("approval.answers", f"Approval {approval} permitted {count} calls.")
        if status.get(approval, "approved") != "approved":
            yield HistoryFinding("approval.answers", f"A call was made with approval {approval}: {status[approval]}.")


def _accepted_answers(records: Sequence[JsonObject]) -> Iterator[str]:
    for record in records:
        arguments = record.get("arguments")
        is_answer = record.get("tool") == "approvals.answer" and record.get("phase") == "outcome"
        if is_answer and record.get("isError") is False and is_object(arguments):
            yield str(arguments.get("id"))


def _outcomes(records: Sequence[JsonObject], is_idle: bool) -> Iterator[HistoryFinding]:
    made = (record for record in records if "call" in record and "refused" not in record)  # a refusal has no intent
    phases = Counter((str(record["call"]), record.get("phase")) for record in made)
    for call in dict.fromkeys(call for call, phase in phases if phase in ("intent", "outcome")):
        begun, ended = phases[call, "intent"], phases[call, "outcome"]
        if begun != 1 or ended > 1 or (ended == 0 and is_idle):
            yield HistoryFinding("audit.outcomes", f"Call {call} has {begun} intents and {ended} outcomes.")


def _acknowledged_calls(records: Sequence[JsonObject], markers: Collection[str]) -> Iterator[HistoryFinding]:
    outcomes = [record for record in records if record.get("phase") == "outcome" and "refused" not in record]
    texts = [(str(record.get("arguments")), record.get("outcome") != "unknown") for record in outcomes]
    for marker in markers:
        found = [is_known for text, is_known in texts if marker in text]
        if not any(found):
            yield HistoryFinding("audit.acknowledged", f"The answered call {marker} has no outcome in the audit.")
        if len(found) > 1:
            yield HistoryFinding("audit.acknowledged", f"The answered call {marker} was made {len(found)} times.")


def _numbers(numbers: Sequence[int], readers: Sequence[Sequence[int]]) -> Iterator[HistoryFinding]:
    for name, seen in (("The events", numbers), *((f"Reader {at}", each) for at, each in enumerate(readers, 1))):
        for before, after in pairwise(seen):
            if after != before + 1:
                yield HistoryFinding("events.numbers", f"{name}: {after} follows {before}.")
