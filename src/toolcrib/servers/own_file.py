"""Our own file: adding servers, and importing those of apps.

Changes are returned for `edit.entries.apply_change`; nothing is written here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import DefinitionSource, Discovery, ServerEntry, ServerSpec
from toolcrib.servers.crib_entry import crib_entry
from toolcrib.servers.edit.entries import ChangeText, add_server, put_server
from toolcrib.servers.exposure import names_credential
from toolcrib.servers.identity import MAX_NAME, is_safe_name
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.fields import judge
from toolcrib.servers.readers.read import ConfigFile

if TYPE_CHECKING:
    from toolcrib.servers import export
else:
    export = lazy_module("toolcrib.servers.export")

_LABELS = frozenset({"name", "display_name", "description", "bundled"})
"""Fields of apps that describe a server and do not change what it does."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """The import of one server of an app: the entry for our file under `name`, or the reason why not."""

    server: ServerEntry
    name: str
    entry: JsonObject | None
    reason: str | None = None
    problems: tuple[Problem, ...] = ()


def own_place(crib: Path) -> ConfigFile:
    """Return the user's file."""
    return ConfigFile("toolcrib", "user", crib / "mcp.json")


def own_project_place(project: Path) -> ConfigFile:
    """Return the file of a project."""
    return ConfigFile(
        "toolcrib", "project", project / ".toolcrib" / "mcp.json", directory=project, project=project.resolve()
    )


def check_name(name: str) -> None:
    """Raise `server.name_invalid` if a server cannot have this name."""
    if not name.strip():
        raise InvalidRequest("server.name_invalid", "Server name cannot be empty")
    if len(name) > MAX_NAME:
        raise InvalidRequest("server.name_invalid", f"Server name is too long (max {MAX_NAME} characters)")
    if not is_safe_name(name):
        raise InvalidRequest(
            "server.name_invalid", f"Server name {name!r} can only contain letters, digits, _, . and -"
        )


def check_entry(name: str, entry: JsonObject) -> ServerSpec:
    """Return the definition of an entry of our file. Raises `server.invalid` with the first reason."""
    judged = judge(name, entry, CLIENTS["toolcrib"], DefinitionSource("toolcrib", "user", "mcp.json"))
    if judged.spec is None:
        raise InvalidRequest("server.invalid", judged.problems[0].message)
    return judged.spec


def add_own(place: ConfigFile, name: str, entry: JsonObject) -> ChangeText:
    """Return a change that adds a server. Raises `server.name_invalid`, `server.invalid`; later `server.exists`."""
    check_name(name)
    check_entry(name, entry)
    return add_server(place, name, entry)


def replace_own(place: ConfigFile, name: str, entry: JsonObject) -> ChangeText:
    """Return a change that adds or replaces a server. Raises `server.name_invalid`, `server.invalid`."""
    check_name(name)
    check_entry(name, entry)
    return put_server(place, name, entry)


def takeovers(
    discovery: Discovery, environment: Mapping[str, str], names: Collection[str] = ()
) -> tuple[Takeover, ...]:
    """Return what importing would do with each server of apps, all or the named ones."""
    chosen = [s for s in discovery.servers if not names or s.name in names or s.alias in names]
    return tuple(_takeover(server, environment) for server in chosen)


def _takeover(server: ServerEntry, environment: Mapping[str, str]) -> Takeover:
    spec = server.spec
    if spec is None:
        return Takeover(server, server.alias, None, "its definition is invalid", server.problems)
    if crib_entry(spec) is not None:
        return Takeover(server, server.alias, None, "it is this crib itself")
    if server.shadowed_by is not None:
        return Takeover(server, server.alias, None, f"{server.shadowed_by} has the same name and takes precedence")
    if spec.source.client == "toolcrib":
        return Takeover(server, server.alias, None, "it is in a file of Toolcrib already")
    written = export.entry_for(_without_credential(spec), "toolcrib")
    literal = _looked_up(spec, environment)
    if literal is not None:
        reason = f"the value of {literal} is the name of a variable, which would be looked up here"
        return Takeover(server, server.alias, None, reason)
    left_out = [
        Problem("server.not_exportable", f'Server "{spec.name}": "{key}" is not imported', None, spec.source.file)
        for key in spec.extra
        if key not in _LABELS
    ]
    return Takeover(server, server.alias, written.entry, None, (*written.problems, *left_out))


def _without_credential(spec: ServerSpec) -> ServerSpec:
    """Drop the credential a project's definition names; in the user's file it would refer to one of the user's."""
    if spec.source.project is None or spec.auth is None:
        return spec
    return replace(spec, auth=replace(spec.auth, credential_id=None))


def _looked_up(spec: ServerSpec, environment: Mapping[str, str]) -> str | None:
    """Return the key of a literal value that would be read as a variable in our file."""
    values = {**spec.env, **spec.headers} if spec.variables != "oh-my-pi" else {}
    return next((key for key, value in values.items() if value in environment or names_credential(value)), None)
