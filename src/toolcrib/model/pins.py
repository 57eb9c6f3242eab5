"""Pins: the accepted definitions of a server's tools, prompts, resources, skills and instructions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from toolcrib.model.json import JsonObject

PinKind = Literal["tool", "prompt", "resource", "template", "skill", "instructions"]
"""The kind of definition. `instructions` are those of the server, with its title; each server has one."""
PIN_KINDS: tuple[PinKind, ...] = get_args(PinKind)


@dataclass(frozen=True, slots=True)
class HeldDefinition:
    """A definition that differs from the pin and is held; `rejected_by` is set once a person rejected it."""

    hash: str
    definition: JsonObject
    since: datetime
    rejected_by: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """The accepted definition of one item. `server` is the result of `pin_place`, `tool` its name or URI.

    `accepted_by` is the person who accepted it, or None if it was pinned on first use. A pin without a hash has no
    accepted definition: the first one is held.
    """

    server: str
    tool: str
    hash: str
    definition: JsonObject
    pinned_at: datetime
    accepted_by: str | None = None
    held: HeldDefinition | None = None

    @property
    def counts(self) -> bool:
        """Whether there is an accepted definition."""
        return bool(self.hash)


def pin_place(identity: str, kind: PinKind) -> str:
    """Return the key under which pins of one kind are stored. Identities are digests, so keys cannot collide."""
    return identity if kind == "tool" else f"{identity}#{kind}"


def kind_of_place(place: str) -> PinKind:
    """Return the kind of pins stored under a key."""
    for kind in PIN_KINDS:
        if place.endswith(f"#{kind}"):
            return kind
    return "tool"
