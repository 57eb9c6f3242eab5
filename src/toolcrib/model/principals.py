"""Principals: the authenticated callers that every listing and call is decided for.

Principals are hashable; caches of listings and decisions use them as keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject, is_object

Source = Literal["web", "cli", "api", "ide", "scheduler", "agent"]
Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
PrincipalKind = Literal["owner", "token", "session"]

KINDS: tuple[PrincipalKind, ...] = get_args(PrincipalKind)
SOURCES: tuple[Source, ...] = get_args(Source)
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner, a named token or a session, with its source and mode.

    `by_hand`: the owner makes this call interactively, which counts as approval. `creator` is the principal that
    started this session, if a tool, a job or another session did; the session never has more rights. `worktree` is the
    directory of a work task that this principal started; it counts as its project in addition to `cwd`. `token_id`
    distinguishes a named token from a later one of the same name.
    """

    kind: PrincipalKind
    name: str
    source: Source
    mode: Mode = "default"
    agent: str | None = None
    session: str | None = None
    cwd: str | None = None
    by_hand: bool = False
    creator: "Principal | None" = None
    worktree: str | None = None
    token_id: str | None = None
    is_owner: bool = field(init=False, compare=False, repr=False)
    """Whether refusals may be explained in full and other sources, agents and modes may be named."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_owner", self.kind == "owner")

    @property
    def identity(self) -> tuple[PrincipalKind, str, str | None]:
        """Identifies the owner, one token or one session, regardless of source, mode and agent."""
        return self.kind, self.name, self.token_id

    @property
    def projects(self) -> tuple[str | None, str | None]:
        """The directories that count as the principal's project."""
        return self.cwd, self.worktree

    @property
    def scope(self) -> str:
        """The key of everything that is counted or limited per caller: its session, or itself outside of one."""
        return f"session {self.session}" if self.session else f"{self.kind} {self.name}"

    def to_json(self) -> JsonObject:
        """Return the public shape, as used in audit records and explanations."""
        shape: JsonObject = {"kind": self.kind, "name": self.name, "source": self.source, "mode": self.mode}
        creator = self.creator.to_json() if self.creator is not None else None
        optional = {
            "agent": self.agent,
            "session": self.session,
            "cwd": self.cwd,
            "creator": creator,
            "worktree": self.worktree,
            "tokenId": self.token_id,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "Principal":
        """Return the principal for a shape made by `to_json`. `by_hand` is never restored."""
        creator: Json = shape.get("creator")
        return cls(
            shape["kind"],
            shape["name"],
            shape["source"],
            shape["mode"],
            shape.get("agent"),
            shape.get("session"),
            shape.get("cwd"),
            creator=cls.of_json(creator) if is_object(creator) else None,
            worktree=shape.get("worktree"),
            token_id=shape.get("tokenId"),
        )
