"""Which links there should be: a function of what all places want and of what runs. And why one may not be.

A definition has one link, whoever wants it: what stands in the person's files is one server for all places. Only what
decides how a server is started or reached makes it another link; its name here, its filter and its time-out do not.

Above: `pool`. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import Conflict, Denied, InvalidRequest, ToolcribError
from toolcrib.model.servers import Auth, ServerEntry, ServerSpec, Share

Place = Path | None
"""A working directory; None for what belongs to no project."""

Wanted = Mapping[Place, Mapping[str, ServerEntry]]
"""The servers that may be connected, by place and by the name they have there."""


class LinkKey(NamedTuple):
    """What makes a link another one. `digest` is what trust is bound to."""

    file: str
    name: str
    digest: str
    share: Share
    auth: Auth | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: definitions without a link, and links that nobody wants."""

    start: Mapping[LinkKey, ServerEntry]
    stop: tuple[LinkKey, ...]


def key_of(entry: ServerEntry) -> LinkKey:
    """The link of a server that can be used."""
    spec = spec_of(entry)
    return LinkKey(entry.source.file, entry.name, entry.digest, spec.share, spec.auth)


def spec_of(entry: ServerEntry) -> ServerSpec:
    """The definition of a server that can be used."""
    assert entry.spec is not None, f"{entry.name} cannot be used"
    return entry.spec


def plan(wanted: Wanted, running: Collection[LinkKey]) -> Plan:
    """What separates the links that run from those that are wanted."""
    desired = {key_of(entry): entry for entry in everybody(wanted)}
    start = {key: entry for key, entry in desired.items() if key not in running}
    return Plan(start, tuple(key for key in running if key not in desired))


def everybody(wanted: Wanted) -> Iterable[ServerEntry]:
    """All servers of all places; those of a project after those that belong to none, so that their word is last."""
    for place in sorted(wanted, key=lambda place: (place is not None, str(place))):
        yield from wanted[place].values()


def not_startable(entry: ServerEntry) -> ToolcribError:
    """Why a server may not be connected, as whoever wanted it is told."""
    name, alias = entry.name, entry.alias
    match entry.state:
        case "disabled":
            message = f'Server "{name}" is disabled. Run toolcrib mcp enable {alias} first.'
            return Conflict("server.disabled", message)
        case "shadowed":
            return Conflict("server.shadowed", f'Server "{name}" is shadowed by {entry.shadowed_by}.')
        case "untrusted":
            hint = f"Look at it, then run `toolcrib mcp trust {alias}`."
            return Denied("server.untrusted", f'Server "{name}" is not trusted.', hint)
        case _:
            problem = next(iter(entry.problems), None)
            return InvalidRequest("server.invalid", problem.message if problem else f'Server "{name}" is invalid.')
