"""Schedules: prompts sent to an agent at set times, and the history of their runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import NO_LIMITS, SessionLimits

Overlap = Literal["skip", "wait"]
"""Policy for a run that is due while the previous one is still running."""
Missed = Literal["once", "skip"]
"""Policy for runs that were due while no crib was running: make up for one of them, or none."""
RunState = Literal["running", "completed", "failed", "limit", "interrupted", "skipped", "unknown"]
"""`unknown`: the crib stopped during the run, so its progress is not known."""
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
MISSED: tuple[Missed, ...] = get_args(Missed)
MOST_RETRIES: Final = 10
"""Maximum number of retries of a failed run."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """Exactly one of a cron expression with a time zone, an interval in seconds, or a single moment."""

    cron: str | None = None
    timezone: str = "UTC"
    every_seconds: int | None = None
    at: datetime | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        if self.cron is not None:
            return {"cron": self.cron, "timezone": self.timezone}
        if self.every_seconds is not None:
            return {"everySeconds": self.every_seconds}
        return {"at": self.at.isoformat() if self.at is not None else None}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule. `tools` are required by the prompt and checked before the run spends anything.

    `creator` is the principal that created it, if not a person; its runs never have more rights. `failures` counts
    consecutive failed runs. `reason` is why it is paused, `paused_by` the agent that paused it, if any.
    """

    id: str
    name: str
    agent: str
    prompt: str
    cwd: str
    cadence: Cadence
    created_at: datetime
    mode: Mode = "default"
    model: str | None = None
    tools: tuple[str, ...] = ()
    limits: SessionLimits = NO_LIMITS
    overlap: Overlap = "skip"
    missed: Missed = "once"
    jitter_seconds: int = 0
    retries: int = 0
    paused: bool = False
    reason: str | None = None
    paused_by: str | None = None
    failures: int = 0
    next_at: datetime | None = None
    created_by: str = "owner"
    creator: Principal | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {
            "id": self.id,
            "name": self.name,
            "agentId": self.agent,
            "prompt": self.prompt,
            "cwd": self.cwd,
            **self.cadence.to_json(),
            "mode": self.mode,
            "tools": list(self.tools),
            "limits": self.limits.to_json(),
            "overlap": self.overlap,
            "missed": self.missed,
            "jitterSeconds": self.jitter_seconds,
            "retries": self.retries,
            "paused": self.paused,
            "failures": self.failures,
            "createdBy": self.created_by,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
        }
        optional: Mapping[str, Json] = {
            "model": self.model,
            "reason": self.reason,
            "nextAt": self.next_at.isoformat(timespec="seconds") if self.next_at is not None else None,
            "creator": self.creator.to_json() if self.creator is not None else None,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `due_at` and `attempt` are unique per schedule, so only one crib can claim it."""

    schedule: str
    due_at: datetime
    attempt: int
    state: RunState
    started_at: datetime
    session: str | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    cost_usd: float = 0.0

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {
            "dueAt": self.due_at.isoformat(timespec="seconds"),
            "attempt": self.attempt,
            "state": self.state,
            "startedAt": self.started_at.isoformat(timespec="milliseconds"),
            "costUsd": self.cost_usd,
        }
        optional: Mapping[str, Json] = {
            "sessionId": self.session,
            "endedAt": self.ended_at.isoformat(timespec="milliseconds") if self.ended_at is not None else None,
            "reason": self.reason,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}
