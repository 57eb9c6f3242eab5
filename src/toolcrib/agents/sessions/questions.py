"""Questions that agents ask a person; the asking call waits here for the answer.

Must never let a program answer: permission to answer is checked here.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import anyio

from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import AgentQuestion, SessionEventKind

Answers = Mapping[str, str]
Emit = Callable[[SessionEventKind, JsonObject, str | None], object]
MOST_REMEMBERED = 1_000


class _Open:
    def __init__(self, question: AgentQuestion, principal: Principal) -> None:
        self.question = question
        self.principal = principal
        self.answers: Answers | None = None
        self.done = anyio.Event()


class Questions:
    """All open questions of a crib's sessions."""

    def __init__(self, may_answer: Callable[[Principal, Principal], bool]) -> None:
        self._may_answer = may_answer
        self._open: dict[str, _Open] = {}
        self._answered: dict[str, None] = {}

    def pending(self) -> tuple[AgentQuestion, ...]:
        """Return the open questions, oldest first."""
        return tuple(each.question for each in self._open.values())

    def get(self, id: str) -> AgentQuestion:
        """Return an open question; raises `question.unknown`, `question.answered`."""
        return self._find(id).question

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
        waiting = self._open[question.id] = _Open(question, principal)
        announce(question)
        try:
            await waiting.done.wait()
        finally:
            del self._open[question.id]
            self._answered[question.id] = None
            if len(self._answered) > MOST_REMEMBERED:
                del self._answered[next(iter(self._answered))]
        return waiting.answers or {}

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

    def answer(self, id: str, answers: Mapping[str, Json], *, by: Principal) -> Answers:
        """Answer all parts of a question. Raises `question.unknown`, `question.answered`, `question.answer`."""
        waiting = self._find(id)
        if self._may_answer(by, waiting.principal) is not True:
            raise Denied("approval.not_a_person", f"{by.name} ({by.source}) may not answer this: only a person may.")
        waiting.answers = _checked(waiting.question, answers)
        waiting.done.set()
        return waiting.answers

    def _find(self, id: str) -> _Open:
        waiting = self._open.get(id)
        if waiting is None and id not in self._answered:
            raise NotFound("question.unknown", f"There is no question {id!r}.")
        if waiting is None or waiting.answers is not None:
            raise Conflict("question.answered", f"Question {id} is already closed.")
        return waiting


def _checked(question: AgentQuestion, answers: Mapping[str, Json]) -> dict[str, str]:
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
