"""Schedules: an agent that is given a prompt at set times, and what became of each of these runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import NO_LIMITS, SessionLimits

Overlap = Literal["skip", "wait"]
"""What happens to a run that is due while the one before it still goes on."""
Missed = Literal["once", "skip"]
"""What happens to runs that were due while no crib was there: one of them is made up for, or none."""
RunState = Literal["running", "completed", "failed", "limit", "interrupted", "skipped", "unknown"]
"""`unknown`: the crib ended in the middle, so nobody can say how far it came."""
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
MISSED: tuple[Missed, ...] = get_args(Missed)
MOST_RETRIES: Final = 10
"""How often a failed run may be made again."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """When: exactly one of a cron expression in a time zone, an interval in seconds, or one moment."""

    cron: str | None = None
    timezone: str = "UTC"
    every_seconds: int | None = None
    at: datetime | None = None

    def to_json(self) -> JsonObject:
        """The public shape."""
        if self.cron is not None:
            return {"cron": self.cron, "timezone": self.timezone}
        if self.every_seconds is not None:
            return {"everySeconds": self.every_seconds}
        return {"at": self.at.isoformat() if self.at is not None else None}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule. `tools` are those its prompt cannot do without: they are looked at before anything is spent.

    `creator` is who made it, if not a person: its runs never have more than that. `failures` is how many runs in a row
    have failed by now; `reason` says why it is paused, `paused_by` which agent did that, if one did.
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
        """The public shape; absent parts are left out."""
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
    """One run: `due_at` and `attempt` are what no two cribs can both claim."""

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
        """The public shape; absent parts are left out."""
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
