"""The tools this crib can be written into: which file of theirs, and by what one knows that they are on this machine.

Above: `clients`. Below: `view`, `config`. Pure but for looking whether files, directories and programs exist.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.config.crib_entry import CribEntry, crib_entry, own_address
from toolcrib.config.readers.clients import CLIENTS
from toolcrib.config.readers.read import Place, ReadEntry
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.servers.view import View

ConnectScope = Literal["user", "project"]


@dataclass(frozen=True, slots=True)
class Connectable:
    """One tool: its name here, the format of the person's file, its programs, and whether a project can have a file."""

    name: str
    programs: tuple[str, ...] = ()
    in_projects: bool = True
    user_format: str = ""

    @property
    def title(self) -> str:
        """The name that its makers use."""
        return CLIENTS[self.name].title

    def format(self, scope: ConnectScope) -> str:
        """The format of its file at that level."""
        return self.user_format if self.user_format and scope == "user" else self.name


CONNECTABLE: tuple[Connectable, ...] = (
    Connectable("claude-code", ("claude",), user_format="claude-state"),
    Connectable("claude-desktop", in_projects=False),
    Connectable("cursor", ("cursor", "cursor-agent")),
    Connectable("vscode", ("code", "code-insiders")),
    Connectable("codex", ("codex",)),
    Connectable("gemini", ("gemini",)),
    Connectable("opencode", ("opencode",)),
    Connectable("windsurf", ("windsurf",), in_projects=False),
    Connectable("zed", ("zed", "zeditor")),
    Connectable("cline", ("cline",), in_projects=False),
    Connectable("copilot-cli", ("copilot",)),
    Connectable("goose", ("goose",), in_projects=False),
    Connectable("qwen", ("qwen",)),
    Connectable("kilo", ("kilo",)),
    Connectable("factory", ("droid",)),
    Connectable("amp", ("amp",)),
    Connectable("kiro", ("kiro", "kiro-cli")),
    Connectable("crush", ("crush",)),
    Connectable("auggie", ("auggie",)),
    Connectable("oh-my-pi", ("omp",)),
    Connectable("lm-studio", ("lms",), in_projects=False),
)
"""The twelve that are promised first; then others whose files take the same two forms."""


def connectable(name: str) -> Connectable:
    """The tool of this name, or with a program of this name. Raises `client.unknown`."""
    wanted = name.lower()
    for row in CONNECTABLE:
        if wanted == row.name or wanted in row.programs or wanted == row.title.lower():
            return row
    known = ", ".join(row.name for row in CONNECTABLE)
    raise NotFound("client.unknown", f"There is no client {name!r} to connect; known are {known}.")


def is_installed(row: Connectable, view: View, path: str) -> bool:
    """Whether the tool left a file or a directory of its own, or has a program on the path."""
    own = [place.file for place in view.places if place.dialect.client == row.name and place.scope == "user"]
    home = view.around.home
    return (
        any(os.path.lexists(file) for file in own)
        or any(file.parent != home and file.parent.is_dir() for file in own)
        or any(shutil.which(program, path=path) is not None for program in row.programs)
    )


def places_of(row: Connectable, view: View) -> tuple[Place, ...]:
    """The files of a tool that a crib may stand in, of the person and of the project."""
    formats: dict[str, str] = {"user": row.format("user"), "project": row.format("project")}
    return tuple(place for place in view.places if formats.get(place.scope) == place.format)


def place_for(row: Connectable, view: View, scope: ConnectScope) -> Place:
    """The file of a tool that the crib stands in or goes into. Raises `config.unsupported`."""
    places = [place for place in view.places if place.format == row.format(scope) and place.scope == scope]
    if scope == "project":
        root = view.around.directories[-1:]
        places = [place for place in places if place.directory in root] if row.in_projects else []
    if not places:
        message = f"{row.title} has no file for {'projects' if scope == 'project' else 'a person'} here."
        raise InvalidRequest("config.unsupported", message, "Leave out `--project`, or run it inside a project.")

    def fit(place: Place) -> tuple[bool, bool, bool]:
        """Where the crib stands, else where the tool has a file, else where it has a directory of its own."""
        folder = place.file.parent
        is_own = folder != view.around.home and folder.is_dir()
        return bool(entries_of_crib(view, place)), os.path.lexists(place.file), is_own

    return max(places, key=fit)  # the first of those that fit best


@dataclass(frozen=True, slots=True)
class Written:
    """An entry of a crib as it stands in a file."""

    read: ReadEntry
    says: CribEntry


def entries_of_crib(view: View, place: Place) -> tuple[Written, ...]:
    """The entries of a crib in a file."""
    return cribs_among(entries_at(view, place))


def cribs_among(entries: Iterable[ReadEntry]) -> tuple[Written, ...]:
    """The entries of a crib; what is called like one and lies at such an address is one that went stale."""
    found: list[Written] = []
    for read in entries:
        if read.spec is None:
            continue
        is_called_so = read.name == "toolcrib" or read.name.startswith("toolcrib-")
        says = crib_entry(read.spec) or (own_address(read.spec) if is_called_so else None)
        if says is not None:
            found.append(Written(read, says))
    return tuple(found)


def entries_at(view: View, place: Place) -> tuple[ReadEntry, ...]:
    """All entries of a file at its level."""
    readings = [reading for reading in view.readings if reading.place.file == place.file]
    return tuple(read for reading in readings for read in reading.entries if read.place.scope == place.scope)


def runs(command: str, path: str) -> bool:
    """Whether there is such a program."""
    return Path(command).is_file() if os.path.dirname(command) else shutil.which(command, path=path) is not None  # noqa: PTH120 only whether it names a directory
