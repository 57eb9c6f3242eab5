"""Reads one file of one app into definitions and problems. Nothing in it is followed, expanded or started.

An unusable file yields one problem and is marked `broken`, so that `LastGood` can keep its previous content.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from toolcrib.base.files.reading import FileText, Unreadable, read_text
from toolcrib.model.json import Json, JsonObject, as_object, at
from toolcrib.model.problems import Problem
from toolcrib.model.servers import DefinitionSource, Scope, ServerSpec
from toolcrib.servers.readers.apps import FORMATS
from toolcrib.servers.readers.dialect import ClientRule, Dialect, FoundEntry, ReadingContext
from toolcrib.servers.readers.fields import judge
from toolcrib.servers.syntax import jsonc, toml, yaml
from toolcrib.servers.syntax.document import Document, Family, Key, KeyPath, SyntaxProblem, unread

logger = logging.getLogger(__name__)

PARSERS: Mapping[Family, Callable[[str], Document]] = {
    "json": jsonc.parse,
    "toml": toml.parse,
    "yaml": yaml.parse,
    "script": unread,
}


_FAMILIES: Mapping[str, Family] = {
    ".json": "json",
    ".jsonc": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file in which some app may keep servers.

    `format` is a row of `FORMATS` and `rank` its position in the table. `directory` is the project directory it belongs
    to and `project` the real path of the whole project; both are None outside projects. A plugin's file has the name of
    the `plugin` and its `root` directory.
    """

    format: str
    scope: Scope
    file: Path
    rank: int = 0
    directory: Path | None = None
    project: Path | None = None
    plugin: str | None = None
    root: Path | None = None

    @property
    def dialect(self) -> Dialect:
        """The format of this file."""
        return FORMATS[self.format]


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """One entry as read: the written value (`raw`), the definition if usable, and the problems.

    `is_read` is whether the app itself reads it where it is.
    """

    name: str
    source: DefinitionSource
    raw: JsonObject
    spec: ServerSpec | None
    problems: tuple[Problem, ...]
    place: ConfigFile
    path: KeyPath
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class FileReading:
    """The content of one file. `digest` is the version that was read; `emptied` means no content at all."""

    place: ConfigFile
    entries: tuple[ReadEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    rules: tuple[ClientRule, ...] = ()
    overlays: JsonObject | None = None
    broken: bool = False
    emptied: bool = False
    digest: str | None = None


def read_place(place: ConfigFile, directories: tuple[Path, ...] = (), platform: str = "linux") -> FileReading | None:
    """Read a file; return None if it does not exist."""
    content = read_text(place.file, within=place.project)
    if content is None:
        return None
    if isinstance(content, Unreadable):
        return FileReading(place, problems=(content.problem,), broken=True)
    return read_content(place, content, ReadingContext(place.file, directories, platform))


def family_of(place: ConfigFile) -> Family:
    """Return the syntax of a file by its suffix, else that of its app."""
    if place.dialect.family == "script":
        return "script"
    return _FAMILIES.get(place.file.suffix, place.dialect.family)


def read_content(place: ConfigFile, content: FileText, context: ReadingContext) -> FileReading:
    """Like `read_place`, for a text in memory."""
    dialect = place.dialect
    family = family_of(place)
    if not content.text.strip():
        # A program that rewrites a file may truncate it first, so an empty file proves nothing.
        is_emptied = not content.text or family == "json"
        empty = _file_problem(place, "config.empty", "the file is empty", None) if dialect.dedicated else None
        return FileReading(place, problems=(empty,) if empty else (), emptied=is_emptied, digest=content.digest)
    try:
        return _read_document(place, PARSERS[family](content.text), content, context)
    except SyntaxProblem as problem:
        message = f"not valid {family.upper()}: {problem.reason}"
        found = _file_problem(place, "config.syntax", message, problem.line)
    except Exception as error:  # boundary: one unforeseen file must not prevent reading the others
        logger.exception("%s could not be read.", place.file)
        found = _file_problem(place, "config.unreadable", f"cannot be read ({type(error).__name__})", None)
    return FileReading(place, problems=(found,), broken=True, digest=content.digest)


def _read_document(place: ConfigFile, document: Document, content: FileText, context: ReadingContext) -> FileReading:
    dialect = place.dialect
    layout = dialect.find(document.value, dialect, context)
    lines = _Lines(document)
    problems = [_file_problem(place, "config.layout", text, lines.at(path)) for text, path in layout.oddities]
    problems += [_file_problem(place, "config.note", text, lines.at(path)) for text, path in layout.notes]
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


def _read_entry(place: ConfigFile, found: FoundEntry, line: int | None) -> ReadEntry:
    scope = found.scope or place.scope
    project = str(place.project) if place.project is not None else None
    directory = found.directory or place.directory
    where = str(directory) if directory is not None else None
    root = str(place.root) if place.root is not None else None
    source = DefinitionSource(place.dialect.client, scope, str(place.file), line, project, where, root)
    written_name = f"plugin:{place.plugin}:{found.name}" if place.plugin is not None else found.name
    name = written_name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    is_same = scope == place.scope and directory == place.directory
    placed = place if is_same else replace(place, scope=scope, directory=directory)
    if not _is_plain_json(found.raw):
        reason = (
            f'Invalid server config: Server "{name}": it contains text, a number or nesting that JSON cannot represent'
        )
        problem = Problem("server.invalid", reason, file=source.file, line=line)
        return ReadEntry(name, source, {}, None, (problem,), placed, found.path)
    judged = judge(name, found.raw, place.dialect, source)
    spec, problems = judged.spec, judged.problems
    if found.misplaced is not None:
        reason = f'Invalid server config: Server "{name}": {found.misplaced}'
        problem = Problem("server.misplaced", reason, found.fix, source.file, line)
        spec, problems = None, (problem, *problems)
    raw = as_object(found.raw)
    written = raw if raw is not None else {"value": found.raw}
    is_read = found.misplaced is None and not found.is_elsewhere
    return ReadEntry(name, source, written, spec, problems, placed, found.path, is_read)


def _is_plain_json(value: Json) -> bool:
    """Return whether the value can be serialised: no lone surrogates, no numbers beyond 64 bits, bounded nesting."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _dialect_problems(place: ConfigFile, document: Document, content: FileText) -> list[Problem]:
    """Return problems with syntax the app itself refuses, and with duplicate keys."""
    dialect = place.dialect
    problems = [
        _file_problem(place, "config.duplicate_key", f'"{double.key}" appears twice; the last one is used', double.line)
        for double in document.duplicates
    ]
    problems += [_file_problem(place, "config.note", note, None) for note in document.notes]
    relaxed = {*document.relaxed, *(("byte order mark",) if content.bom else ())}
    for feature in sorted(relaxed & dialect.refuses):
        message = f"{dialect.title} itself rejects this file because of {feature}"
        problems.append(_file_problem(place, "config.dialect", message, None))
    return problems


def _file_problem(place: ConfigFile, code: str, message: str, line: int | None) -> Problem:
    return Problem(code, f"{place.file.name}: {message}", file=str(place.file), line=line)


class _Lines:
    """Looks up the lines of entries, once per container."""

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
