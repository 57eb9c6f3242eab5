"""Records of the user's consent to start servers, bound to the content of their definitions.

Definitions are trusted one by one: those of a project by its real path, the user's own in any file. Each has a hash of
everything that decides what runs and what is passed on, so a change or a later addition needs new consent. A project's
definition that takes credentials or files from this machine needs separate consent.

Invariant: records exist only in the crib's home, so a file can never grant trust to itself.
"""

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from toolcrib.base.files.lock import locked
from toolcrib.base.files.reading import FileText, read_bytes, read_text
from toolcrib.base.files.write import replace_file
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import JsonObject, as_list, as_object, as_text, at, digest
from toolcrib.model.sandbox import Sandbox, SandboxProfile
from toolcrib.model.servers import Auth, OtherName, ServerSpec
from toolcrib.model.text import visible
from toolcrib.servers.exposure import ExposedValue, revealed, reveals_gravely
from toolcrib.servers.identity import identity
from toolcrib.servers.masking import mask_command, mask_text, mask_url

if TYPE_CHECKING:
    from toolcrib.servers import dangers
    from toolcrib.servers.dangers import Danger
else:
    dangers = lazy_module("toolcrib.servers.dangers")

PERSONAL = "personal"
"""The place of definitions outside projects."""

_NOTHING: Mapping[str, str] = {}
_CONFINED: Mapping[SandboxProfile, str] = {
    "off": "It can read and change everything you can. The profile `project` would confine it.",
    "learn": "It can read and change everything you can, and what it uses is recorded.",
    "project": "It reaches the project, its caches and the network, not the rest of your home.",
    "strict": "It reads the project, writes temporary files only, and has no network.",
}


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """One consent, for one definition in one place.

    `identity` is that of the definition, so that its name is known in other directories too. `secrets` is the consent
    to grave exposures. Records of earlier versions have no identity. One without a digest covers a whole file of the
    user and is replaced by records of the file's definitions when it is read.
    """

    place: str
    digest: str | None
    name: str = ""
    at: str = ""
    identity: str = ""
    secrets: bool = False

    def to_json(self) -> JsonObject:
        """Return the stored shape."""
        shape: JsonObject = {"place": self.place, "digest": self.digest, "name": self.name, "at": self.at}
        return shape | {"identity": self.identity, "secrets": self.secrets}


