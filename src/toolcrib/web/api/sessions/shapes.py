"""The shapes of `/api/sessions`."""

from typing import Annotated, Literal

from pydantic import Field

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Source
from toolcrib.model.sessions import SessionLimits, SessionState
from toolcrib.web.api.policy.shapes import MarkShape
from toolcrib.web.api.shapes import Shape

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Choice = Annotated[str, Field(min_length=1, max_length=100_000)]
_Answers = Annotated[dict[str, _Choice | list[_Choice]], Field(min_length=1, max_length=100)]


class LimitsShape(Shape):
    """The limits of a session; absent ones are unlimited."""

    turns: (
        Annotated[int, Field(ge=1, le=1_000_000, description="The maximum number of model turns per answer.")] | None
    ) = None
    cost_usd: Annotated[float, Field(gt=0, le=1_000_000, description="In all.")] | None = None
    seconds: Annotated[float, Field(gt=0, le=604_800, description="The cost limit per answer, in USD.")] | None = None

    @property
    def limits(self) -> SessionLimits:
        """The limits as a value."""
        return SessionLimits(self.turns, self.cost_usd, self.seconds)


class SessionRequest(Shape):
    """A session to create; absent fields default to the agent's, then the crib's."""

    agent_id: _Name | None = None
    cwd: str | None = Field(None, min_length=1, max_length=4096, description="The absolute path of a directory.")
    mode: Mode | None = None
    source: Source | None = Field(None, description="The source of the session; it never changes.")
    title: _Name | None = None
    model: _Name | None = None
    runner: _Name | None = Field(None, description="The runtime of the session.")
    limits: LimitsShape = LimitsShape()
    resume: _Name | None = Field(None, description="The id of a runtime's own conversation to continue.")
    record: bool = Field(False, description="Record the session, so that it can be replayed.")


class SessionShape(Shape):
    """One conversation of an agent, and its usage so far."""

    id: str
    state: SessionState
    source: Source
    mode: Mode
    cwd: str
    runner: str
    created_at: str
    updated_at: str
    cost_usd: float
    input_tokens: int
    output_tokens: int
    turns: int
    last_seq: int = Field(description="The number of its newest event.")
    agent_id: str = ""
    model: str = ""
    title: str = ""
    reason: str = Field("", description="The reason for the state.")
    creator: JsonObject = Field({}, description="The agent or schedule that started it, if any.")
    forked_from: str = ""
    limits: LimitsShape = LimitsShape()
    marks: list[MarkShape] = Field([], description="What the session has read; see data-flow rules.")


class FoundSessionShape(Shape):
    """A conversation that Claude Code keeps itself; `resume` with its id makes it a session."""

    id: str
    origin: Literal["claude_code"]
    cwd: str
    updated_at: str
    bytes: int
    title: str = ""


class SessionChanges(Shape):
    """The fields to change; absent fields are kept. The mode applies from the next call on."""

    # The defaults are never read: only fields that were sent are used.
    mode: Mode = "default"
    model: _Name = ""
    title: _Name = ""


class ForkRequest(Shape):
    """The title of a forked session."""

    title: _Name | None = None


class MessageRequest(Shape):
    """A message to an agent."""

    content: str


class MessageAnswer(Shape):
    """The message was recorded; its results are in the session's events after `seq`."""

    message_id: str
    queued: bool = Field(description="Whether the message waits for an earlier one.")
    seq: int


class InterruptAnswer(Shape):
    """Whether there was an answer to interrupt."""

    interrupted: bool


class QuestionAnswers(Shape):
    """The answer to every question by its text: a choice, several, or free text."""

    answers: _Answers


class AnsweredQuestion(Shape):
    """The answers passed to the agent."""

    question_id: str
    answers: dict[str, str]


class AgentQuestionShape(Shape):
    """A question of an agent to its user."""

    id: str
    kind: Literal["question"]
    status: Literal["pending"]
    session_id: str
    tool_call_id: str
    questions: list[JsonObject]
    created_at: str
