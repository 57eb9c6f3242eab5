"""Work tasks: background jobs of agents, each on its own branch."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import NO_LIMITS, SessionLimits

WorkState = Literal["running", "completed", "failed", "limit", "interrupted"]
"""`interrupted`: cancelled, or the crib stopped; the branch contains the work done so far."""


@dataclass(frozen=True, slots=True)
class Task:
    """One work task. `repository` is the top of the working tree, `base` the commit it started from.

    `worktree` is None once it is removed; `git_dir` is its git directory, out of the agent's reach. `diff` summarises
    the changes since `base`. `creator` is the principal that started it, if not a person.
    """

    id: str
    description: str
    agent: str
    repository: str
    base: str
    branch: str
    worktree: str | None
    git_dir: str
    created_at: datetime
    created_by: str = "owner"
    state: WorkState = "running"
    session: str | None = None
    ended_at: datetime | None = None
    result: str | None = None
    diff: str | None = None
    reason: str | None = None
    cost_usd: float = 0.0
    limits: SessionLimits = NO_LIMITS
    creator: Principal | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {
            "id": self.id,
            "state": self.state,
            "description": self.description,
            "agentId": self.agent,
            "repository": self.repository,
            "branch": self.branch,
            "baseCommit": self.base,
            "createdBy": self.created_by,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
            "costUsd": self.cost_usd,
        }
        optional: Mapping[str, Json] = {
            "sessionId": self.session,
            "worktree": self.worktree,
            "endedAt": self.ended_at.isoformat(timespec="milliseconds") if self.ended_at is not None else None,
            "result": self.result,
            "diff": self.diff,
            "reason": self.reason,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}
