"""Moves definitions between apps: imports theirs into our own file, and exports ours to theirs.

Every requested server is reported: taken, or skipped with the reason.

Must never pass on a project's definition before the user trusts it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Scope, ServerEntry, ServerSpec
from toolcrib.servers.edit.entries import ChangeText, add_server
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.export import client_named, entry_for, snippet
from toolcrib.servers.own_file import takeovers
from toolcrib.servers.paste import recognise
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.read import ConfigFile
from toolcrib.servers.trust import TrustQuestion, trust_question

_NOT_TRUSTED = "it belongs to a project and is not trusted; run `toolcrib mcp trust {}` first"


@dataclass(frozen=True, slots=True)
class Moved:
    """One requested server: its name in the target, or the reason why it was skipped.

    `question` is the trust prompt for importing a server that is not trusted yet.
    """

    server: ServerEntry
    name: str
    reason: str | None = None
    problems: tuple[Problem, ...] = ()
    entry: JsonObject = field(default_factory=dict[str, object], repr=False)
    question: TrustQuestion | None = None

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI, without the entry itself."""
        shape: JsonObject = {
            "name": self.name,
            "from": self.server.source.to_json() | {"name": self.server.name},
            "problems": [problem.to_json() for problem in self.problems],
        }
        if self.question is not None:
            shape["question"] = self.question.to_json()
        return shape if self.reason is None else shape | {"reason": self.reason}


@dataclass(frozen=True, slots=True)
class Transfer:
    """The taken and skipped servers, and the edit; None if there was nothing to do."""

    moved: tuple[Moved, ...]
    edit: Edit | None

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {
            "taken": [each.to_json() for each in self.moved if each.reason is None],
            "skipped": [each.to_json() for each in self.moved if each.reason is not None],
            "change": self.edit.to_json() if self.edit is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Export:
    """A file of an app with some servers. Values are unmasked, since the file is meant to be used."""

    client: str
    text: str = field(repr=False)
    servers: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {
            "client": self.client,
            "text": self.text,
            "servers": list(self.servers),
            "problems": [problem.to_json() for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class Proposal:
    """A server recognised in a text: its entry for our file, and what to review before adding it."""

    name: str
    entry: JsonObject = field(repr=False)
    question: TrustQuestion
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI, with the entry unmasked: it comes from the caller's own text."""
        return {
            "name": self.name,
            "definition": self.entry,
            "question": self.question.to_json(),
            "problems": [problem.to_json() for problem in self.problems],
        }


def imports(
    view: ProjectView, own: ConfigFile, environment: Mapping[str, str], names: Collection[str]
) -> tuple[Moved, ...]:
    """Return what happens to each server of apps, all or the named ones, when our file imports them."""
    taken = _names_in(view, own)
    moved = (
        _free(_skip_untrusted(Moved(each.server, each.name, each.reason, each.problems, each.entry or {})), own, taken)
        for each in takeovers(view.discovery, environment, names)
        if names or each.server.source.client != "toolcrib"
    )
    return tuple(_add_trust_prompt(each, environment) for each in moved)


def exports(view: ProjectView, servers: Collection[ServerEntry], client: str, place: ConfigFile) -> tuple[Moved, ...]:
    """Return what happens to each of these servers when an app's file takes them."""
    taken = _names_in(view, place)
    return tuple(_free(_skip_untrusted(_for_client(server, client)), place, taken) for server in servers)


def additions(place: ConfigFile, moved: Collection[Moved]) -> ChangeText | None:
    """Return the change that adds the taken servers; None if there are none."""
    taken = [each for each in moved if each.reason is None]
    return together(add_server(place, each.name, each.entry) for each in taken) if taken else None


def exported(servers: Collection[ServerEntry], client: str) -> Export:
    """Return a new file of that app with these servers."""
    client_named(client)
    checked = [_skip_untrusted(Moved(server, server.name)) for server in servers]
    specs: dict[str, ServerSpec] = {}
    for each in checked:
        if each.reason is None and each.server.spec is not None:
            specs.setdefault(each.name, each.server.spec)
    text, problems = snippet(specs, client)
    skipped = [
        Problem("server.not_exportable", f'Server "{each.name}" is left out: {each.reason}')
        for each in checked
        if each.reason is not None
    ]
    return Export(client, text, tuple(specs), (*skipped, *problems))


def client_place(view: ProjectView, client: str, scope: Scope) -> ConfigFile:
    """Return the file of an app for new servers: the first existing one, else the first possible one."""
    dialect = client_named(client)
    places = [
        place
        for place in view.places.files
        if place.dialect.client == dialect.client and place.dialect.writable and place.scope == scope
    ]
    if scope == "project" and view.around.directories:
        root = view.around.directories[-1]
        places = [place for place in places if place.directory == root]
    if not places:
        message = f"{dialect.title} has no file for scope {scope} here."
        raise InvalidRequest("config.unsupported", message, "Leave out `--write` and put the text where it belongs.")
    # Other formats of an app are older files, or files it shares with other apps.
    places = [place for place in places if place.format == client] or places
    there = (place for place in places if view.prints.get(place.file) is not None)
    return next(there, places[0])


def proposals(text: str, environment: Mapping[str, str]) -> tuple[tuple[Proposal, ...], tuple[Problem, ...]]:
    """Return the servers in a pasted text, and the problems."""
    pasted = recognise(text)
    found: list[Proposal] = []
    for spec in pasted.servers:
        written = entry_for(spec, "toolcrib")
        question = trust_question(replace(spec, variables="toolcrib"), environment)
        found.append(Proposal(spec.name, written.entry, question, written.problems))
    return tuple(found), pasted.problems


def _skip_untrusted(moved: Moved) -> Moved:
    """Skip an untrusted project's definition, since an exported or imported server counts as trusted."""
    server = moved.server
    if moved.reason is not None:
        return moved
    if server.spec is None:
        return replace(moved, reason="its definition is invalid", problems=server.problems)
    if server.source.project is not None and not server.trusted:
        return replace(moved, reason=_NOT_TRUSTED.format(server.alias))
    return moved


def _add_trust_prompt(moved: Moved, environment: Mapping[str, str]) -> Moved:
    """Add the trust prompt if importing the server means trusting it."""
    server = moved.server
    if moved.reason is not None or server.trusted or server.spec is None:
        return moved
    return replace(moved, question=trust_question(server.spec, environment))


def _for_client(server: ServerEntry, client: str) -> Moved:
    if server.spec is None:
        return Moved(server, server.name)
    written = entry_for(server.spec, client)
    reason = None if written.entry else f"{client} does not support it"
    return Moved(server, server.name, reason, written.problems, written.entry)


def _free(moved: Moved, place: ConfigFile, taken: set[str]) -> Moved:
    """Skip a server whose name the file already has."""
    if moved.reason is not None:
        return moved
    if moved.name in taken:
        return replace(moved, reason=f'Server "{moved.name}" already exists in {place.file}')
    taken.add(moved.name)
    return moved


def _names_in(view: ProjectView, place: ConfigFile) -> set[str]:
    readings = [reading for reading in view.readings if reading.place.file == place.file]
    return {
        entry.name
        for reading in readings
        for entry in reading.entries
        if entry.place.scope == place.scope and entry.is_read
    }
