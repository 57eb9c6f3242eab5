"""Questions that agents ask a person; the asking call waits here for the answer.

In a database that several nodes share, open questions are rows: every node lists them and takes the answers. The node
of the asking call gets a signal, and also polls.

Must never let a program answer: permission to answer is checked here.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

import anyio

from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, Unavailable
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import AgentQuestion, SessionEventKind
from toolcrib.store.engine import Store
from toolcrib.store.questions import close_question, load_open_questions, load_question, save_question

logger = logging.getLogger(__name__)

Answers = Mapping[str, str]
Emit = Callable[[SessionEventKind, JsonObject, str | None], object]
MOST_REMEMBERED = 1_000
_LOOK_EVERY = 1.0
"""Seconds between two polls for answers that another node received."""
_LAST_WORDS = 5.0


class SharedQuestions:
    """The questions of all nodes on one database."""

    def __init__(
        self,
        store: Store,
        node: str,
        *,
        signal: Callable[[str], None],
        alive: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        """`signal` wakes the node that asked a question; `alive` returns the nodes that still wait for answers."""
        self._store = store
        self._node = node
        self._signal = signal
        self._alive = alive

    async def elsewhere(self) -> list[AgentQuestion]:
        """Return the open questions of other nodes, oldest first."""
        found = [each for each in await load_open_questions(self._store) if each.node != self._node]
        alive = await self._alive() if found else ()
        return [each.question for each in found if each.node in alive]

    async def save(self, question: AgentQuestion, principal: Principal) -> bool:
        """Show a question to the other nodes. Returns False if only this one can answer it."""
        try:
            await save_question(self._store, question, principal, self._node)
        except Unavailable as error:
            logger.warning("Question %s can only be answered on this node: %s", question.id, error)
            return False
        return True

    async def find(self, id: str) -> tuple[AgentQuestion, Principal]:
        """Return an open question of any node. Raises `question.unknown`, `question.answered`."""
        found = await load_question(self._store, id)
        if found is None:
            raise _unknown(id)
        if not found.is_open or found.node not in await self._alive():
            raise _closed_error(id)
        return found.question, found.principal

    async def close(self, id: str, answers: Answers) -> None:
        """Close a question with its answers. Raises `question.answered` if another answer was first."""
        if not await close_question(self._store, id, dict(answers)):
            raise _closed_error(id)
        self._signal(id)

    async def withdraw(self, id: str) -> None:
        """Close a question that no call waits for any more."""
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            try:
                await close_question(self._store, id)
            except Unavailable as error:
                logger.warning("Could not close question %s: %s", id, error)

    async def answers_to(self, id: str) -> Answers | None:
        """Return the answers that any node has taken, or None."""
        try:
            found = await load_question(self._store, id)
        except Unavailable as error:
            logger.warning("Could not check for the answer to question %s: %s", id, error)
            return None
        return found.answers if found is not None else None


class _Open:
    def __init__(self, question: AgentQuestion, principal: Principal, shared: SharedQuestions | None) -> None:
        self.question = question
        self.principal = principal
        self.shared = shared
        self.answers: Answers | None = None
        self.woken = anyio.Event()


class Questions:
    """All open questions of a crib's sessions, and those of the other nodes if the database is shared."""

    def __init__(
        self, may_answer: Callable[[Principal, Principal], bool], shared: SharedQuestions | None = None
    ) -> None:
        self._may_answer = may_answer
        self._shared = shared
        self._open: dict[str, _Open] = {}
        self._answered: dict[str, None] = {}

    async def pending(self) -> tuple[AgentQuestion, ...]:
        """Return the open questions, oldest first."""
        own = [each.question for each in self._open.values()]
        others = await self._shared.elsewhere() if self._shared is not None else ()
        return tuple(sorted((*own, *others), key=lambda each: each.created_at))

    async def ask(
        self,
        principal: Principal,
        questions: Sequence[JsonObject],
        tool_call: str,
        announce: Callable[[AgentQuestion], None],
    ) -> Answers:
        """Ask and wait for the answers, until cancelled."""
        question = AgentQuestion(
            secrets.token_hex(8), principal.session or "", tool_call, tuple(questions), datetime.now(UTC)
        )
        shared = self._shared if self._shared is not None and await self._shared.save(question, principal) else None
        waiting = self._open[question.id] = _Open(question, principal, shared)
        announce(question)
        try:
            await _wait(waiting)
        finally:
            del self._open[question.id]
            self._answered[question.id] = None
            if len(self._answered) > MOST_REMEMBERED:
                del self._answered[next(iter(self._answered))]
        return waiting.answers or {}

    def answered_elsewhere(self, id: str) -> None:
        """Look for the answer to a question in the database now: another node reported it."""
        waiting = self._open.get(id)
        if waiting is not None:
            waiting.woken.set()

    async def put(
        self, principal: Principal, questions: Sequence[JsonObject], tool_call: str, seconds: float, emit: Emit
    ) -> Answers:
        """Ask, wait up to this many seconds, and record both events; return no answers after a timeout."""
        answers: Answers = {}
        asked: list[str] = []

        def announce(question: AgentQuestion) -> None:
            asked.append(question.id)
            emit("question_prompt", {"questionId": question.id, "questions": list(questions)}, None)

        try:
            with anyio.move_on_after(seconds):
                answers = await self.ask(principal, questions, tool_call, announce)
        finally:
            emit("question_answered", {"questionId": asked[0], "answers": dict(answers)}, None)
        return answers

    async def answer(self, id: str, answers: Mapping[str, Json], *, by: Principal) -> Answers:
        """Answer all parts of a question. Raises `question.unknown`, `question.answered`, `question.answer`."""
        waiting = self._open.get(id)
        question, principal = (waiting.question, waiting.principal) if waiting is not None else await self._find(id)
        if self._may_answer(by, principal) is not True:
            raise Denied("approval.not_a_person", f"{by.name} ({by.source}) may not answer this: only a person may.")
        given = _check_answers(question, answers)
        if waiting is not None and waiting.answers is not None:
            raise _closed_error(id)
        shared = waiting.shared if waiting is not None else self._shared
        if shared is not None:
            await shared.close(id, given)
        if waiting is not None:
            waiting.answers = given
            waiting.woken.set()
        return given

    async def _find(self, id: str) -> tuple[AgentQuestion, Principal]:
        """Return an open question of another node."""
        if id in self._answered:
            raise _closed_error(id)
        if self._shared is None:
            raise _unknown(id)
        return await self._shared.find(id)


