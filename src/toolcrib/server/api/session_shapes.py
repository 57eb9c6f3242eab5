"""The shapes of `/api/sessions`: conversations of agents, what is asked of them and what they ask."""

from typing import Annotated, Literal

from pydantic import Field

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Source
from toolcrib.model.sessions import SessionLimits, SessionState
from toolcrib.server.api.shapes import Shape

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Choice = Annotated[str, Field(min_length=1, max_length=100_000)]
_Answers = Annotated[dict[str, _Choice | list[_Choice]], Field(min_length=1, max_length=100)]


class LimitsShape(Shape):
    """How far a session may go; what is not named is not limited."""

    turns: Annotated[int, Field(ge=1, le=1_000_000, description="Of the model, within one answer.")] | None = None
    cost_usd: Annotated[float, Field(gt=0, le=1_000_000, description="In all.")] | None = None
    seconds: Annotated[float, Field(gt=0, le=604_800, description="Of one answer.")] | None = None

    @property
    def limits(self) -> SessionLimits:
        """The same as a value."""
        return SessionLimits(self.turns, self.cost_usd, self.seconds)


class SessionRequest(Shape):
    """A session to be made; what is not said is the agent's choice, else the crib's."""

    agent_id: _Name | None = None
    cwd: str | None = Field(None, min_length=1, max_length=4096, description="The full path of a directory.")
    mode: Mode | None = None
    source: Source | None = Field(None, description="Where it counts as started from, for life.")
    title: _Name | None = None
    model: _Name | None = None
    runner: _Name | None = Field(None, description="Which runtime thinks for it.")
    limits: LimitsShape = LimitsShape()
    resume: _Name | None = Field(None, description="A conversation that the runtime kept by itself, to go on with.")


class SessionShape(Shape):
    """One conversation of an agent, and what it has used so far."""

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
    reason: str = Field("", description="Why it stands so.")
    creator: JsonObject = Field({}, description="Who started it, if not a person.")
    forked_from: str = ""
    limits: LimitsShape = LimitsShape()


class FoundSessionShape(Shape):
    """A conversation that Claude Code has kept by itself; `resume` with its id makes a session of it."""

    id: str
    origin: Literal["claude_code"]
    cwd: str
    updated_at: str
    bytes: int
    title: str = ""


class SessionChanges(Shape):
    """What is to be other than it is; what is not named stays. The mode counts from the next call on."""

    # The defaults are never read: only what was named is taken.
    mode: Mode = "default"
    model: _Name = ""
    title: _Name = ""


class ForkRequest(Shape):
    """What a copy of a session is to be called."""

    title: _Name | None = None


class MessageRequest(Shape):
    """Something to say to an agent."""

    content: str


class MessageAnswer(Shape):
    """The message is on record; what comes of it is in the session's events after `seq`."""

    message_id: str
    queued: bool = Field(description="Whether another message is answered first.")
    seq: int


class InterruptAnswer(Shape):
    """Whether there was anything to interrupt."""

    interrupted: bool


class QuestionAnswers(Shape):
    """A person's answer to every question, by its text: a choice, several, or words of their own."""

    answers: _Answers


class AnsweredQuestion(Shape):
    """What the agent is told."""

    question_id: str
    answers: dict[str, str]


class AgentQuestionShape(Shape):
    """Something an agent asks the person it works for."""

    id: str
    kind: Literal["question"]
    status: Literal["pending"]
    session_id: str
    tool_call_id: str
    questions: list[JsonObject]
    created_at: str
