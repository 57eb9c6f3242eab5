"""Moving definitions between tools: taking others over into our own file, and writing ours for others.

Every server that was asked for is told of: taken, or skipped with the reason. Above: `desk`. Below: `config`. It must
never hand on what a project of somebody else defines before the owner agreed to it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from toolcrib.config.edit.entries import ChangeText, add_server
from toolcrib.config.export import client_named, entry_for, snippet
from toolcrib.config.own import takeovers
from toolcrib.config.paste import recognise
from toolcrib.config.readers.read import Place
from toolcrib.config.trust import TrustQuestion, trust_question
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Scope, ServerEntry, ServerSpec
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.view import View

_NOT_TRUSTED = "it belongs to a project and is not trusted; run `toolcrib mcp trust {}` first"


@dataclass(frozen=True, slots=True)
class Moved:
    """One server that was asked for: what it is called at its new place, or why it did not get there."""

    server: ServerEntry
    name: str
    reason: str | None = None
    problems: tuple[Problem, ...] = ()
    entry: JsonObject = field(default_factory=dict[str, object], repr=False)

    def to_json(self) -> JsonObject:
        """For the API and the CLI; the entry itself stays here."""
        shape: JsonObject = {
            "name": self.name,
            "from": self.server.source.to_json() | {"name": self.server.name},
            "problems": [problem.to_json() for problem in self.problems],
        }
        return shape if self.reason is None else shape | {"reason": self.reason}


@dataclass(frozen=True, slots=True)
class Transfer:
    """What was taken and what was not, and the change that did it; None if there was nothing to do."""

    moved: tuple[Moved, ...]
    edit: Edit | None

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        return {
            "taken": [each.to_json() for each in self.moved if each.reason is None],
            "skipped": [each.to_json() for each in self.moved if each.reason is not None],
            "change": self.edit.to_json() if self.edit is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Export:
    """A file of a client with some servers. It holds values as they were written: it is there to be used."""

    client: str
    text: str = field(repr=False)
    servers: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        return {
            "client": self.client,
            "text": self.text,
            "servers": list(self.servers),
            "problems": [problem.to_json() for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class Proposal:
    """A server that was recognised in a text: how it would stand in our file, and what to know before adding it."""

    name: str
    entry: JsonObject = field(repr=False)
    question: TrustQuestion
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> JsonObject:
        """For the API and the CLI; the entry is not masked, since it comes from the asker's own text."""
        return {
            "name": self.name,
            "definition": self.entry,
            "question": self.question.to_json(),
            "problems": [problem.to_json() for problem in self.problems],
        }


def imports(view: View, own: Place, environment: Mapping[str, str], names: Collection[str]) -> tuple[Moved, ...]:
    """What becomes of each server of other tools, all or the named ones, when our file takes them over."""
    taken = _names_in(view, own)
    return tuple(
        _free(_checked(Moved(each.server, each.name, each.reason, each.problems, each.entry or {})), own, taken)
        for each in takeovers(view.discovery, environment, names)
        if names or each.server.source.client != "toolcrib"
    )


def exports(view: View, servers: Collection[ServerEntry], client: str, place: Place) -> tuple[Moved, ...]:
    """What becomes of each of these servers when a client's file takes them."""
    taken = _names_in(view, place)
    return tuple(_free(_checked(_for_client(server, client)), place, taken) for server in servers)


def additions(place: Place, moved: Collection[Moved]) -> ChangeText | None:
    """The change that adds what was taken; None if nothing was."""
    taken = [each for each in moved if each.reason is None]
    return together(add_server(place, each.name, each.entry) for each in taken) if taken else None


def exported(servers: Collection[ServerEntry], client: str) -> Export:
    """A new file of that client with these servers."""
    client_named(client)
    checked = [_checked(Moved(server, server.name)) for server in servers]
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


def client_place(view: View, client: str, scope: Scope) -> Place:
    """The file of a client that new servers go into: the first there is, else the first there could be."""
    dialect = client_named(client)
    places = [
        place
        for place in view.places
        if place.dialect.client == dialect.client and place.dialect.writable and place.scope == scope
    ]
    if scope == "project" and view.around.directories:
        root = view.around.directories[-1]
        places = [place for place in places if place.directory == root]
    if not places:
        message = f"{dialect.title} has no file for scope {scope} here."
        raise InvalidRequest("config.unsupported", message, "Leave out `--write` and put the text where it belongs.")
    there = (place for place in places if view.prints.get(place.file) is not None)
    return next(there, places[0])


def proposals(text: str, environment: Mapping[str, str]) -> tuple[tuple[Proposal, ...], tuple[Problem, ...]]:
    """The servers in a text that a person pasted, and what could not be used."""
    pasted = recognise(text)
    found: list[Proposal] = []
    for spec in pasted.servers:
        written = entry_for(spec, "toolcrib")
        question = trust_question(replace(spec, variables="toolcrib"), environment)
        found.append(Proposal(spec.name, written.entry, question, written.problems))
    return tuple(found), pasted.problems


def _checked(moved: Moved) -> Moved:
    """What is moved would count as the owner's word; a project's definition is that only after trust."""
    server = moved.server
    if moved.reason is not None:
        return moved
    if server.spec is None:
        return replace(moved, reason="it cannot be used as it is", problems=server.problems)
    if server.source.project is not None and not server.trusted:
        return replace(moved, reason=_NOT_TRUSTED.format(server.alias))
    return moved


def _for_client(server: ServerEntry, client: str) -> Moved:
    if server.spec is None:
        return Moved(server, server.name)
    written = entry_for(server.spec, client)
    reason = None if written.entry else f"{client} cannot have it"
    return Moved(server, server.name, reason, written.problems, written.entry)


def _free(moved: Moved, place: Place, taken: set[str]) -> Moved:
    """Nothing that is in a file already is overwritten."""
    if moved.reason is not None:
        return moved
    if moved.name in taken:
        return replace(moved, reason=f'Server "{moved.name}" already exists in {place.file}')
    taken.add(moved.name)
    return moved


def _names_in(view: View, place: Place) -> set[str]:
    readings = [reading for reading in view.readings if reading.place.file == place.file]
    return {entry.name for reading in readings for entry in reading.entries if entry.place.scope == place.scope}
