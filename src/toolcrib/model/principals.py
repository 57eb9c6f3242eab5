"""Who asks: a principal, which every listing and every call is decided for.

A principal is a value and hashable: caches of listings and decisions are keyed by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject, is_object

Source = Literal["web", "cli", "api", "ide", "scheduler", "agent"]
Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
PrincipalKind = Literal["owner", "token", "session"]

SOURCES: tuple[Source, ...] = get_args(Source)
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Principal:
    """One asker: the owner, a named token or a session, with where it asks from and how far it may go.

    `by_hand` says that the owner makes this very call with their own hands, which is its own approval. `creator` is who
    started a session that a tool, a job or another session did: the session never has more than that.
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

    @property
    def is_owner(self) -> bool:
        """Whether refusals may be explained in full and other sources, agents and modes may be named."""
        return self.kind == "owner"

    def to_json(self) -> JsonObject:
        """The public shape, as audit records and explanations carry it."""
        shape: JsonObject = {"kind": self.kind, "name": self.name, "source": self.source, "mode": self.mode}
        creator = self.creator.to_json() if self.creator is not None else None
        optional = {"agent": self.agent, "session": self.session, "cwd": self.cwd, "creator": creator}
        return shape | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def of_json(cls, shape: Mapping[str, Json]) -> "Principal":
        """The principal of a shape that `to_json` made; one that acts by hand does so only at that moment."""
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
        )
