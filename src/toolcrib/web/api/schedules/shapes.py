"""The shapes of `/api/schedules`."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from toolcrib.agents.schedules.cadence import LONGEST_JITTER
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.schedules import MOST_RETRIES, Cadence, Missed, Overlap, RunState
from toolcrib.web.api.sessions.shapes import LimitsShape
from toolcrib.web.api.shapes import ProblemShape, Shape

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Agent = Annotated[str, Field(min_length=1, max_length=200)]
_Prompt = Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"\S")]
_Cwd = Annotated[str, Field(min_length=1, max_length=4096, description="The absolute path of a directory.")]
_Tools = Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=100)]
_Cron = Annotated[str, Field(max_length=200, description="Minute, hour, day, month, weekday.")]
_Zone = Annotated[str, Field(max_length=100, description="The time zone of `cron`, such as Europe/Berlin.")]
_Every = Annotated[int, Field(le=31_536_000, description="The interval; at least one minute.")]
_Jitter = Annotated[int, Field(ge=0, le=LONGEST_JITTER, description="The maximum random delay.")]
_Retries = Annotated[int, Field(ge=0, le=MOST_RETRIES, description="The number of retries after a failed run.")]


class CadenceFields(Shape):
    """The cadence: exactly one of `cron`, `everySeconds` and `at`."""

    cron: _Cron | None = None
    timezone: _Zone | None = None
    every_seconds: _Every | None = None
    at: datetime | None = Field(None, description="A single time, with its UTC offset.")

    def cadence(self, before: Cadence | None = None) -> Cadence:
        """Return the cadence, falling back to `before` for what is absent."""
        zone = self.timezone or (before.timezone if before is not None else "UTC")
        if before is not None and (self.cron, self.every_seconds, self.at) == (None, None, None):
            return Cadence(before.cron, zone, before.every_seconds, before.at)
        return Cadence(self.cron, zone, self.every_seconds, self.at)


class ScheduleRequest(CadenceFields):
    """A schedule to create, or to replace another."""

    agent_id: _Agent
    prompt: _Prompt
    name: _Name | None = Field(None, description="The name; the start of the prompt by default.")
    cwd: _Cwd | None = None
    mode: Mode | None = Field(
        None, description="The agent's mode by default, otherwise `default`. Calls that need approval are denied."
    )
    model: _Agent | None = None
    tools: _Tools = Field([], description="Required tools, checked before each run.")
    limits: LimitsShape = LimitsShape()
    overlap: Overlap = "skip"
    missed: Missed = "once"
    jitter_seconds: _Jitter = 0
    retries: _Retries = 0


class ScheduleChanges(CadenceFields):
    """The fields to change; absent fields are kept."""

    # The defaults are never read: only fields that were sent are used.
    agent_id: _Agent = ""
    prompt: _Prompt = ""
    name: _Name = ""
    cwd: _Cwd = ""
    mode: Mode = "default"
    model: _Agent | None = None
    tools: _Tools = Field([])
    limits: LimitsShape = LimitsShape()
    overlap: Overlap = "skip"
    missed: Missed = "once"
    jitter_seconds: _Jitter = 0
    retries: _Retries = 0


class RunShape(Shape):
    """One run. `unknown`: the crib ended during it. Its session has the transcript."""

    due_at: str
    attempt: int
    state: RunState
    started_at: str
    cost_usd: float
    session_id: str = ""
    ended_at: str = ""
    reason: str = ""


class ReadinessShape(Shape):
    """Whether a run could start now, and what prevents it."""

    ready: bool
    problems: list[ProblemShape]


class ScheduleShape(Shape):
    """One schedule."""

    id: str
    name: str
    agent_id: str
    prompt: str
    cwd: str
    words: str = Field(description="The schedule in words.")
    next: list[str] = Field(description="The next three runs; empty if it is paused or finished.")
    mode: Mode
    tools: list[str]
    limits: LimitsShape
    overlap: Overlap
    missed: Missed
    jitter_seconds: int
    retries: int
    paused: bool
    failures: int = Field(description="Consecutive failed runs; three pause the schedule.")
    created_by: str
    created_at: str
    cron: str = ""
    timezone: str = ""
    every_seconds: int = 0
    at: str = ""
    model: str = ""
    reason: str = Field("", description="Why it is paused.")
    next_at: str = ""
    creator: JsonObject = Field(
        {}, description="The agent that created it, if any. Its runs never have more permissions."
    )
    last_run: RunShape | None = None
    readiness: ReadinessShape | None = None