async def _wait(waiting: _Open) -> None:
    """Wait until the question is answered, here or on another node."""
    shared, id = waiting.shared, waiting.question.id
    if shared is None:
        await waiting.woken.wait()
        return
    try:
        while waiting.answers is None:
            with anyio.move_on_after(_LOOK_EVERY):
                await waiting.woken.wait()
            waiting.woken = anyio.Event()
            if waiting.answers is None:
                waiting.answers = await shared.answers_to(id)
    finally:
        if waiting.answers is None:
            await shared.withdraw(id)


def _unknown(id: str) -> NotFound:
    return NotFound("question.unknown", f"There is no question {id!r}.")


def _closed_error(id: str) -> Conflict:
    return Conflict("question.answered", f"Question {id} is already closed.")


def _check_answers(question: AgentQuestion, answers: Mapping[str, Json]) -> dict[str, str]:
    asked = [text for each in question.questions if isinstance(text := each.get("question"), str)]
    unknown = [text for text in answers if text not in asked]
    missing = [text for text in asked if text not in answers]
    if unknown or missing:
        wrong = f"Question {unknown[0]!r} was not asked." if unknown else f"Question {missing[0]!r} has no answer."
        raise InvalidRequest("question.answer", wrong, f"The questions are: {'; '.join(asked)}")
    return {text: _words(text, answers[text]) for text in asked}


def _words(question: str, answer: Json) -> str:
    """Return the answer as one string: several choices are joined by commas, as runtimes expect."""
    if isinstance(answer, str) and answer.strip():
        return answer
    if is_array(answer) and answer and all(isinstance(each, str) for each in answer):
        return ", ".join(str(each) for each in answer)
    raise InvalidRequest(
        "question.answer", f"The answer to {question!r} is not a string.", "Give one of the choices, or your own text."
    )
