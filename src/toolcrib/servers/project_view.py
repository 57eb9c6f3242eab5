"""The servers visible from one directory, and the files they were read from.

A view is reused only while its files are unchanged, so it is never outdated. A file that becomes unreadable keeps its
last valid content, next to the problem. Everything here blocks on files: `Servers` runs it in a thread, one call at a
time.
"""

import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from toolcrib.base.files.reading import read_bytes
from toolcrib.base.home import Home
from toolcrib.base.named_secrets import SecretRecord, index_of, load_index
from toolcrib.model.errors import ConfigError, NotFound
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Discovery, ServerEntry
from toolcrib.servers.discover import compose, surroundings
from toolcrib.servers.extensions import config_files
from toolcrib.servers.places import ConfigFiles, Machine
from toolcrib.servers.readers.read import ConfigFile, FileReading, ReadEntry, read_place
from toolcrib.servers.trust import TrustBook, change_trust, load_trust

KEPT = 16
"""Number of cached views; the least recently used is evicted first. The view without a project always stays."""

Fingerprint = tuple[int, int, int, int] | None


class LastGood:
    """Reads files; for a broken or emptied one, returns the last good content with the current problem.

    The servers of a deleted file disappear with it. The content is remembered per file and directories, since some
    files cover several projects.
    """

    def __init__(self) -> None:
        self._good: dict[tuple[str, Path, tuple[Path, ...]], FileReading] = {}

    def read(self, place: ConfigFile, directories: tuple[Path, ...], platform: str) -> FileReading | None:
        """Like `read_place`, but fall back to the last good content."""
        key = (place.format, place.file, directories)
        reading = read_place(place, directories, platform)
        if reading is None:
            self._good.pop(key, None)
        elif not reading.broken and not (reading.emptied and key in self._good):
            self._good[key] = reading
        elif key in self._good:
            return replace(self._good[key], problems=reading.problems or (_emptied_problem(place),), broken=True)
        return reading


def _emptied_problem(place: ConfigFile) -> Problem:
    message = f"{place.file.name}: the file was emptied; its last content is still in use"
    return Problem("config.empty", message, "Restore its content, or delete the file.", str(place.file))


@dataclass(frozen=True, slots=True)
class ProjectView:
    """Everything found from the directory `cwd`; None for the view without a project."""

    cwd: Path | None
    around: Machine
    places: ConfigFiles
    prints: Mapping[Path, Fingerprint]
    readings: tuple[FileReading, ...]
    book: TrustBook
    discovery: Discovery

    def written(self, server: ServerEntry) -> tuple[ReadEntry, ...]:
        """Return the entries of one server, the one in force first."""
        wanted = (server.source, *(source for source in server.sources if source != server.source))
        names = {server.name, *server.same_as}
        entries = [
            entry
            for reading in self.readings
            for entry in reading.entries
            if entry.name in names and entry.source in wanted
        ]
        return tuple(sorted(entries, key=lambda entry: (wanted.index(entry.source), entry.name != server.name)))

    def version(self, file: Path) -> str | None:
        """Return the version of a file that was read; None if it did not exist."""
        return next((reading.digest for reading in self.readings if reading.place.file == file), None)


