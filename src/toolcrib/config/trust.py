"""Who may be started: records of what a person agreed to, bound to the content of a definition.

A project's definitions are trusted one by one, by the project's real path and a hash over everything that decides what
runs; any change asks again. Files of the person are trusted once, as a whole or by definition. Records live in the
crib's home and nowhere else: no file that is judged here can speak for itself.
"""

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson

from toolcrib.config.dangers import Danger, dangers
from toolcrib.config.edit.lock import locked
from toolcrib.config.edit.write import replace_file
from toolcrib.config.files import FileText, read_bytes, read_text
from toolcrib.config.masking import mask_command, mask_text, mask_url
from toolcrib.config.values import as_list, as_object, as_text, at
from toolcrib.errors import ConfigError
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.servers import ServerSpec
from toolcrib.model.text import visible

PERSONAL = "personal"
"""The place of definitions that belong to no project."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """One consent: for one definition at one place, or (without digest) for a whole file of the person."""

    place: str
    digest: str | None
    name: str = ""
    at: str = ""

    def to_json(self) -> JsonObject:
        """As it is stored."""
        return {"place": self.place, "digest": self.digest, "name": self.name, "at": self.at}


@dataclass(frozen=True, slots=True)
class TrustBook:
    """All records, as one value."""

    records: tuple[TrustRecord, ...] = ()
    _keys: frozenset[tuple[str, str | None]] = field(init=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", frozenset((record.place, record.digest) for record in self.records))

    def covers(self, spec: ServerSpec) -> bool:
        """Whether a person agreed to exactly this definition. The crib's own file is the owner's word."""
        source = spec.source
        if source.client == "toolcrib" and source.scope == "user":
            return True
        if source.project is not None:
            return (source.project, definition_digest(spec)) in self._keys
        return (source.file, None) in self._keys or (PERSONAL, definition_digest(spec)) in self._keys

    def with_definitions(self, specs: Iterable[ServerSpec]) -> "TrustBook":
        """The book with these definitions trusted as they are now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        new = (TrustRecord(s.source.project or PERSONAL, definition_digest(s), s.name, now) for s in specs)
        return self._with(new)

    def with_file(self, file: str) -> "TrustBook":
        """The book with a whole file of the person trusted. Never used for files of projects."""
        return self._with((TrustRecord(file, None, "", datetime.now(UTC).isoformat(timespec="seconds")),))

    def without_definitions(self, specs: Iterable[ServerSpec]) -> "TrustBook":
        """The book with these definitions no longer trusted; a file trusted as a whole loses that too."""
        gone = {(s.source.project or PERSONAL, definition_digest(s)) for s in specs}
        gone |= {(s.source.file, None) for s in specs if s.source.project is None}
        return TrustBook(tuple(record for record in self.records if (record.place, record.digest) not in gone))

    def without_place(self, place: str) -> "TrustBook":
        """The book without anything of one project or file."""
        return TrustBook(tuple(record for record in self.records if record.place != place))

    def _with(self, records: Iterable[TrustRecord]) -> "TrustBook":
        new = [record for record in records if (record.place, record.digest) not in self._keys]
        return TrustBook((*self.records, *new))


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """What a person is shown before agreeing: everything that decides what runs, nothing cut short.

    Secrets in arguments are masked; of variables and headers there are only the names. `program` is the file that the
    command resolves to.
    """

    name: str
    type: str
    place: str
    command_line: str | None
    program: str | None
    cwd: str | None
    url: str | None
    env: tuple[str, ...]
    headers: tuple[str, ...]
    dangers: tuple[Danger, ...]
    digest: str

    def to_json(self) -> JsonObject:
        """For the API and the console."""
        return {
            "name": self.name,
            "type": self.type,
            "place": self.place,
            "commandLine": self.command_line,
            "program": self.program,
            "cwd": self.cwd,
            "url": self.url,
            "env": list(self.env),
            "headers": list(self.headers),
            "warnings": [{"code": d.code, "message": d.message, "grave": d.grave} for d in self.dangers],
            "digest": self.digest,
        }


