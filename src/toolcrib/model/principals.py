"""Who asks: a principal, which every listing and every call is decided for.

A principal is a value and hashable: caches of listings and decisions are keyed by it.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from toolcrib.model.json import JsonObject

Source = Literal["web", "cli", "api", "ide", "scheduler", "agent"]
Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
PrincipalKind = Literal["owner", "token", "session"]

SOURCES: tuple[Source, ...] = get_args(Source)
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Principal:
    """One asker: the owner, a named token or a session, with where it asks from and how far it may go.

    `by_hand` says that the owner makes this very call with their own hands, which is its own approval.
    """

    kind: PrincipalKind
    name: str
    source: Source
    mode: Mode = "default"
    agent: str | None = None
    session: str | None = None
    cwd: str | None = None
    by_hand: bool = False

    @property
    def is_owner(self) -> bool:
        """Whether refusals may be explained in full and other sources, agents and modes may be named."""
        return self.kind == "owner"

    def to_json(self) -> JsonObject:
        """The public shape, as audit records and explanations carry it."""
        shape: JsonObject = {"kind": self.kind, "name": self.name, "source": self.source, "mode": self.mode}
        optional = {"agent": self.agent, "session": self.session, "cwd": self.cwd}
        return shape | {key: value for key, value in optional.items() if value is not None}
