"""Which upstreams should run, computed from what all projects want and what is running, and the names they have there.

A definition has one upstream however many projects use it. Only settings that change how a server is started or reached
make it a separate one; its name, tool filter and timeout do not. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolcrib.model.errors import Conflict, Denied, InvalidRequest, ToolcribError
from toolcrib.model.sandbox import OFF, Sandbox
from toolcrib.model.servers import Auth, Discovery, OtherName, Placement, ServerEntry, ServerNames, ServerSpec, Share

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


_Used = tuple[OtherName, bool]
"""A name, and whether it comes from a file that the owner trusts."""


class DefinitionNames:
    """The names of all definitions, by the project that uses them.

    One definition may be `prod` in the user's file and `harmless` in a trusted project. A server's names in other
    projects are added to its own. They count for rules that deny, ask or limit, never for rules that allow. An
    untrusted file cannot claim a name that another server uses here.
    """

    def __init__(self) -> None:
        self._used: dict[ProjectPath, Mapping[str, list[_Used]]] = {}
        self._in_force: dict[ProjectPath, Mapping[str, str]] = {}

    def set(self, place: ProjectPath, found: Discovery) -> None:
        """Replace the names used in a project."""
        used: defaultdict[str, list[_Used]] = defaultdict(list)
        in_force: dict[str, str] = {}
        for entry in found.servers:
            for each in _names_of(entry):
                used[entry.names.identity].append(each)
            if entry.spec is not None and entry.shadowed_by is None:
                in_force |= dict.fromkeys((entry.alias, entry.name, *entry.same_as), entry.names.identity)
        for identity, name in found.agreed:
            used[identity].append((name, True))
        self._used[place], self._in_force[place] = used, in_force

    def drop(self, place: ProjectPath) -> None:
        """Forget a project."""
        self._used.pop(place, None)
        self._in_force.pop(place, None)

    def of(self, place: ProjectPath, entry: ServerEntry) -> ServerNames:
        """Return all names of a server in a project. Names from other projects are among the claimed ones."""
        own, here = entry.names, self._in_force.get(place, {})
        if not own.identity:
            return own
        known = {entry.alias, *(other.name for other in own.others)}
        more: dict[str, OtherName] = {}
        for used in self._used.values():
            for other, trusted in used.get(own.identity, ()):
                is_free = here.get(other.name, own.identity) == own.identity
                if other.name not in known and (trusted or is_free):
                    more[other.name] = min(more.get(other.name, other), other)
        if not more:
            return own
        claimed = sorted((*own.claimed, *more.values()))
        return ServerNames(own.identity, own.trusted, tuple(claimed), own.bound)


def _names_of(entry: ServerEntry) -> Iterator[_Used]:
    """Yield the names of one server in its project."""
    if not entry.names.identity:
        return
    file = entry.source.file
    yield from ((OtherName(name, file), entry.trusted) for name in (entry.name, entry.alias))
    yield from ((other, True) for other in entry.names.trusted)
    yield from ((other, False) for other in entry.names.claimed)