def definition_digest(spec: ServerSpec) -> str:
    """The hash of everything in a definition that decides what is run, reached or revealed."""
    return digest(
        {
            "name": spec.name,
            "client": spec.source.client,
            "type": spec.type,
            "command": spec.command,
            "args": list(spec.args),
            "env": dict(spec.env),
            "envPass": sorted(spec.env_pass),
            "envFile": spec.env_file,
            "cwd": spec.cwd,
            "directory": spec.source.directory if spec.source.project is not None else None,
            "url": spec.url,
            "headers": dict(spec.headers),
            "headerEnv": dict(spec.header_env),
            "variables": spec.variables,
        }
    )


def trust_question(spec: ServerSpec, environment: Mapping[str, str]) -> TrustQuestion:
    """The question for one definition. Nothing is started; the program is only looked for."""
    base = spec.source.directory or spec.source.project
    line = f"{spec.source.file}:{spec.source.line}" if spec.source.line else spec.source.file
    words = [spec.command, *spec.args] if spec.command is not None else []
    shown = [visible(word) for word in mask_command(words)]
    return TrustQuestion(
        name=visible(spec.name),
        type=spec.type,
        place=f"{spec.source.client}, {visible(line)}",
        command_line=shlex.join(shown) if shown else None,
        program=_program(spec.command, base, environment) if spec.command is not None else None,
        cwd=visible(spec.cwd or base or "") or None,
        url=visible(mask_url(spec.url)) if spec.url is not None else None,
        env=tuple(visible(name) for name in dict.fromkeys((*spec.env, *spec.env_pass))),
        headers=tuple(visible(name) for name in dict.fromkeys((*spec.headers, *spec.header_env))),
        dangers=dangers(spec),
        digest=definition_digest(spec),
    )


def _program(command: str, base: str | None, environment: Mapping[str, str]) -> str | None:
    path = Path(command)
    if len(path.parts) > 1:
        return visible(mask_text(str(Path(base) / path if base is not None else path)))
    return shutil.which(command, path=environment.get("PATH", ""))


def load_trust(file: Path) -> TrustBook:
    """The records of a home; none if there is no file yet.

    Raises `trust.unreadable`: taking a damaged file for an empty one would lose what was agreed with the next change.
    """
    content = read_text(file)
    if content is None:
        return TrustBook()
    records = _parse(content.text) if isinstance(content, FileText) else None
    if records is None:
        raise ConfigError("trust.unreadable", f"The records of trust in {file} cannot be read.")
    return TrustBook(records)


def change_trust(file: Path, change: Callable[[TrustBook], TrustBook]) -> TrustBook:
    """Change the records under a lock, so that two processes never lose each other's; gives the new book."""
    with locked(file.parent):
        book = load_trust(file)
        changed = change(book)
        if changed != book:
            seen = read_bytes(file)
            replace_file(file, _render(changed), 0o600, seen if isinstance(seen, bytes) else None)
        return changed


def _render(book: TrustBook) -> bytes:
    shape = {"version": 1, "records": [record.to_json() for record in book.records]}
    return orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _parse(text: str) -> tuple[TrustRecord, ...] | None:
    try:
        listed = as_list(at(orjson.loads(text), "records"))
    except orjson.JSONDecodeError:
        return None
    rows = [as_object(row) for row in listed] if listed is not None else [None]
    records = [_record(row) for row in rows if row is not None]
    return tuple(records) if len(records) == len(rows) else None


def _record(row: JsonObject) -> TrustRecord:
    # What is not text makes a record that matches nothing.
    place, bound = as_text(row.get("place")) or "", row.get("digest")
    kept = bound if bound is None or isinstance(bound, str) else ""
    return TrustRecord(place, kept, as_text(row.get("name")) or "", as_text(row.get("at")) or "")