class ProjectViews:
    """The views of one crib's user, built on demand."""

    def __init__(self, home: Home, environment: Mapping[str, str], user_home: Path) -> None:
        self._home = home
        self._environment = environment
        self._user_home = user_home
        self._memory = LastGood()
        self._kept: OrderedDict[Path | None, ProjectView] = OrderedDict()
        self._dropped: list[Path] = []

    def kept(self) -> tuple[Path | None, ...]:
        """Return the directories whose view is cached."""
        return tuple(self._kept)

    def dropped(self) -> tuple[Path, ...]:
        """Return the directories whose view was evicted since the last call."""
        dropped, self._dropped = self._dropped, []
        return tuple(path for path in dropped if path not in self._kept)

    def last(self, cwd: Path | None) -> ProjectView | None:
        """Return the latest cached view without checking its files."""
        return self._kept.get(_real(cwd))

    def of(self, cwd: Path | None) -> ProjectView:
        """Return the current view."""
        cwd = _real(cwd)
        around = self._around(cwd)
        places = config_files(around)
        # Taken before reading, so a concurrent change is noticed next time.
        watched = (
            *(place.file for place in places.files),
            *places.consulted,
            self._home.trust_file,
            index_of(self._home.secrets),
        )
        prints = {path: fingerprint(path) for path in watched}
        kept = self._kept.get(cwd)
        if kept is None or kept.places != places or kept.prints != prints:
            kept = self._read(cwd, around, places, prints)
        self._kept[cwd] = kept
        self._kept.move_to_end(cwd)
        while len(self._kept) > KEPT:
            oldest = next(path for path in self._kept if path is not None)
            self._dropped.append(oldest)
            del self._kept[oldest]
        return kept

    def check_not_emptied(self, file: Path) -> None:
        """Raise `config.empty` for a file that was emptied, since a change would lose its last content."""
        readings = (each for view in self._kept.values() for each in view.readings if each.place.file == file)
        if any(each.broken and each.entries for each in readings) and not _has_content(file):
            message = f"{file} was emptied. Its last content is still in use and would be lost by a change."
            raise ConfigError("config.empty", message, "Restore its content, or delete the file.")

    def _around(self, cwd: Path | None) -> Machine:
        around = surroundings(self._environment, cwd or self._user_home, home=self._user_home, crib=self._home.root)
        return around if cwd is not None else replace(around, directories=(), project=None)

    def _read(
        self,
        cwd: Path | None,
        around: Machine,
        places: ConfigFiles,
        prints: Mapping[Path, Fingerprint],
    ) -> ProjectView:
        found = [self._memory.read(place, around.directories, around.platform) for place in places.files]
        readings = tuple(reading for reading in found if reading is not None)
        book, unreadable = self._trust(readings)
        stored, damaged = self._secrets()
        composed = compose(
            replace(around, secrets=stored),
            readings,
            partial(book.covers, environment=self._environment),
            (*unreadable, *damaged, *places.problems),
        )
        discovery = replace(
            composed, servers=tuple(_revealing(server, book) for server in composed.servers), agreed=book.agreed()
        )
        return ProjectView(cwd, around, places, prints, readings, book, discovery)

    def _secrets(self) -> tuple[Mapping[str, SecretRecord], tuple[Problem, ...]]:
        """Return the records of the stored secrets."""
        try:
            return load_index(self._home.secrets), ()
        except ConfigError as error:
            return {}, (Problem(error.code, error.message, error.hint, str(index_of(self._home.secrets))),)

    def _trust(self, readings: tuple[FileReading, ...]) -> tuple[TrustBook, tuple[Problem, ...]]:
        """Return the trust records; those of an earlier version are renewed for the definitions read."""
        specs = [entry.spec for reading in readings for entry in reading.entries if entry.spec is not None]
        files = [str(reading.place.file) for reading in readings if not reading.broken and not reading.emptied]
        try:
            book = load_trust(self._home.trust_file)
            if book.renewed(specs, files) != book:
                book = change_trust(self._home.trust_file, lambda stored: stored.renewed(specs, files))
            return book, ()
        except ConfigError as error:
            problem = Problem(error.code, error.message, error.hint, str(self._home.trust_file))
            return TrustBook(), (problem,)


def _has_content(file: Path) -> bool:
    content = read_bytes(file)
    return not isinstance(content, bytes) or bool(content.strip())


def _real(cwd: Path | None) -> Path | None:
    """Resolve links, so that trust is bound to one path per directory."""
    return Path(os.path.realpath(cwd)) if cwd is not None else None


def _revealing(server: ServerEntry, book: TrustBook) -> ServerEntry:
    """Return the server with the user's consent to grave exposures of a project's definition, if any."""
    spec = server.spec
    if spec is None or spec.source.project is None or not book.may_reveal(spec):
        return server
    return replace(server, spec=replace(spec, may_reveal=True))


def fingerprint(path: Path) -> Fingerprint:
    """Return the status of a file, or of a link that leads nowhere; None if there is neither."""
    try:
        status = os.stat(path)  # noqa: PTH116 about a hundred files per view: a Path would cost more than the call
    except (OSError, ValueError):
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def find_server(view: ProjectView, name: str, *, hidden: bool = False) -> ServerEntry:
    """Return the server of this name or alias; with `hidden`, also a removed one. Raises `server.unknown`."""
    found = view.discovery.find(name)
    if found is None and hidden:
        found = next((each for each in view.discovery.hidden if name in (each.alias, each.name)), None)
    if found is not None:
        return found
    known = sorted({word for each in view.discovery.servers for word in (each.name, each.alias)})
    near = get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else None
    raise NotFound("server.unknown", f'Server "{name}" not found.', hint)


def chosen_servers(view: ProjectView, names: Collection[str]) -> tuple[ServerEntry, ...]:
    """Return the named servers, else all of ours that are in force."""
    if names:
        return tuple(find_server(view, name) for name in names)
    own = (server for server in view.discovery.servers if server.source.client == "toolcrib")
    return tuple(server for server in own if server.shadowed_by is None)


def server_after(view: ProjectView, server: ServerEntry) -> ServerEntry:
    """Return a server after its trust changed, which may change its alias."""
    same = (each for each in view.discovery.servers if server.source in each.sources)
    named = (each for each in same if server.name in (each.name, *each.same_as))
    return next(named, None) or find_server(view, server.name)
