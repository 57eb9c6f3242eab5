"""Discovers all servers of this machine for one working directory: read every file, judge each entry, merge.

Reading resolves no secret, starts nothing and opens no socket. `merge` does not depend on the order of its input: an
unusable entry never hides a usable one, and nothing found is left out.
"""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from toolcrib.base.named_secrets import SecretRecord
from toolcrib.model.errors import CODES
from toolcrib.model.json import JsonObject, as_object
from toolcrib.model.problems import Problem
from toolcrib.model.servers import DefinitionSource, Discovery, ServerEntry, ServerSpec
from toolcrib.servers.crib_entry import crib_entry
from toolcrib.servers.extensions import config_files
from toolcrib.servers.masking import mask_definition
from toolcrib.servers.merge import MergedRow, Server, fold, priority, row
from toolcrib.servers.places import Machine, project_directories
from toolcrib.servers.readers.dialect import ClientRule
from toolcrib.servers.readers.fields import judge
from toolcrib.servers.readers.read import ConfigFile, FileReading, ReadEntry, read_place
from toolcrib.servers.readers.rules import switches_off
from toolcrib.servers.resolve import NOTHING_STORED, missing
from toolcrib.servers.sandbox import sandbox_of, sandbox_problems
from toolcrib.servers.trust import definition_digest

logger = logging.getLogger(__name__)

BUILT_IN = frozenset({"toolcrib", "agent_zoo", "crew", "claude_code"})
"""Names of built-in servers; a discovered server of the same name gets another alias."""

_SWITCHES = frozenset({"enabled", "disabled"})

ReadFile = Callable[[ConfigFile, tuple[Path, ...], str], FileReading | None]


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
    """Return every server that an app is configured to use in `cwd`, or for the user in `home`."""
    around = surroundings(environment, cwd, home=home, crib=crib, platform=platform)
    places = config_files(around)
    found = (read(place, around.directories, platform) for place in places.files)
    return compose(around, [reading for reading in found if reading is not None], trusted, places.problems)


def compose(
    around: Machine,
    readings: Iterable[FileReading],
    trusted: Callable[[ServerSpec], bool],
    problems: Iterable[Problem] = (),
) -> Discovery:
    """Return the discovery of these readings, with these problems first and a hint on every problem that has one."""
    merged = merge(readings, around.environment, trusted, stored=around.secrets)
    project = str(around.project) if around.project is not None else None
    return _add_hints(replace(merged, project=project, problems=(*problems, *merged.problems)))


def surroundings(
    environment: Mapping[str, str], cwd: Path, *, home: Path, crib: Path, platform: str = sys.platform
) -> Machine:
    """Return the machine as seen from `cwd`, which determines the paths of files."""
    directories, project = project_directories(cwd)
    return Machine(home, crib, environment, directories, project, platform)


def merge(
    readings: Iterable[FileReading],
    environment: Mapping[str, str],
    trusted: Callable[[ServerSpec], bool],
    reserved: Collection[str] = BUILT_IN,
    *,
    stored: Mapping[str, SecretRecord] = NOTHING_STORED,
) -> Discovery:
    """Merge the entries of several files into one list."""
    files = sorted(readings, key=lambda reading: (reading.place.rank, str(reading.place.file)))
    rules = [(reading.place, rule) for reading in files for rule in reading.rules]
    overlays: JsonObject = {}
    for reading in files:
        overlays |= (reading.overlays or {}) if reading.place.scope == "user" else {}
    entries = sorted((entry for reading in files for entry in reading.entries), key=priority)
    rows = [_safe_row(entry, rules, overlays, _Known(environment, stored), trusted) for entry in _overlaid(entries)]
    shown, hidden = fold(rows, reserved)
    return Discovery(
        tuple(map(_to_entry, shown)),
        tuple(problem for reading in files for problem in reading.problems),
        tuple(map(_to_entry, hidden)),
        files=tuple(str(reading.place.file) for reading in files),
    )


