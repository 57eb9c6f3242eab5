"""Our own file: servers added here, and taking others over.

Every function gives a change of text for `edit.entries.apply_change`; none of them writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolcrib.config.edit.entries import ChangeText, add_server, put_server
from toolcrib.config.export import entry_for
from toolcrib.config.identity import MAX_NAME, is_safe_name
from toolcrib.config.readers.clients import CLIENTS
from toolcrib.config.readers.fields import judge
from toolcrib.config.readers.read import Place
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec, Source


@dataclass(frozen=True, slots=True)
class Takeover:
    """What becomes of one server of another tool: the entry for our file under `name`, or the reason why not."""

    server: ServerEntry
    name: str
    entry: JsonObject | None
    reason: str | None = None
    problems: tuple[Problem, ...] = ()


def own_place(crib: Path) -> Place:
    """The file of the person."""
    return Place("toolcrib", "user", crib / "mcp.json")


def own_project_place(project: Path) -> Place:
    """The file of a project."""
    return Place(
        "toolcrib", "project", project / ".toolcrib" / "mcp.json", directory=project, project=project.resolve()
    )


def check_name(name: str) -> None:
    """Refuse a name that may not be given here. Raises `server.name_invalid`."""
    if not name.strip():
        raise InvalidRequest("server.name_invalid", "Server name cannot be empty")
    if len(name) > MAX_NAME:
        raise InvalidRequest("server.name_invalid", f"Server name is too long (max {MAX_NAME} characters)")
    if not is_safe_name(name):
        raise InvalidRequest("server.name_invalid", f"Server name {name!r} may hold letters, digits, _, . and - only")


def check_entry(name: str, entry: JsonObject) -> ServerSpec:
    """The definition an entry of our file gives. Raises `server.invalid` with the first reason if it gives none."""
    judged = judge(name, entry, CLIENTS["toolcrib"], Source("toolcrib", "user", "mcp.json"))
    if judged.spec is None:
        raise InvalidRequest("server.invalid", judged.problems[0].message)
    return judged.spec


def add_own(place: Place, name: str, entry: JsonObject) -> ChangeText:
    """Add a server to our file. Raises `server.name_invalid`, `server.invalid`, and `server.exists` when applied."""
    check_name(name)
    check_entry(name, entry)
    return add_server(place, name, entry)


def replace_own(place: Place, name: str, entry: JsonObject) -> ChangeText:
    """Replace or add a server of our file."""
    check_name(name)
    check_entry(name, entry)
    return put_server(place, name, entry)


def takeovers(
    discovery: Discovery, environment: Mapping[str, str], names: Collection[str] = ()
) -> tuple[Takeover, ...]:
    """What importing would do with each server of other tools, all or the named ones."""
    chosen = [s for s in discovery.servers if not names or s.name in names or s.alias in names]
    return tuple(_takeover(server, environment) for server in chosen)


def _takeover(server: ServerEntry, environment: Mapping[str, str]) -> Takeover:
    spec = server.spec
    if spec is None:
        return Takeover(server, server.alias, None, "it cannot be used as it is", server.problems)
    if server.shadowed_by is not None:
        return Takeover(server, server.alias, None, f"{server.shadowed_by} has the same name and comes first")
    if spec.source.client == "toolcrib":
        return Takeover(server, server.alias, None, "it is in a file of Toolcrib already")
    written = entry_for(spec, "toolcrib")
    literal = _looked_up(spec, environment)
    if literal is not None:
        reason = f"the value of {literal} is the name of a variable, which would be looked up here"
        return Takeover(server, server.alias, None, reason)
    left_out = [
        Problem("server.not_exportable", f'Server "{spec.name}": "{key}" is not taken over', None, spec.source.file)
        for key in spec.extra
    ]
    return Takeover(server, server.alias, written.entry, None, (*written.problems, *left_out))


def _looked_up(spec: ServerSpec, environment: Mapping[str, str]) -> str | None:
    """The key of a literal value that would mean a variable in our file."""
    values = {**spec.env, **spec.headers} if spec.variables != "oh-my-pi" else {}
    return next((key for key, value in values.items() if value in environment), None)
