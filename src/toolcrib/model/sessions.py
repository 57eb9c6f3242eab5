"""Sessions: one conversation of an agent each, and the events everything about it is read from.

A session keeps its source for life, through resume and fork: what a schedule started stays under a schedule's blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal, get_args

import orjson

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal, Source

SessionState = Literal["starting", "running", "waiting", "idle", "interrupted", "failed", "closed"]
"""`waiting`: for a person; `interrupted`: its process or the crib ended in the middle of a turn, and it can go on."""
SESSION_STATES: tuple[SessionState, ...] = get_args(SessionState)
SessionEventKind = Literal[
    "session_status", "user_message", "text_delta", "thinking_delta", "text_message", "tool_call_start",
    "tool_call_delta", "tool_call_end", "approval_required", "approval_resolved", "question_prompt",
    "question_answered", "tool_result", "error", "done",
]  # fmt: skip
SESSION_EVENT_KINDS: tuple[SessionEventKind, ...] = get_args(SessionEventKind)
DoneReason = Literal["completed", "interrupted", "failed", "limit"]


@dataclass(frozen=True)
class SessionEvent:
    """One numbered entry of a session's record; `parent` is the call whose sub-agent it happened in."""

    seq: int
    at: str
    session: str
    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None

    @cached_property
    def shape(self) -> JsonObject:
        """The public shape: envelope and data side by side."""
        inside: JsonObject = {"parentToolCallId": self.parent} if self.parent is not None else {}
        return {**self.data, **inside, "seq": self.seq, "at": self.at, "sessionId": self.session, "kind": self.kind}

    @cached_property
    def frame(self) -> bytes:
        """The event as a stream of server-sent events carries it; made once for all who read."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.seq, self.kind.encode(), orjson.dumps(self.shape))


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How far a session may go: turns of the model within one prompt, money in all, seconds of one prompt."""

    turns: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def to_json(self) -> JsonObject:
        """The public shape; what is not limited is left out."""
        given = {"turns": self.turns, "costUsd": self.cost_usd, "seconds": self.seconds}
        return {key: value for key, value in given.items() if value is not None}


NO_LIMITS = SessionLimits()


@dataclass(frozen=True, slots=True)
class Spent:
    """What a session has used so far, as its runtime reports it."""

    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"costUsd": self.cost_usd, "inputTokens": self.input_tokens, "outputTokens": self.output_tokens}


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `runtime` is the id its runtime knows it by, once there is something to resume.

    `creator` is who started this one, if not a person; `forked_from` the one whose history it began with; while the
    fork is due, `runtime` is still that of the other one.
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

    @property
    def principal(self) -> Principal:
        """Who asks when this session's agent calls a tool."""
        return Principal(
            "session", self.id, self.source, self.mode, self.agent, self.id, self.cwd, creator=self.creator
        )

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
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
    """Something an agent asks the person it works for: `questions` in the words of its runtime."""

    id: str
    session: str
    tool_call: str
    questions: tuple[JsonObject, ...]
    created_at: datetime

    def to_json(self) -> JsonObject:
        """The public shape, as lists of what waits for a person have it."""
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
    """How a server of a session is doing, as its runtime sees it."""

    name: str
    state: str
    tools: int

    def to_json(self) -> JsonObject:
        """The public shape (`servers` of `session_status`)."""
        return {"name": self.name, "state": self.state, "tools": self.tools}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn or a session failed, with the next step."""

    code: str
    message: str
    hint: str | None = None

    def to_json(self) -> JsonObject:
        """Data of the event `error`."""
        shape: JsonObject = {"code": self.code, "message": self.message}
        return shape if self.hint is None else {**shape, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the answer to one prompt ended. `spent` is that of this turn alone; `failure` says why it failed.

    `runtime` is the id by which the conversation can be resumed from here. `is_alive` says whether it can still be
    spoken to; if not, it has to be opened anew.
    """

    reason: DoneReason
    runtime: str | None = None
    spent: Spent = field(default_factory=Spent)
    failure: Failure | None = None
    is_alive: bool = True
