"""What servers there are, seen from one directory, and what that was read from.

A view is used again only while no file differs from the one it was made of, so it is never older than the files. A file
that can no longer be read keeps saying what it last said, beside the problem. All of it is blocking file work: `desk`
runs it in a thread, one at a time.
"""

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolcrib.config.discover import merge, surroundings
from toolcrib.config.memory import LastGood
from toolcrib.config.places import Surroundings, all_places
from toolcrib.config.readers.read import FileReading, Place, ReadEntry
from toolcrib.config.trust import TrustBook, load_trust
from toolcrib.errors import CODES, ConfigError
from toolcrib.home import Home
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Discovery, ServerEntry

KEPT = 16
"""Directories whose view is kept; the one asked for longest ago goes first. What belongs to no project stays."""

Fingerprint = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class View:
    """Everything that was found from one directory, `cwd`, None for what belongs to no project."""

    cwd: Path | None
    around: Surroundings
    places: tuple[Place, ...]
    prints: Mapping[Path, Fingerprint]
    readings: tuple[FileReading, ...]
    discovery: Discovery

    def written(self, server: ServerEntry) -> tuple[ReadEntry, ...]:
        """The entries that one server of the list stands for, the one in force first."""
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
        """The version of a file that was read; None if there was none."""
        return next((reading.digest for reading in self.readings if reading.place.file == file), None)


class Views:
    """Views of one crib's owner, made when asked for."""

    def __init__(self, home: Home, environment: Mapping[str, str], user_home: Path) -> None:
        self._home = home
        self._environment = environment
        self._user_home = user_home
        self._memory = LastGood()
        self._kept: OrderedDict[Path | None, View] = OrderedDict()
        self._dropped: list[Path] = []

    def kept(self) -> tuple[Path | None, ...]:
        """The directories whose view is kept."""
        return tuple(self._kept)

    def dropped(self) -> tuple[Path, ...]:
        """The directories whose view was given up since this was asked last."""
        dropped, self._dropped = self._dropped, []
        return tuple(path for path in dropped if path not in self._kept)

    def last(self, cwd: Path | None) -> View | None:
        """The view that was made last, whatever happened since."""
        return self._kept.get(_real(cwd))

    def of(self, cwd: Path | None) -> View:
        """What there is now."""
        cwd = _real(cwd)
        around = self._around(cwd)
        places = all_places(around)
        # Taken before reading: what changes meanwhile is noticed the next time.
        prints = {path: fingerprint(path) for path in (*(place.file for place in places), self._home.trust_file)}
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

    def _around(self, cwd: Path | None) -> Surroundings:
        around = surroundings(self._environment, cwd or self._user_home, home=self._user_home, crib=self._home.root)
        return around if cwd is not None else replace(around, directories=(), project=None)

    def _read(
        self,
        cwd: Path | None,
        around: Surroundings,
        places: tuple[Place, ...],
        prints: Mapping[Path, Fingerprint],
    ) -> View:
        book, unreadable = self._trust()
        found = [self._memory.read(place, around.directories, around.platform) for place in places]
        readings = tuple(reading for reading in found if reading is not None)
        merged = merge(readings, self._environment, book.covers)
        project = str(around.project) if around.project is not None else None
        discovery = replace(merged, project=project, problems=(*unreadable, *merged.problems))
        return View(cwd, around, places, prints, readings, _hinted(discovery))

    def _trust(self) -> tuple[TrustBook, tuple[Problem, ...]]:
        try:
            return load_trust(self._home.trust_file), ()
        except ConfigError as error:
            problem = Problem(error.code, error.message, error.hint, str(self._home.trust_file))
            return TrustBook(), (problem,)


def _real(cwd: Path | None) -> Path | None:
    """One directory has one name, whatever links lead to it: trust is bound to it."""
    return Path(os.path.realpath(cwd)) if cwd is not None else None


def _hinted(discovery: Discovery) -> Discovery:
    """The same with a next step on every problem that has one in the table of codes."""

    def with_hints(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        return tuple(replace(problem, hint=problem.hint or CODES[problem.code].hint) for problem in problems)

    def each(servers: tuple[ServerEntry, ...]) -> tuple[ServerEntry, ...]:
        return tuple(replace(server, problems=with_hints(server.problems)) for server in servers)

    return replace(
        discovery,
        servers=each(discovery.servers),
        hidden=each(discovery.hidden),
        problems=with_hints(discovery.problems),
    )


def fingerprint(path: Path) -> Fingerprint:
    """What the file system says about a file; None if there is none to be seen."""
    try:
        status = os.stat(path)  # noqa: PTH116 a hundred files a look: a Path would cost more than the call
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
