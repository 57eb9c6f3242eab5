"""The names a server definition has in any known project, so that a rule against one of them applies everywhere.

One definition may be `prod` in the user's file and `harmless` in a trusted project. A server's names in other projects
are added to its own. They count for rules that deny, ask or limit, never for rules that allow. An untrusted file cannot
claim a name that another server uses here. Pure.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from toolcrib.model.servers import Discovery, OtherName, ServerEntry, ServerNames
from toolcrib.upstream.plan import ProjectPath

_Used = tuple[OtherName, bool]
"""A name, and whether it comes from a file that the owner trusts."""


class DefinitionNames:
    """The names of all definitions, by the project that uses them."""

    def __init__(self) -> None:
        self._used: dict[ProjectPath, Mapping[str, list[_Used]]] = {}
        self._in_force: dict[ProjectPath, Mapping[str, str]] = {}

    def set(self, place: ProjectPath, found: Discovery) -> None:
        """Replace the names used in a project."""
        used: defaultdict[str, list[_Used]] = defaultdict(list)
        in_force: dict[str, str] = {}
        for entry in found.servers:
            for each in _used(entry):
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


def _used(entry: ServerEntry) -> Iterator[_Used]:
    """Yield the names of one server in its project."""
    if not entry.names.identity:
        return
    file = entry.source.file
    yield from ((OtherName(name, file), entry.trusted) for name in (entry.name, entry.alias))
    yield from ((other, True) for other in entry.names.trusted)
    yield from ((other, False) for other in entry.names.claimed)
