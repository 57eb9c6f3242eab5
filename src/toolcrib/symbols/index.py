"""The index of each project's code, brought up to date before every answer.

Only files that changed are read again: modification time and size tell which may have, the content which have. An index
that is not complete when its time is up answers with what it has and goes on at the next question.

Above: built-in tools. Below: `files`, `parsing`. It must never hold up the event loop, nor keep the code itself: the
lines it shows are read when they are shown.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Final, Generic, TypeVar

import anyio
import anyio.to_thread

from toolcrib.symbols.entries import Kind, Reference, Source, Symbol
from toolcrib.symbols.files import Looked, Stamp, digest_of, look, read_bytes
from toolcrib.symbols.languages import language_of
from toolcrib.symbols.parsing import parse

MOST_PROJECTS: Final = 8
"""So many projects are kept; the one not asked for longest gives way."""
PATIENCE: Final = 60.0
"""Seconds that an answer waits for its index."""
LONGEST_LINE: Final = 300
_UNSETTLED: Final = 50_000_000
"""Nanoseconds in which a file may change twice with the same time on it."""
_SEPARATOR: Final = re.compile(r"::|\.")

_Item = TypeVar("_Item", Symbol, Reference)


@dataclass(frozen=True, slots=True)
class Standing:
    """How an index stands: files in it, files left out, files that could not be read, and whether it has all."""

    files: int
    skipped: int
    failed: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Item]):
    """What was found, the best of it; `total` is how many there are in all."""

    items: tuple[_Item, ...]
    total: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class _Known:
    """A file in the index; `looked` is when it was read, on the clock of the file system."""

    stamp: Stamp
    looked: int
    source: Source

    def is_current(self, stamp: Stamp) -> bool:
        return self.stamp == stamp and stamp.modified + _UNSETTLED < self.looked


@dataclass(slots=True)
class _Project:
    """One directory's index."""

    files: dict[str, _Known] = field(default_factory=dict[str, _Known])
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Symbols:
    """Symbols and references of projects. `environment` is what the processes that it starts are given some of."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._projects: OrderedDict[Path, _Project] = OrderedDict()

    async def find(self, root: Path, query: str, kinds: Collection[Kind], limit: int) -> Answer[Symbol]:
        """The symbols whose names have this in them, the closest first; `Outer.name` names what they stand in."""
        files, standing = await self._current(root)
        return await anyio.to_thread.run_sync(partial(_matching, files, query, kinds, limit, standing))

    async def references(self, root: Path, name: str, limit: int) -> Answer[Reference]:
        """The lines on which a name stands, definitions first."""
        files, standing = await self._current(root)
        return await anyio.to_thread.run_sync(partial(_referring, root, files, name, limit, standing))

    async def _current(self, root: Path) -> tuple[Mapping[str, _Known], Standing]:
        project = self._projects.setdefault(root, _Project())
        self._projects.move_to_end(root)
        if len(self._projects) > MOST_PROJECTS:
            self._projects.popitem(last=False)
        async with project.lock:
            looked = await look(root, self._environment)
            is_complete = await self._update(root, project, looked)
            files = dict(project.files)
        failed = sum(known.source.failed is not None for known in files.values())
        return files, Standing(len(files), looked.skipped, failed, is_complete)

    async def _update(self, root: Path, project: _Project, looked: Looked) -> bool:
        """Bring an index in step with its files; says whether time sufficed."""
        project.files = {file: known for file, known in project.files.items() if file in looked.stamps}
        changed = await anyio.to_thread.run_sync(partial(_changed, root, project.files, looked.stamps))
        if not changed:
            return True
        now = time.time_ns()

        def take(file: str, source: Source) -> None:
            project.files[file] = _Known(looked.stamps[file], now, source)

        with anyio.move_on_after(PATIENCE) as waiting:
            await parse(root, [(file, language_of(file) or "") for file in changed], self._environment, take)
        return not waiting.cancelled_caught


def _changed(root: Path, known: dict[str, _Known], stamps: Mapping[str, Stamp]) -> list[str]:
    """The files whose content is another; of the others the new time is noted."""
    now = time.time_ns()
    changed: list[str] = []
    for file, stamp in stamps.items():
        before = known.get(file)
        if before is not None and before.is_current(stamp):
            continue
        if before is not None and before.source.digest == _digest(root / file):
            known[file] = _Known(stamp, now, before.source)
        else:
            changed.append(file)
    return changed


def _digest(path: Path) -> str | None:
    try:
        return digest_of(read_bytes(path))
    except (OSError, ValueError):
        return None


def _matching(
    files: Mapping[str, _Known], query: str, kinds: Collection[Kind], limit: int, standing: Standing
) -> Answer[Symbol]:
    *outer, name = _SEPARATOR.split(query.strip())
    within = ".".join(outer).lower()
    sought = name.lower()
    found = [
        symbol
        for known in files.values()
        for symbol in known.source.symbols
        if sought in symbol.name.lower()
        and (not kinds or symbol.kind in kinds)
        and (not within or _stands_in(symbol, within))
    ]
    best = nsmallest(limit, found, key=lambda symbol: (*_distance(symbol.name, name), symbol.file, symbol.line))
    return Answer(tuple(best), len(found), standing)


def _stands_in(symbol: Symbol, within: str) -> bool:
    return f".{(symbol.container or '').lower()}".endswith(f".{within}")


def _distance(name: str, wanted: str) -> tuple[int, int]:
    """How far a name is from the part of it that was asked for.

    It is the whole, but for case, its beginning, a word in it, any part; then the shorter name is closer. Where nothing
    was asked for, all are as close.
    """
    if name == wanted or not wanted:
        return 0, 0
    at = name.lower().find(wanted.lower())
    if at == 0:
        return (1 if len(name) == len(wanted) else 2), len(name)
    before, first = name[at - 1 : at], name[at : at + 1]
    is_word = not before.isalnum() or (first.isupper() and not before.isupper())
    return (3 if is_word else 4), len(name)


def _referring(root: Path, files: Mapping[str, _Known], name: str, limit: int, standing: Standing) -> Answer[Reference]:
    wanted = _SEPARATOR.split(name.strip())[-1]
    places: list[tuple[bool, str, int]] = []
    for file, known in files.items():
        lines = known.source.names.get(wanted)
        if lines is not None:
            defined = {symbol.line for symbol in known.source.symbols if symbol.name == wanted}
            places += [(line not in defined, file, line) for line in lines]
    shown = nsmallest(limit, places)
    texts = {file: _texts(root / file) for file in {file for _, file, _ in shown}}
    found = tuple(Reference(file, line, _line(texts[file], line), not is_use) for is_use, file, line in shown)
    return Answer(found, len(places), standing)


def _texts(path: Path) -> Sequence[bytes]:
    try:
        return read_bytes(path).split(b"\n")
    except (OSError, ValueError):  # it went away in this moment
        return ()


def _line(lines: Sequence[bytes], line: int) -> str:
    text = lines[line - 1].decode(errors="replace").strip() if line <= len(lines) else ""
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"