def _add_hints(discovery: Discovery) -> Discovery:
    """Return the same with a hint on every problem that has one in the table of codes."""

    def with_hints(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        return tuple(replace(problem, hint=problem.hint or CODES[problem.code].hint) for problem in problems)

    def each(servers: tuple[ServerEntry, ...]) -> tuple[ServerEntry, ...]:
        return tuple(replace(server, problems=with_hints(server.problems)) for server in servers)

    return replace(
        discovery,
        servers=each(discovery.servers),
        hidden=each(discovery.hidden),
        problems=with_hints(discovery.problems),
    )


def overlay_key(source: DefinitionSource, name: str) -> str:
    """Return the key of the overlay in our own file for a server of another file, or of one project in it."""
    part = f"#{source.directory}" if source.scope == "local" else ""
    return f"{source.file}{part}#{name}"


def _overlaid(entries: list[ReadEntry]) -> list[ReadEntry]:
    """Complete entries without an endpoint from the next lower file, for apps that merge their files."""
    result: list[ReadEntry] = []
    for index, entry in enumerate(entries):
        if entry.spec is None and entry.place.dialect.merges and not _is_misplaced(entry):
            below = next((other for other in entries[index + 1 :] if _lies_under(other, entry)), None)
            entry = _over(entry, below) if below is not None else entry
        result.append(entry)
    return result


def _is_misplaced(entry: ReadEntry) -> bool:
    """Return whether the app does not read this entry, so that it completes no other."""
    return any(problem.code == "server.misplaced" for problem in entry.problems)


def _lies_under(other: ReadEntry, entry: ReadEntry) -> bool:
    return other.name == entry.name and other.source.client == entry.source.client and other.spec is not None


def _over(entry: ReadEntry, below: ReadEntry) -> ReadEntry:
    """Merge an entry over a lower one. A project may override nothing but the switch of an entry outside it."""
    is_foreign = entry.source.project is not None and below.source.project != entry.source.project
    if is_foreign and not entry.raw.keys() <= _SWITCHES:
        return replace(entry, problems=(_foreign(entry, below),))
    raw = _laid_over(below.raw, entry.raw)
    judged = judge(entry.name, raw, entry.place.dialect, entry.source)
    return replace(entry, raw=raw, spec=judged.spec, problems=judged.problems)


def _foreign(entry: ReadEntry, below: ReadEntry) -> Problem:
    message = (
        f'Invalid server config: Server "{entry.name}": it changes the entry in {below.source.file}, '
        "which a project's file must not do"
    )
    hint = "Give the project's entry its own command or URL, or remove it."
    return Problem("server.invalid", message, hint, entry.source.file, entry.source.line)


def _laid_over(below: JsonObject, above: JsonObject) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        upper, lower = as_object(value), as_object(merged.get(key))
        merged[key] = _laid_over(lower, upper) if upper is not None and lower is not None else value
    return merged


class _Known(NamedTuple):
    """What references can be resolved with: variables, and the records of stored secrets."""

    environment: Mapping[str, str]
    secrets: Mapping[str, SecretRecord]


def _safe_row(
    entry: ReadEntry,
    rules: list[tuple[ConfigFile, ClientRule]],
    overlays: JsonObject,
    known: "_Known",
    trusted: Callable[[ServerSpec], bool],
) -> MergedRow:
    """Return the row of an entry; one that cannot be judged becomes invalid and does not affect the others."""
    try:
        return _row(entry, rules, overlays, known, trusted)
    except Exception as error:  # boundary: an entry may contain something unforeseen
        logger.exception("The server %r in %s could not be judged.", entry.name, entry.source.file)
        message = f'Invalid server config: Server "{entry.name}": it cannot be read ({type(error).__name__})'
        return row(entry, None, (Problem("server.invalid", message, None, entry.source.file, entry.source.line),))


def _row(
    entry: ReadEntry,
    rules: list[tuple[ConfigFile, ClientRule]],
    overlays: JsonObject,
    known: "_Known",
    trusted: Callable[[ServerSpec], bool],
) -> MergedRow:
    spec, problems = entry.spec, entry.problems
    is_crib = spec is not None and crib_entry(spec) is not None
    overlay = as_object(overlays.get(overlay_key(entry.source, entry.name))) or {}
    if spec is not None:
        applicable = (rule for place, rule in rules if _applies_to(place, spec))
        off = [_switched_off(spec, rule) for rule in applicable if switches_off(rule, spec)]
        own = [_own_crib(spec)] if is_crib else []
        switch = overlay.get("enabled")
        enabled = switch if isinstance(switch, bool) else spec.enabled and not off
        enabled = enabled and not own
        spec = replace(spec, enabled=enabled, sandbox=sandbox_of(spec, overlay))
        refused = (
            *_foreign_credential(spec),
            *missing(spec, known.environment, known.secrets),
            *sandbox_problems(spec),
        )
        problems = (*problems, *off, *own, *refused)
    made = row(entry, spec, problems, trusted=spec is not None and trusted(spec))
    made.definition = mask_definition(entry.raw)
    made.hidden, made.is_crib = overlay.get("hidden") is True, is_crib
    return made


def _applies_to(place: ConfigFile, spec: ServerSpec) -> bool:
    """Return whether settings in this file apply to a server: those of a project apply only to its own servers."""
    return place.project is None or str(place.project) == spec.source.project


def _foreign_credential(spec: ServerSpec) -> tuple[Problem, ...]:
    """Report that a project names a credential; it can only use sign-ins made for its own servers."""
    named = spec.auth.credential_id if spec.auth is not None else None
    if named is None or spec.source.project is None:
        return ()
    message = f'Server "{spec.name}" names the credential "{named}", which servers of projects cannot use'
    hint = f"Sign in for this server alone: `toolcrib mcp auth {spec.name}`." if spec.url is not None else None
    return (Problem("oauth.required", message, hint, spec.source.file, spec.source.line),)


def _switched_off(spec: ServerSpec, rule: ClientRule) -> Problem:
    message = f'Server "{spec.name}" is disabled by "{rule.origin}" in {rule.file}'
    return Problem("server.switched_off", message, file=rule.file)


def _own_crib(spec: ServerSpec) -> Problem:
    message = f'Server "{spec.name}" is this crib itself and is never connected'
    return Problem("server.own_crib", message, file=spec.source.file, line=spec.source.line)


def _to_entry(server: Server) -> ServerEntry:
    main, shadow = server.main, server.shadowed_by
    name = main.entry.name
    spec = replace(main.spec, name=name, alias=server.alias) if main.spec is not None else None
    return ServerEntry(
        name=name,
        alias=server.alias,
        source=main.entry.source,
        definition=main.definition,
        spec=spec,
        sources=tuple(each.entry.source for each in server.rows),
        enabled=spec.enabled if spec is not None else False,
        trusted=main.trusted,
        digest=definition_digest(main.spec) if main.spec is not None else "",
        shadowed_by=shadow.alias if shadow is not None else None,
        same_as=server.same_as,
        names=server.names,
        problems=main.problems,
    )
