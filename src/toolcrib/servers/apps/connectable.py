"""The apps that this crib can be written into: their files, and how to detect that they are installed.

Pure, apart from checking that files, directories and programs exist.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.servers.crib_entry import CribEntry, crib_entry, own_address
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.read import ConfigFile, ReadEntry

ConnectScope = Literal["user", "project"]


@dataclass(frozen=True, slots=True)
class Connectable:
    """One app: its id, the format of the user's file, its programs, and whether projects can have a file.

    `defers_tools`: it loads the definitions of tools when they are needed, so a long list costs it little.
    """

    name: str
    programs: tuple[str, ...] = ()
    in_projects: bool = True
    user_format: str = ""
    defers_tools: bool = False

    @property
    def title(self) -> str:
        """The name its vendor uses."""
        return CLIENTS[self.name].title

    def format(self, scope: ConnectScope) -> str:
        """Return the format of its file in that scope."""
        return self.user_format if self.user_format and scope == "user" else self.name


CONNECTABLE: tuple[Connectable, ...] = (
    Connectable("claude-code", ("claude",), user_format="claude-state", defers_tools=True),
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
    Connectable("antigravity", ("antigravity",)),
    Connectable("codebuddy", ("codebuddy",)),
    Connectable("grok", ("grok",)),
    Connectable("iflow", ("iflow",)),
    Connectable("junie", ("junie",)),
    Connectable("kimi", ("kimi",)),
    Connectable("openclaw", ("openclaw",), in_projects=False),
    Connectable("openhands", ("openhands",), in_projects=False),
    Connectable("pi", ("pi",)),
    Connectable("qoder", ("qoder",)),
    Connectable("roo"),
    Connectable("rovodev", in_projects=False),
    Connectable("tabnine", ("tabnine",)),
    Connectable("trae", ("trae",)),
)
"""The twelve apps promised first, then others whose files use the same two forms."""


def connectable(name: str) -> Connectable:
    """Return the app with this id, title or program. Raises `client.unknown`."""
    wanted = name.lower()
    for row in CONNECTABLE:
        if wanted == row.name or wanted in row.programs or wanted == row.title.lower():
            return row
    known = ", ".join(row.name for row in CONNECTABLE)
    raise NotFound("client.unknown", f"Unknown app {name!r}. Known apps: {known}.")


def programs_on(path: str) -> frozenset[str]:
    """Return the programs on this path by which an app is recognised, and this crib's own."""
    known = (*(program for row in CONNECTABLE for program in row.programs), "toolcrib")
    return frozenset(program for program in known if shutil.which(program, path=path) is not None)


def is_installed(row: Connectable, view: ProjectView, programs: frozenset[str]) -> bool:
    """Return whether the app has a file or directory of its own, or one of these programs."""
    # Other formats of an app may be files of other apps, such as Claude's folder, which oh-my-pi reads, too.
    own = [place.file for place in view.places.files if place.format == row.format("user") and place.scope == "user"]
    home = view.around.home
    return (
        any(os.path.lexists(file) for file in own)
        or any(file.parent != home and file.parent.is_dir() for file in own)
        or not programs.isdisjoint(row.programs)
    )


def places_of(row: Connectable, view: ProjectView) -> tuple[ConfigFile, ...]:
    """Return the files of an app that may contain a crib, for the user and the project."""
    formats: dict[str, str] = {"user": row.format("user"), "project": row.format("project")}
    return tuple(place for place in view.places.files if formats.get(place.scope) == place.format)


def place_for(row: Connectable, view: ProjectView, scope: ConnectScope) -> ConfigFile:
    """Return the file of an app that has, or will get, the crib's entry. Raises `config.unsupported`."""
    places = [place for place in view.places.files if place.format == row.format(scope) and place.scope == scope]
    if scope == "project":
        root = view.around.directories[-1:]
        places = [place for place in places if place.directory in root] if row.in_projects else []
    if not places:
        message = f"{row.title} has no {'project' if scope == 'project' else 'user'} file here."
        raise InvalidRequest("config.unsupported", message, "Leave out `--project`, or run it inside a project.")

    def fit(place: ConfigFile) -> tuple[bool, bool, bool]:
        """Prefer a file with the crib's entry, then an existing file, then an existing directory."""
        folder = place.file.parent
        is_own = folder != view.around.home and folder.is_dir()
        return bool(entries_of_crib(view, place)), os.path.lexists(place.file), is_own

    return max(places, key=fit)  # the first of the best candidates


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """An entry of a crib as written in a file."""

    read: ReadEntry
    says: CribEntry


def entries_of_crib(view: ProjectView, place: ConfigFile) -> tuple[WrittenEntry, ...]:
    """Return the entries of a crib in a file."""
    return cribs_among(entries_at(view, place))


def cribs_among(entries: Iterable[ReadEntry]) -> tuple[WrittenEntry, ...]:
    """Return the entries of a crib. One with a crib's name and a crib-like address counts as a stale entry."""
    found: list[WrittenEntry] = []
    for read in entries:
        if read.spec is None:
            continue
        is_called_so = read.name == "toolcrib" or read.name.startswith("toolcrib-")
        says = crib_entry(read.spec) or (own_address(read.spec) if is_called_so else None)
        if says is not None:
            found.append(WrittenEntry(read, says))
    return tuple(found)


def entries_at(view: ProjectView, place: ConfigFile) -> tuple[ReadEntry, ...]:
    """Return all entries of a file in its scope."""
    readings = [reading for reading in view.readings if reading.place.file == place.file]
    return tuple(read for reading in readings for read in reading.entries if read.place.scope == place.scope)


def runs(command: str, programs: frozenset[str]) -> bool:
    """Return whether the program exists: at its path, or among `programs`."""
    return Path(command).is_file() if os.path.dirname(command) else command in programs  # noqa: PTH120 only checks whether it has a directory
