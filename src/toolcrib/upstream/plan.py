"""Which upstreams should run, computed from what all projects want and what is running.

A definition has one upstream however many projects use it. Only settings that change how a server is started or reached
make it a separate one; its name, tool filter and timeout do not. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolcrib.model.errors import Conflict, Denied, InvalidRequest, ToolcribError
from toolcrib.model.sandbox import OFF, Sandbox
from toolcrib.model.servers import Auth, Placement, ServerEntry, ServerSpec, Share

ProjectPath = Path | None
"""A project directory; None for servers that belong to no project."""

Wanted = Mapping[ProjectPath, Mapping[str, ServerEntry]]
"""The startable servers, by project and by their name there."""


class UpstreamKey(NamedTuple):
    """The identity of an upstream. `digest` is the one that trust is bound to."""

    file: str
    name: str
    digest: str
    share: Share
    placement: Placement
    auth: Auth | None
    reveals: bool = False
    sandbox: Sandbox = OFF


@dataclass(frozen=True, slots=True)
class Plan:
    """The definitions to start an upstream for, and the upstreams to stop."""

    start: Mapping[UpstreamKey, ServerEntry]
    stop: tuple[UpstreamKey, ...]


def key_of(entry: ServerEntry) -> UpstreamKey:
    """Return the key of a usable server's upstream."""
    spec = spec_of(entry)
    return UpstreamKey(
        entry.source.file,
        entry.name,
        entry.digest,
        spec.share,
        spec.placement,
        spec.auth,
        spec.may_reveal,
        spec.sandbox,
    )


def spec_of(entry: ServerEntry) -> ServerSpec:
    """Return the definition of a usable server."""
    assert entry.spec is not None, f"{entry.name} cannot be used"
    return entry.spec


def plan(wanted: Wanted, running: Collection[UpstreamKey]) -> Plan:
    """Return the difference between running and wanted upstreams."""
    desired = {key_of(entry): entry for entry in merge_wanted(wanted)}
    start = {key: entry for key, entry in desired.items() if key not in running}
    return Plan(start, tuple(key for key in running if key not in desired))


def merge_wanted(wanted: Wanted) -> Iterable[ServerEntry]:
    """Yield all servers, those of projects after those of none."""
    for place in sorted(wanted, key=lambda place: (place is not None, str(place))):
        yield from wanted[place].values()


def not_startable(entry: ServerEntry) -> ToolcribError:
    """Return the error that explains why a server may not be connected."""
    name, alias = entry.name, entry.alias
    match entry.state:
        case "disabled":
            message = f'Server "{name}" is disabled. Run toolcrib mcp enable {alias} first.'
            return Conflict("server.disabled", message)
        case "shadowed":
            return Conflict("server.shadowed", f'Server "{name}" is shadowed by {entry.shadowed_by}.')
        case "untrusted":
            hint = f"Review it, then run `toolcrib mcp trust {alias}`."
            return Denied("server.untrusted", f'Server "{name}" is not trusted.', hint)
        case _:
            problem = next(iter(entry.problems), None)
            return InvalidRequest("server.invalid", problem.message if problem else f'Server "{name}" is invalid.')
