"""All servers of this machine, seen from one working directory: read every place, judge each entry, then merge.

Reading resolves no secret, starts nothing and opens no socket. `merge` is a function of what was read, whatever the
order: an entry that cannot be used never hides one that can, and nothing that was found is left out.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolcrib.config.crib_entry import crib_entry
from toolcrib.config.identity import aliases, identity
from toolcrib.config.masking import mask_definition
from toolcrib.config.places import Surroundings, all_places, project_directories
from toolcrib.config.readers.dialect import ClientRule
from toolcrib.config.readers.fields import judge
from toolcrib.config.readers.read import FileReading, Place, ReadEntry, read_place
from toolcrib.config.readers.rules import switches_off
from toolcrib.config.resolve import missing
from toolcrib.config.trust import definition_digest
from toolcrib.config.values import as_object
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec, Source

BUILT_IN = frozenset({"toolcrib", "agent_zoo", "crew"})
"""Names of servers that are always there; a found one of that name gets another alias."""

ReadFile = Callable[[Place, tuple[Path, ...], str], FileReading | None]
Priority = tuple[int, int, int, int, str, int, str]


def discover(
    environment: Mapping[str, str],
    cwd: Path,
    *,
    home: Path,
    crib: Path,
    trusted: Callable[[ServerSpec], bool],
    platform: str = sys.platform,
    read: ReadFile = read_place,
) -> Discovery:
    """Every server that a tool is configured to use in `cwd`, or anywhere for the person in `home`."""
    around = surroundings(environment, cwd, home=home, crib=crib, platform=platform)
    found = (read(place, around.directories, platform) for place in all_places(around))
    merged = merge([reading for reading in found if reading is not None], environment, trusted)
    return replace(merged, project=str(around.project))


def surroundings(
    environment: Mapping[str, str], cwd: Path, *, home: Path, crib: Path, platform: str = sys.platform
) -> Surroundings:
    """What the places of files depend on."""
    directories, project = project_directories(cwd)
    return Surroundings(home, crib, environment, directories, project, platform)


def merge(
    readings: Iterable[FileReading],
    environment: Mapping[str, str],
    trusted: Callable[[ServerSpec], bool],
    reserved: Collection[str] = BUILT_IN,
) -> Discovery:
    """One list of what several files say."""
    files = sorted(readings, key=lambda reading: (reading.place.rank, str(reading.place.file)))
    rules = [rule for reading in files for rule in reading.rules]
    overlays: JsonObject = {}
    for reading in files:
        overlays |= (reading.overlays or {}) if reading.place.scope == "user" else {}
    entries = sorted((entry for reading in files for entry in reading.entries), key=_priority)
    rows = [_row(entry, rules, overlays, environment) for entry in _overlaid(entries)]
    hidden = [row for row in rows if row.hidden]
    shown = _folded([row for row in rows if not row.hidden])
    names = aliases(((row.entry.name, row.key) for row in sorted(shown + hidden, key=_alias_order)), reserved)
    servers = [_finished(row, names, trusted) for row in sorted(shown, key=_listing_order)]
    return Discovery(
        tuple(servers),
        tuple(problem for reading in files for problem in reading.problems),
        tuple(_finished(row, names, trusted) for row in hidden),
        files=tuple(str(reading.place.file) for reading in files),
    )


def overlay_key(source: Source, name: str) -> str:
    """The key under which our own file speaks about a server of another file, or of one project in it."""
    part = f"#{source.directory}" if source.scope == "local" else ""
    return f"{source.file}{part}#{name}"


@dataclass(slots=True)
class _Row:
    """One entry while the list is made."""

    entry: ReadEntry
    spec: ServerSpec | None
    problems: tuple[Problem, ...]
    hidden: bool = False
    is_crib: bool = False
    equals: "list[_Row]" = field(default_factory=lambda: list[_Row]())
    same_as: list[str] = field(default_factory=list[str])
    shadowed_by: "_Row | None" = None

    @property
    def key(self) -> str:
        return f"{self.entry.source.file}#{'/'.join(str(part) for part in self.entry.path)}"


def _priority(entry: ReadEntry) -> Priority:
    """Managed, then the nearest directory, then the person's own; within a level our file, Claude's, the table."""
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


def _overlaid(entries: list[ReadEntry]) -> list[ReadEntry]:
    """For clients that lay their files over each other: an entry without endpoint takes it from the next one below."""
    result: list[ReadEntry] = []
    for index, entry in enumerate(entries):
        if entry.spec is None and entry.place.dialect.merges:
            below = next((other for other in entries[index + 1 :] if _lies_under(other, entry)), None)
            entry = _over(entry, below) if below is not None else entry
        result.append(entry)
    return result


def _lies_under(other: ReadEntry, entry: ReadEntry) -> bool:
    return other.name == entry.name and other.source.client == entry.source.client and other.spec is not None


def _over(entry: ReadEntry, below: ReadEntry) -> ReadEntry:
    raw = _laid_over(below.raw, entry.raw)
    judged = judge(entry.name, raw, entry.place.dialect, entry.source)
    return replace(entry, raw=raw, spec=judged.spec, problems=judged.problems)


def _laid_over(below: JsonObject, above: JsonObject) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        upper, lower = as_object(value), as_object(merged.get(key))
        merged[key] = _laid_over(lower, upper) if upper is not None and lower is not None else value
    return merged


def _row(entry: ReadEntry, rules: list[ClientRule], overlays: JsonObject, environment: Mapping[str, str]) -> _Row:
    spec, problems = entry.spec, entry.problems
    is_crib = spec is not None and crib_entry(spec) is not None
    overlay = as_object(overlays.get(overlay_key(entry.source, entry.name))) or {}
    if spec is not None:
        off = [_switched_off(spec, rule) for rule in rules if switches_off(rule, spec)]
        own = [_own_crib(spec)] if is_crib else []
        said = overlay.get("enabled")
        enabled = said if isinstance(said, bool) else spec.enabled and not off
        spec = replace(spec, enabled=enabled and not own)
        problems = (*problems, *off, *own, *missing(spec, environment))
    return _Row(entry, spec, problems, overlay.get("hidden") is True, is_crib)


def _switched_off(spec: ServerSpec, rule: ClientRule) -> Problem:
    message = f'Server "{spec.name}" is switched off by "{rule.origin}" in {rule.file}'
    return Problem("server.switched_off", message, file=rule.file)


def _own_crib(spec: ServerSpec) -> Problem:
    message = f'Server "{spec.name}" is this crib itself, so it is not connected to'
    return Problem("server.own_crib", message, file=spec.source.file, line=spec.source.line)


def _folded(rows: list[_Row]) -> list[_Row]:
    """The rows of the list, highest priority first in and out: equal servers become one, equal names shadow."""
    by_name: dict[str, _Row] = {}
    by_identity: dict[tuple[str, bool], _Row] = {}
    kept: list[_Row] = []
    for row in rows:
        spec = row.spec
        if spec is None:
            kept.append(row)
            continue
        # However a tool reaches this crib, and with whatever secret, it is one and the same server.
        same = ("crib" if row.is_crib else identity(spec), spec.enabled)
        named, equal = by_name.get(spec.name), by_identity.get(same)
        if equal is not None and (named is None or named is equal):
            equal.equals.append(row)
            if spec.name != equal.entry.name and spec.name not in equal.same_as:
                equal.same_as.append(spec.name)
            by_name[spec.name] = equal
            continue
        if named is None:
            by_name[spec.name] = row
            by_identity.setdefault(same, row)
        else:
            row.shadowed_by = named
        kept.append(row)
    return kept


def _alias_order(row: _Row) -> tuple[bool, bool, Priority]:
    """Who gets a plain name first: what is in force, then what is shadowed, then what cannot be used."""
    return row.spec is None or row.hidden, row.shadowed_by is not None, _priority(row.entry)


def _listing_order(row: _Row) -> tuple[str, str, Priority]:
    return row.entry.name.casefold(), row.entry.name, _priority(row.entry)


def _finished(row: _Row, names: dict[tuple[str, str], str], trusted: Callable[[ServerSpec], bool]) -> ServerEntry:
    shadow = row.shadowed_by
    # Equal definitions are one server: one that was agreed to is not undone by a project that repeats it.
    usable = [each for each in (row, *row.equals) if each.spec is not None and trusted(each.spec)]
    chosen = usable[0] if usable else row
    alias = names[row.entry.name, row.key]
    spec = replace(chosen.spec, name=row.entry.name, alias=alias) if chosen.spec is not None else None
    return ServerEntry(
        name=row.entry.name,
        alias=alias,
        source=chosen.entry.source,
        definition=mask_definition(chosen.entry.raw),
        spec=spec,
        sources=tuple(each.entry.source for each in (row, *row.equals)),
        enabled=spec.enabled if spec is not None else False,
        trusted=bool(usable),
        digest=definition_digest(chosen.spec) if chosen.spec is not None else "",
        shadowed_by=names[shadow.entry.name, shadow.key] if shadow is not None else None,
        same_as=tuple(row.same_as),
        problems=row.problems,
    )
