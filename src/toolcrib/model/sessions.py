"""Sessions: conversations of agents, and their events.

A session keeps its source through resume and fork, so the restrictions on scheduled sessions stay in force.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.principals import Mode, Principal, Source

SessionState = Literal["starting", "running", "waiting", "idle", "interrupted", "failed", "closed"]
"""`waiting`: for a person. `interrupted`: its process or the crib ended during a turn; it can be resumed."""
SESSION_STATES: tuple[SessionState, ...] = get_args(SessionState)
SessionEventKind = Literal[
    "session_status", "user_message", "text_delta", "thinking_delta", "text_message", "tool_call_start",
    "tool_call_delta", "tool_call_end", "approval_required", "approval_resolved", "question_prompt",
    "question_answered", "tool_result", "error", "done",
]  # fmt: skip
SESSION_EVENT_KINDS: tuple[SessionEventKind, ...] = get_args(SessionEventKind)
REPLAY_RUNNER = "replay:"
"""Begins the runtime's name of a session that replays a recording."""
DoneReason = Literal["completed", "interrupted", "failed", "limit"]


@dataclass(frozen=True)
class SessionEvent:
    """One numbered event of a session; `parent` is the call whose sub-agent produced it."""

    seq: int
    at: str
    session: str
    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None

    @cached_property
    def shape(self) -> JsonObject:
        """The public shape: envelope and data merged."""
        inside: JsonObject = {"parentToolCallId": self.parent} if self.parent is not None else {}
        return {**self.data, **inside, "seq": self.seq, "at": self.at, "sessionId": self.session, "kind": self.kind}

    @cached_property
    def frame(self) -> bytes:
        """The event encoded as a server-sent event, once for all readers."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.seq, self.kind.encode(), dumps(self.shape))


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a session: model turns per prompt, total cost, seconds per prompt."""

    turns: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without unlimited fields."""
        given = {"turns": self.turns, "costUsd": self.cost_usd, "seconds": self.seconds}
        return {key: value for key, value in given.items() if value is not None}


NO_LIMITS = SessionLimits()


@dataclass(frozen=True, slots=True)
class Spent:
    """Usage of a session, as reported by its runtime."""

    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"costUsd": self.cost_usd, "inputTokens": self.input_tokens, "outputTokens": self.output_tokens}


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `runtime` is the id that its runtime assigned, once it can be resumed.

    `creator` is the principal that started this session, if not a person. `forked_from` is the session whose history it
    copied; while `is_fork_due`, `runtime` is still the id of that session. `epoch` counts the cribs that have run it.
    """

    id: str
    source: Source
    mode: Mode
    cwd: str
    created_at: datetime
    updated_at: datetime
    agent: str | None = None
    model: str | None = None
    title: str | None = None
    runner: str = "claude"
    runtime: str | None = None
    state: SessionState = "idle"
    reason: str | None = None
    creator: Principal | None = None
    forked_from: str | None = None
    is_fork_due: bool = False
    spent: Spent = Spent()
    limits: SessionLimits = NO_LIMITS
    last_seq: int = 0
    epoch: int = 0

    @property
    def is_replay(self) -> bool:
        """Whether this session replays a recording."""
        return self.runner.startswith(REPLAY_RUNNER)

    @property
    def principal(self) -> Principal:
        """The principal of tool calls made by this session's agent."""
        return Principal(
            "session", self.id, self.source, self.mode, self.agent, self.id, self.cwd, creator=self.creator
        )

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {
            "id": self.id,
            "state": self.state,
            "source": self.source,
            "mode": self.mode,
            "cwd": self.cwd,
            "runner": self.runner,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
            "updatedAt": self.updated_at.isoformat(timespec="milliseconds"),
            **self.spent.to_json(),
            "turns": self.spent.turns,
            "lastSeq": self.last_seq,
        }
        optional: Mapping[str, Json] = {
            "agentId": self.agent,
            "model": self.model,
            "title": self.title,
            "reason": self.reason,
            "creator": self.creator.to_json() if self.creator is not None else None,
            "forkedFrom": self.forked_from,
            "limits": self.limits.to_json() or None,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AgentQuestion:
    """A question from an agent to its user; `questions` are in the format of its runtime."""

    id: str
    session: str
    tool_call: str
    questions: tuple[JsonObject, ...]
    created_at: datetime

    def to_json(self) -> JsonObject:
        """Return the public shape, as used in lists of pending items."""
        return {
            "id": self.id,
            "kind": "question",
            "status": "pending",
            "sessionId": self.session,
            "toolCallId": self.tool_call,
            "questions": list(self.questions),
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
        }


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """State of a session's server, as reported by its runtime."""

    name: str
    state: str
    tools: int

    def to_json(self) -> JsonObject:
        """Return the public shape (`servers` of `session_status`)."""
        return {"name": self.name, "state": self.state, "tools": self.tools}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn or a session failed, and the next step."""

    code: str
    message: str
    hint: str | None = None

    def to_json(self) -> JsonObject:
        """Return the data of the event `error`."""
        shape: JsonObject = {"code": self.code, "message": self.message}
        return shape if self.hint is None else {**shape, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn. `spent` covers this turn only; `failure` is set if it failed.

    `runtime` is the id for resuming the conversation from here. `is_alive`: the runtime accepts another prompt;
    otherwise it has to be reopened.
    """

    reason: DoneReason
    runtime: str | None = None
    spent: Spent = field(default_factory=Spent)
    failure: Failure | None = None
    is_alive: bool = True
