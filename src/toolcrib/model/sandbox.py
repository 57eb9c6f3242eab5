"""What a stdio server may touch: the profile chosen for it, and the paths and network that result.

`Sandbox` is what the owner or a default chose. `SandboxGrants` is what one start of the server gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, get_args

from toolcrib.model.json import JsonObject

SandboxProfile = Literal["off", "learn", "project", "strict"]
SandboxNetwork = Literal["none", "hosts", "all"]
PROFILES: Final[tuple[SandboxProfile, ...]] = get_args(SandboxProfile)


def profile_of(value: object) -> SandboxProfile | None:
    """Return the profile of this name, or None."""
    return next((profile for profile in PROFILES if profile == value), None)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one server. `chosen`: the owner set it, so a server that cannot have it does not start.

    `read` and `write` are paths that the owner allows besides those of the profile. `network` overrides the profile.
    With `hosts` the server reaches only these, through the crib's proxy, unless `network` is True.
    """

    profile: SandboxProfile = "off"
    chosen: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool | None = None
    hosts: tuple[str, ...] = ()

    @property
    def is_confined(self) -> bool:
        """Whether the profile restricts the server."""
        return self.profile in ("project", "strict")

    @property
    def reach(self) -> SandboxNetwork:
        """Which network the server may use."""
        if self.hosts and self.network is None and self.is_confined:
            return "hosts"
        is_on = self.network if self.network is not None else self.profile != "strict"
        return "all" if is_on else "none"

    def to_json(self) -> JsonObject:
        """Return the public shape (`sandbox` of a server)."""
        return {
            "profile": self.profile,
            "chosen": self.chosen,
            "read": list(self.read),
            "write": list(self.write),
            "network": self.reach,
            "hosts": list(self.hosts),
        }


OFF: Final = Sandbox()


@dataclass(frozen=True, slots=True)
class RefusedAccess:
    """Something that a sandbox refused: `target` is a path, or a host if it is known."""

    kind: Literal["read", "write", "network", "host"]
    target: str = ""

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"kind": self.kind, "target": self.target}


@dataclass(frozen=True, slots=True)
class SandboxGrants:
    """What one start of a server gets. `create` are directories to create first, readable by the user only.

    `sockets`: it may use local sockets. With the network `hosts` it reaches the proxy at `port` only; on Linux `guard`
    is the descriptor that the launcher sends the listener of `connect` calls to.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: SandboxNetwork = "all"
    create: tuple[str, ...] = ()
    sockets: bool = False
    port: int = 0
    guard: int = -1

    def allows(self, path: str, *, write: bool = False) -> bool:
        """Return whether a path, already resolved, is inside what is granted."""
        return _covers(self.write, path) or (not write and _covers(self.read, path))


def _covers(granted: Sequence[str], path: str) -> bool:
    around = PurePath(path)
    return not {str(around), *map(str, around.parents)}.isdisjoint(granted)  # quick, also for thousands of grants
