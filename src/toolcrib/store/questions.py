"""Questions of agents in a database that several cribs share. A question is closed once, by the first answer."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from toolcrib.model.json import JsonObject, dumps, is_array, loads, storable
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import AgentQuestion
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import questions

_KEPT = timedelta(days=1)
"""How long closed questions are kept, for those who answer too late."""


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question, who asked it and where; `answers` once it is answered."""

    question: AgentQuestion
    principal: Principal
    node: str
    is_open: bool
    answers: JsonObject | None


async def save_question(store: Store, question: AgentQuestion, principal: Principal, node: str) -> None:
    """Add an open question; `node` waits for the answers."""
    forgotten = (~questions.c.is_open, questions.c.asked_at < moment(datetime.now(UTC) - _KEPT))
    values = {
        "id": question.id,
        "node": node,
        "session": question.session,
        "call": question.tool_call,
        "principal": json.dumps(principal.to_json()),
        "questions": dumps(storable(list(question.questions))),
        "asked_at": moment(question.created_at),
        "is_open": True,
    }
    await store.write(delete(questions).where(*forgotten), insert(questions).values(**values))


async def close_question(store: Store, id: str, answers: JsonObject | None = None) -> bool:
    """Close a question with these answers or without any; return False if it was closed before."""
    found = update(questions).where(questions.c.id == id, questions.c.is_open)
    given = None if answers is None else dumps(storable(answers))
    (count,) = await store.write(found.values(is_open=False, answers=given))
    return count == 1


async def load_question(store: Store, id: str) -> StoredQuestion | None:
    """Return one question."""
    query = select(questions).where(questions.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else _question(row)


async def load_open_questions(store: Store) -> list[StoredQuestion]:
    """Return the open questions, oldest first."""
    query = select(questions).where(questions.c.is_open).order_by(questions.c.asked_at, questions.c.id)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [_question(row) for row in rows]


def _question(row: Row[*tuple[Any, ...]]) -> StoredQuestion:
    asked = loads(bytes(row.questions))
    at = datetime.fromisoformat(row.asked_at).astimezone(UTC)
    question = AgentQuestion(row.id, row.session, row.call, tuple(asked) if is_array(asked) else (), at)
    principal = Principal.of_json(json.loads(row.principal))
    answers = None if row.answers is None else loads(bytes(row.answers))
    return StoredQuestion(question, principal, row.node, bool(row.is_open), answers)
