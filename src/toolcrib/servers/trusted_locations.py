"""Locations that can be trusted as a whole, and the definitions written there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from toolcrib.model.errors import NotFound
from toolcrib.model.servers import DefinitionSource, ServerEntry
from toolcrib.servers.masking import mask_definition
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.read import ReadEntry
from toolcrib.servers.trust import definition_digest


@dataclass(frozen=True, slots=True)
class TrustedLocation:
    """A project's directory or a file of the user."""

    path: Path
    is_project: bool
    view: ProjectView


def _similar_directories(path: Path) -> str | None:
    """Return a hint with the directories that the user may have meant."""
    try:
        beside = {each.name: str(each) for each in path.parent.iterdir() if each.is_dir()}
    except OSError:
        return None
    found = get_close_matches(path.name, beside)
    return f"Did you mean {' or '.join(beside[name] for name in found)}?" if found else None


def defined_at(location: TrustedLocation, environment: Mapping[str, str]) -> tuple[ServerEntry, ...]:
    """Return every definition in a location as written there, even if another entry of it is in force."""
    view, path = location.view, location.path
    if not location.is_project and path not in {place.file for place in view.places.files}:
        message = f"{path} is neither a directory nor a config file of an app."
        raise NotFound("server.unknown", message, _similar_directories(path))

    def is_there(source: DefinitionSource) -> bool:
        return source.project == view.discovery.project if location.is_project else source.file == str(path)

    usable = [server for server in view.discovery.servers if server.spec is not None]
    found = [(server, entry) for server in usable for entry in view.written(server) if is_there(entry.source)]
    return tuple(
        shown for server, entry in found if (shown := _as_written(server, entry, view, environment)) is not None
    )


def _as_written(
    server: ServerEntry, entry: ReadEntry, view: ProjectView, environment: Mapping[str, str]
) -> ServerEntry | None:
    """Return one entry of a server as if it were the server; None if it is unusable."""
    if (entry.source, entry.name) == (server.source, server.name):
        return server
    if entry.spec is None:
        return None
    return replace(
        server,
        name=entry.name,
        source=entry.source,
        definition=mask_definition(entry.raw),
        spec=replace(entry.spec, alias=server.alias),
        trusted=view.book.covers(entry.spec, environment),
        digest=definition_digest(entry.spec),
    )
