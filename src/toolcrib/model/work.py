"""Work tasks: something an agent does in the background, on a branch of its own, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import NO_LIMITS, SessionLimits

WorkState = Literal["running", "completed", "failed", "limit", "interrupted"]
"""`interrupted`: somebody ended it, or the crib did by ending itself; what was done by then is on the branch."""
WORK_STATES: tuple[WorkState, ...] = get_args(WorkState)


@dataclass(frozen=True, slots=True)
class Task:
    """One work task. `repository` is the top of the working tree it is for, `base` the commit it began with.

    `worktree` is where its files are, None once they are removed; `git_dir` is where git keeps the state of them, out
    of the agent's reach. `diff` says in short what differs from `base`. `creator` is who gave it, if not a person.
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
        """The public shape; absent parts are left out."""
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
