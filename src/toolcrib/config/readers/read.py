"""Reads one file of one client: text to definitions and problems. Nothing in it is followed, expanded or started.

Above it `discover` merges many files. A file that cannot be used gives one problem and is marked `broken`, so that a
watcher can keep what it last said.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from toolcrib.config.files import FileText, Unreadable, read_text
from toolcrib.config.readers.clients import FORMATS
from toolcrib.config.readers.dialect import ClientRule, Context, Dialect, Found
from toolcrib.config.readers.fields import judge
from toolcrib.config.syntax import jsonc, toml, yaml
from toolcrib.config.syntax.document import Document, Family, Key, KeyPath, SyntaxProblem, unread
from toolcrib.config.values import as_object, at
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Scope, ServerSpec, Source

PARSERS: Mapping[Family, Callable[[str], Document]] = {
    "json": jsonc.parse,
    "toml": toml.parse,
    "yaml": yaml.parse,
    "script": unread,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A file some client may keep servers in.

    `format` is a row of `FORMATS`, `rank` its place in the order of clients, `directory` the project directory it
    belongs to and `project` the real path of the whole project; both None above projects.
    """

    format: str
    scope: Scope
    file: Path
    rank: int = 0
    directory: Path | None = None
    project: Path | None = None

    @property
    def dialect(self) -> Dialect:
        """The format of this file."""
        return FORMATS[self.format]


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """One entry as read: what was written (`raw`), the definition if it is usable, what there is to say."""

    name: str
    source: Source
    raw: JsonObject
    spec: ServerSpec | None
    problems: tuple[Problem, ...]
    place: Place
    path: KeyPath


@dataclass(frozen=True, slots=True)
class FileReading:
    """All that one file says. `digest` is the version that was read."""

    place: Place
    entries: tuple[ReadEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    rules: tuple[ClientRule, ...] = ()
    overlays: JsonObject | None = None
    broken: bool = False
    digest: str | None = None


def read_place(place: Place, directories: tuple[Path, ...] = (), platform: str = "linux") -> FileReading | None:
    """Read a file; None if it is not there."""
    content = read_text(place.file, within=place.project)
    if content is None:
        return None
    if isinstance(content, Unreadable):
        return FileReading(place, problems=(content.problem,), broken=True)
    return read_content(place, content, Context(place.file, directories, platform))


def family_of(place: Place) -> Family:
    """The syntax of a file: what its name says, else what its client writes."""
    return "json" if place.file.suffix in (".json", ".jsonc") else place.dialect.family


def read_content(place: Place, content: FileText, context: Context) -> FileReading:
    """The same for a text that is at hand."""
    dialect = place.dialect
    family = family_of(place)
    if not content.text.strip():
        empty = _file_problem(place, "config.empty", "the file is empty", None) if dialect.dedicated else None
        return FileReading(place, problems=(empty,) if empty else (), digest=content.digest)
    try:
        document = PARSERS[family](content.text)
    except SyntaxProblem as problem:
        message = f"not valid {family.upper()}: {problem.reason}"
        found = _file_problem(place, "config.syntax", message, problem.line)
        return FileReading(place, problems=(found,), broken=True, digest=content.digest)
    return _read_document(place, document, content, context)


def _read_document(place: Place, document: Document, content: FileText, context: Context) -> FileReading:
    dialect = place.dialect
    layout = dialect.find(document.value, dialect, context)
    lines = _Lines(document)
    problems = [_file_problem(place, "config.layout", text, lines.at(path)) for text, path in layout.oddities]
    problems += _dialect_problems(place, document, content)
    entries: list[ReadEntry] = []
    for found in layout.entries:
        line = lines.at(found.path)
        if found.built_in is not None:
            message = f'"{found.name}" is a part of {dialect.title} ({found.built_in}), not a server to connect to'
            problems.append(_file_problem(place, "server.built_in", message, line))
        else:
            entries.append(_read_entry(place, found, line))
    overlays = as_object(at(document.value, "overlays")) if place.format == "toolcrib" else None
    return FileReading(
        place,
        tuple(entries),
        tuple(problems),
        dialect.rules(document.value, dialect, str(place.file)),
        overlays,
        digest=content.digest,
    )


def _read_entry(place: Place, found: Found, line: int | None) -> ReadEntry:
    scope = found.scope or place.scope
    project = str(place.project) if place.project is not None else None
    directory = found.directory or place.directory
    where = str(directory) if directory is not None else None
    source = Source(place.dialect.client, scope, str(place.file), line, project, where)
    name = found.name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    placed = replace(place, scope=scope, directory=directory)
    if not _is_plain_json(found.raw):
        reason = f'Invalid server config: Server "{name}": it holds text, a number or nesting that JSON cannot carry'
        problem = Problem("server.invalid", reason, file=source.file, line=line)
        return ReadEntry(name, source, {}, None, (problem,), placed, found.path)
    judged = judge(name, found.raw, place.dialect, source)
    spec, problems = judged.spec, judged.problems
    if found.misplaced is not None:
        reason = f'Invalid server config: Server "{name}": {found.misplaced}'
        spec, problems = None, (Problem("server.invalid", reason, file=source.file, line=line), *problems)
    raw = as_object(found.raw)
    written = raw if raw is not None else {"value": found.raw}
    return ReadEntry(name, source, written, spec, problems, placed, found.path)


def _is_plain_json(value: Json) -> bool:
    """Whether the value can be shown and hashed: no lone surrogates, no numbers beyond 64 bits, bounded nesting."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _dialect_problems(place: Place, document: Document, content: FileText) -> list[Problem]:
    """What this text has that its client itself refuses, and keys written twice."""
    dialect = place.dialect
    problems = [
        _file_problem(
            place, "config.duplicate_key", f'"{double.key}" is written twice; the later one counts', double.line
        )
        for double in document.duplicates
    ]
    problems += [_file_problem(place, "config.note", note, None) for note in document.notes]
    relaxed = {*document.relaxed, *(("byte order mark",) if content.bom else ())}
    for feature in sorted(relaxed & dialect.refuses):
        message = f"{dialect.title} itself cannot read this file: it has {feature}"
        problems.append(_file_problem(place, "config.dialect", message, None))
    return problems


def _file_problem(place: Place, code: str, message: str, line: int | None) -> Problem:
    return Problem(code, f"{place.file.name}: {message}", file=str(place.file), line=line)


class _Lines:
    """Lines of entries; the members of one container are looked up once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._known: dict[KeyPath, Mapping[Key, int]] = {}

    def at(self, path: KeyPath) -> int | None:
        if not path:
            return None
        holder = path[:-1]
        if holder not in self._known:
            self._known[holder] = self._document.lines_of(holder)
        return self._known[holder].get(path[-1])