@dataclass(frozen=True, slots=True)
class TrustBook:
    """All records, as one value."""

    records: tuple[TrustRecord, ...] = ()
    _by_key: Mapping[tuple[str, str | None], TrustRecord] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[str, str | None], TrustRecord]
    )

    def __post_init__(self) -> None:
        found = {(record.place, record.digest): record for record in self.records}
        object.__setattr__(self, "_by_key", found)

    def covers(self, spec: ServerSpec, environment: Mapping[str, str] = _NOTHING) -> bool:
        """Return whether the user trusts exactly this definition. The crib's own file is always trusted.

        Given the environment, a project's definition with grave exposures also needs consent to them.
        """
        source = spec.source
        if source.client == "toolcrib" and source.scope == "user":
            return True
        record = self._by_key.get((source.project or PERSONAL, definition_digest(spec)))
        if source.project is not None:
            return record is not None and (record.secrets or not reveals_gravely(spec, environment))
        return record is not None or self._covered_before(spec)

    def may_reveal(self, spec: ServerSpec) -> bool:
        """Return whether the user consented to the grave exposures of this definition."""
        record = self._by_key.get((spec.source.project or PERSONAL, definition_digest(spec)))
        return record is not None and record.secrets

    def agreed(self) -> tuple[tuple[str, OtherName], ...]:
        """Return the names of trusted definitions, each with the identity of its definition."""
        return tuple((each.identity, OtherName(each.name, each.place)) for each in self.records if each.identity)

    def with_definitions(self, specs: Iterable[ServerSpec], *, secrets: bool = False) -> "TrustBook":
        """Return the book with these definitions trusted; `secrets` includes their grave exposures."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return self._with(_record_of(spec, now, secrets) for spec in specs)

    def without_definitions(self, specs: Iterable[ServerSpec]) -> "TrustBook":
        """Return the book without trust in these definitions, or in files of the user that contain them."""
        listed = list(specs)
        gone = {(spec.source.project or PERSONAL, definition_digest(spec)) for spec in listed}
        gone |= {(PERSONAL, _digest_without_auth(spec)) for spec in listed if spec.source.project is None}
        gone |= {(spec.source.file, None) for spec in listed if spec.source.project is None}
        return TrustBook(tuple(record for record in self.records if (record.place, record.digest) not in gone))

    def without_place(self, place: str) -> "TrustBook":
        """Return the book without the records of one project or file."""
        return TrustBook(tuple(record for record in self.records if record.place != place))

    def renewed(self, specs: Iterable[ServerSpec], files: Iterable[str]) -> "TrustBook":
        """Return the book with records of earlier versions upgraded for the definitions in `files`.

        A trusted file becomes its definitions, so that later additions need new consent.
        """
        if all(record.identity for record in self.records):
            return self
        listed = list(specs)
        personal = [spec for spec in listed if spec.source.project is None and self._covered_before(spec)]
        book = self.with_definitions(personal)
        read = {(file, None) for file in files}
        read |= {(PERSONAL, _digest_without_auth(spec)) for spec in personal if spec.auth is not None}
        known: dict[tuple[str, str | None], ServerSpec] = {
            (spec.source.project or PERSONAL, definition_digest(spec)): spec for spec in listed
        }
        records = [record for record in book.records if (record.place, record.digest) not in read]
        return TrustBook(tuple(_with_identity(record, known.get((record.place, record.digest))) for record in records))

    def _covered_before(self, spec: ServerSpec) -> bool:
        """Return whether a record of an earlier version covers this definition of the user."""
        if (spec.source.file, None) in self._by_key:
            return True
        old = self._by_key.get((PERSONAL, _digest_without_auth(spec)))
        return old is not None and not old.identity

    def _with(self, records: Iterable[TrustRecord]) -> "TrustBook":
        new = {(record.place, record.digest): record for record in records}
        kept = [record for record in self.records if not _is_replaced(record, new.get((record.place, record.digest)))]
        known = {(record.place, record.digest) for record in kept}
        return TrustBook((*kept, *(record for key, record in new.items() if key not in known)))


def _record_of(spec: ServerSpec, now: str, secrets: bool) -> TrustRecord:
    place = spec.source.project or PERSONAL
    return TrustRecord(place, definition_digest(spec), spec.name, now, identity(spec), secrets)


def _is_replaced(record: TrustRecord, new: TrustRecord | None) -> bool:
    """Return whether a new record covers more than an existing one of the same definition."""
    return new is not None and (not record.identity or (new.secrets and not record.secrets))


def _with_identity(record: TrustRecord, spec: ServerSpec | None) -> TrustRecord:
    return record if spec is None or record.identity else replace(record, identity=identity(spec))


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """The trust prompt: everything that decides what runs, untruncated.

    Secrets in arguments are masked; of variables and headers, only the names are shown. `program` is the file the
    command resolves to. `resolves` is everything taken from this machine and passed on. `sandbox` is what confines it;
    None for a server that the crib does not start.
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
    dangers: "tuple[Danger, ...]"
    digest: str
    resolves: tuple[ExposedValue, ...] = ()
    auth: JsonObject | None = None
    sandbox: JsonObject | None = None

    @property
    def needs_second_yes(self) -> bool:
        """Whether an exposure needs separate consent."""
        return any(each.grave for each in self.resolves)

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the console."""
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
            "resolves": [each.to_json() for each in self.resolves],
            "needsSecondYes": self.needs_second_yes,
            "auth": self.auth,
            "sandbox": self.sandbox,
        }


def definition_digest(spec: ServerSpec) -> str:
    """Return the hash of everything in a definition that decides what is run, reached or revealed."""
    auth = spec.auth
    return _digest_without_auth(spec) if auth is None else digest([_digest_without_auth(spec), _auth(auth)])


def _auth(auth: Auth) -> JsonObject:
    return {
        "type": auth.type,
        "credentialId": auth.credential_id,
        "clientId": auth.client_id,
        "clientSecret": auth.client_secret,
        "scopes": list(auth.scopes),
    }


def _digest_without_auth(spec: ServerSpec) -> str:
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
    """Return the trust prompt for one definition. Nothing is started; the program is only located."""
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
        dangers=dangers.dangers(spec),
        digest=definition_digest(spec),
        resolves=revealed(spec, environment),
        auth=_shown_auth(spec.auth) if spec.auth is not None else None,
        sandbox=_shown_sandbox(spec.sandbox) if spec.type == "stdio" else None,
    )


def _shown_sandbox(sandbox: Sandbox) -> JsonObject:
    """Return the profile, whether this system enforces it, and both as a sentence."""
    is_enforced = sandbox.is_confined and sandbox_support().is_supported
    sentence = _CONFINED[sandbox.profile]
    if sandbox.is_confined and not is_enforced:
        outcome = "so it does not start" if sandbox.chosen else "so it runs without a sandbox"
        sentence = f"This system cannot enforce the profile, {outcome}."
    return {"profile": sandbox.profile, "enforced": is_enforced, "sentence": sentence}


def _shown_auth(auth: Auth) -> JsonObject:
    """Return the sign-in method, without the secret."""
    shown: JsonObject = {"type": auth.type}
    named = {"credentialId": auth.credential_id, "clientId": auth.client_id}
    shown |= {key: visible(value) for key, value in named.items() if value}
    return shown | ({"scopes": [visible(scope) for scope in auth.scopes]} if auth.scopes else {})


def _program(command: str, base: str | None, environment: Mapping[str, str]) -> str | None:
    path = Path(command)
    if len(path.parts) > 1:
        return visible(mask_text(str(Path(base) / path if base is not None else path)))
    return shutil.which(command, path=environment.get("PATH", ""))


def load_trust(file: Path) -> TrustBook:
    """Return the records of a home; none if there is no file yet.

    Raises `trust.unreadable`: treating a damaged file as empty would lose the records with the next change.
    """
    content = read_text(file)
    if content is None:
        return TrustBook()
    records = _parse(content.text) if isinstance(content, FileText) else None
    if records is None:
        raise ConfigError("trust.unreadable", f"The records of trust in {file} cannot be read.")
    return TrustBook(records)


def change_trust(file: Path, change: Callable[[TrustBook], TrustBook]) -> TrustBook:
    """Change the records under a lock shared between processes; return the new book."""
    with locked(file.parent):
        book = load_trust(file)
        changed = change(book)
        if changed != book:
            seen = read_bytes(file)
            replace_file(file, _render(changed), 0o600, seen if isinstance(seen, bytes) else None)
        return changed


def _render(book: TrustBook) -> bytes:
    shape = {"version": 2, "records": [record.to_json() for record in book.records]}
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
    # Values that are not text result in a record that matches nothing.
    place, bound = as_text(row.get("place")) or "", row.get("digest")
    kept = bound if bound is None or isinstance(bound, str) else ""
    name, at, identity = (as_text(row.get(key)) or "" for key in ("name", "at", "identity"))
    return TrustRecord(place, kept, name, at, identity, row.get("secrets") is True)
