"""Merges the entries of many files into one list: equal definitions become one server, equal names shadow each other.

Trust is decided before priority. An untrusted entry never names or shadows a trusted server, and its names count only
where they make the crib stricter. The result depends on the entries alone, not on the order they were read in.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.model.json import JsonObject, digest
from toolcrib.model.problems import Problem
from toolcrib.model.servers import OtherName, ServerNames, ServerSpec
from toolcrib.servers.identity import aliases, identity
from toolcrib.servers.readers.read import ReadEntry

Priority = tuple[int, int, int, int, str, int, str]


@dataclass(slots=True, eq=False)
class MergedRow:
    """One entry while the list is built. `identity` is empty if it is unusable; `definition` is masked."""

    entry: ReadEntry
    spec: ServerSpec | None
    problems: tuple[Problem, ...]
    trusted: bool = False
    hidden: bool = False
    is_crib: bool = False
    identity: str = ""
    definition: JsonObject = field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """Identifies the entry, even among entries of one name in one file."""
        return f"{self.entry.source.file}#{'/'.join(str(part) for part in self.entry.path)}"

    @property
    def is_enabled(self) -> bool:
        """Whether the entry is enabled."""
        return self.spec is not None and self.spec.enabled


@dataclass(slots=True, eq=False)
class Server:
    """The entries that make up one server; `main` provides its name and definition."""

    main: MergedRow
    rows: list[MergedRow] = field(default_factory=list[MergedRow])
    shadowed_by: "Server | None" = None
    alias: str = ""
    names: ServerNames = field(default_factory=ServerNames)

    @property
    def same_as(self) -> tuple[str, ...]:
        """The other names of its entries."""
        return tuple(dict.fromkeys(row.entry.name for row in self.rows if row.entry.name != self.main.entry.name))


def row(
    entry: ReadEntry, spec: ServerSpec | None, problems: tuple[Problem, ...], *, trusted: bool = False
) -> MergedRow:
    """Return the row of an entry."""
    return MergedRow(entry, spec, problems, trusted, identity=identity(spec) if spec is not None else "")


def priority(entry: ReadEntry) -> Priority:
    """Return the sort key: managed, nearest directory, user; within a scope our file, Claude's, then table order."""
    place, source = entry.place, entry.source
    directory = place.directory
    level = 0 if source.scope == "managed" else 1 if directory is not None else 2
    nearness = -len(directory.parts) if directory is not None else 0
    if place.format == "toolcrib":
        order = 0
    elif source.scope == "local":
        order = 1
    else:
        order = 2 if place.format == "claude-code" else 3
    return level, nearness, order, place.rank, source.file, source.line or 0, entry.name


def fold(rows: Iterable[MergedRow], reserved: Collection[str]) -> tuple[list[Server], list[Server]]:
    """Return the listed servers and the hidden ones, each with its alias and all its names."""
    listed = sorted(rows, key=lambda each: (not each.trusted, priority(each.entry)))
    shown, in_force = _fold_rows([each for each in listed if not each.hidden])
    hidden = [Server(each, [each]) for each in listed if each.hidden]
    _give_aliases(shown + hidden, reserved)
    taken = {server.alias: server for server in shown} | dict.fromkeys(reserved)
    alike: defaultdict[str, list[Server]] = defaultdict(list)
    for server in shown:
        alike[server.main.identity].append(server)
    for server in shown:
        if server.main.identity:
            server.names = _names(server, alike[server.main.identity], in_force, taken)
    return sorted(shown, key=_listing_order), hidden


def _fold_rows(rows: list[MergedRow]) -> tuple[list[Server], Mapping[str, Server]]:
    """Merge rows, trusted ones first; return the servers and the server in force for each name."""
    in_force: dict[str, Server] = {}
    by_identity: dict[tuple[str, bool], Server] = {}
    servers: list[Server] = []
    for each in rows:
        if each.spec is None:
            servers.append(Server(each, [each]))
            continue
        # However an app reaches this crib, and with whatever secret, it is the same server.
        same = ("crib" if each.is_crib else each.identity, each.is_enabled)
        named, equal = in_force.get(each.entry.name), by_identity.get(same)
        if equal is not None and (named is None or named is equal):
            equal.rows.append(each)
            in_force[each.entry.name] = equal
            continue
        server = Server(each, [each], named)
        servers.append(server)
        if named is None:
            in_force[each.entry.name] = by_identity[same] = server
    for server in servers:
        server.rows.sort(key=_main_order)
        server.main = server.rows[0]
    return servers, in_force


def _main_order(each: MergedRow) -> tuple[bool, int, Priority]:
    """Order the entries that may name a server: trusted, then managed, user and project."""
    source = each.entry.source
    level = 2 if source.project is not None else 0 if source.scope == "managed" else 1
    return not each.trusted, level, priority(each.entry)


def _give_aliases(servers: list[Server], reserved: Collection[str]) -> None:
    """Assign aliases: usable servers choose first, then trusted ones, then those in force."""

    def order(server: Server) -> tuple[bool, bool, bool, Priority]:
        main = server.main
        unusable = main.spec is None or main.hidden
        return unusable, not main.trusted, server.shadowed_by is not None, priority(main.entry)

    ordered = sorted(servers, key=order)
    wanted = [(server.main.entry.name, server.main.key, _trusted_names(server)) for server in ordered]
    given = aliases(wanted, reserved)
    for server in ordered:
        server.alias = given[server.main.entry.name, server.main.key]


def _trusted_names(server: Server) -> frozenset[str]:
    """Return the names of a server in force that are reserved for it."""
    if server.shadowed_by is not None or server.main.hidden:
        return frozenset()
    return frozenset(each.entry.name for each in server.rows if each.trusted)


def _names(
    server: Server, alike: list[Server], in_force: Mapping[str, Server], taken: Mapping[str, Server | None]
) -> ServerNames:
    """Return every name of a definition, from all servers with its identity: shadowed and disabled ones, too."""
    trusted: dict[str, OtherName] = {}
    claimed: dict[str, OtherName] = {}
    for other in alike:
        for each in other.rows:
            name, file = each.entry.name, each.entry.source.file
            meant = in_force.get(name)
            if other is server and each.trusted and meant is server and taken.get(name, server) is server:
                trusted.setdefault(name, OtherName(name, file))
            elif each.trusted or meant is None or meant.main.identity == server.main.identity:
                claimed.setdefault(name, OtherName(name, file))
    for known in (trusted, claimed):
        known.pop(server.alias, None)
    return ServerNames(
        server.main.identity,
        tuple(trusted[name] for name in sorted(trusted)),
        tuple(claimed[name] for name in sorted(claimed) if name not in trusted),
        _identity_in_project(server.main),
    )


def _identity_in_project(main: MergedRow) -> str:
    """Return the identity; for a project's program it includes the directory, where the same words mean other files."""
    source = main.entry.source
    is_local = main.spec is not None and main.spec.url is None and source.project is not None
    return digest([main.identity, source.directory or source.project]) if is_local else main.identity


def _listing_order(server: Server) -> tuple[str, str, Priority]:
    entry = server.main.entry
    return entry.name.casefold(), entry.name, priority(entry)
