"""The parameters of a new session, and the session they describe."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from toolcrib.model.agents import Agent
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import NO_LIMITS, Session, SessionLimits


@dataclass(frozen=True, slots=True)
class NewSession:
    """The parameters of a new session; defaults come from the agent, then from the crib.

    `resume` is the id of a conversation that the runtime recorded itself, to be continued.
    """

    source: Source
    cwd: str | None = None
    agent: str | None = None
    mode: Mode | None = None
    model: str | None = None
    title: str | None = None
    runner: str | None = None
    limits: SessionLimits = NO_LIMITS
    resume: str | None = None
    creator: Principal | None = None


def draft_session(new: NewSession, agent: Agent | None, default_cwd: Callable[[], str], default_runner: str) -> Session:
    """Return a new session without storing it. Raises `session.cwd`."""
    now = datetime.now(UTC)
    return Session(
        id=str(uuid.uuid4()),
        source=new.source,
        mode=new.mode or (agent.mode if agent is not None and agent.mode else "default"),
        cwd=resolved_directory(new.cwd or default_cwd()),
        created_at=now,
        updated_at=now,
        agent=new.agent,
        model=new.model or (agent.model if agent is not None else None),
        title=new.title,
        runner=new.runner or default_runner,
        runtime=new.resume,
        creator=new.creator,
        limits=new.limits,
    )


def resolved_directory(cwd: str) -> str:
    """Return the resolved path of a working directory. Raises `session.cwd`."""
    path = Path(cwd).expanduser()
    if not path.is_absolute() or not path.is_dir():
        raise InvalidRequest("session.cwd", f"{cwd} is not an absolute path of a directory.")
    return str(path.resolve())
