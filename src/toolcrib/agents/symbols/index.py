"""The symbol index of each project, updated before every answer.

Only changed files are parsed again: modification time and size select the candidates, the digest decides. An update
that runs out of time answers with what it has and continues with the next query.

Must never block the event loop, nor keep source code: the displayed lines are read on demand.
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

from toolcrib.agents.symbols.entries import Kind, SourceFile, Symbol, SymbolReference
from toolcrib.agents.symbols.files import Looked, Stamp, digest_of, look, read_bytes
from toolcrib.agents.symbols.languages import language_of
from toolcrib.agents.symbols.parsing import parse

MOST_PROJECTS: Final = 8
"""The least recently used project is evicted beyond this."""
TIMEOUT: Final = 60.0
"""Seconds allowed for updating the index before an answer."""
LONGEST_LINE: Final = 300
_UNSETTLED: Final = 50_000_000
"""Nanoseconds within which a file may change twice without a new modification time."""
_SEPARATOR: Final = re.compile(r"::|\.")

_Item = TypeVar("_Item", Symbol, SymbolReference)


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of an index: files indexed, skipped and failed, and whether it is complete."""

    files: int
    skipped: int
    failed: int
    complete: bool


@dataclass(frozen=True, slots=True)
class SymbolResult(Generic[_Item]):
    """The best results; `total` counts all of them."""

    items: tuple[_Item, ...]
    total: int
    state: IndexState


@dataclass(frozen=True, slots=True)
class _Known:
    """An indexed file; `looked` is when it was read, in nanoseconds."""

    stamp: Stamp
    looked: int
    source: SourceFile

    def is_current(self, stamp: Stamp) -> bool:
        return self.stamp == stamp and stamp.modified + _UNSETTLED < self.looked


@dataclass(slots=True)
class _Project:
    """The index of one directory."""

    files: dict[str, _Known] = field(default_factory=dict[str, _Known])
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Symbols:
    """Finds symbols and references in projects. Child processes inherit a part of `environment`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._projects: OrderedDict[Path, _Project] = OrderedDict()

    async def find(self, root: Path, query: str, kinds: Collection[Kind], limit: int) -> SymbolResult[Symbol]:
        """Return symbols whose name contains the query, closest first; `Outer.name` also matches the container."""
        files, state = await self._current(root)
        return await anyio.to_thread.run_sync(partial(_matching, files, query, kinds, limit, state))

    async def references(self, root: Path, name: str, limit: int) -> SymbolResult[SymbolReference]:
        """Return the lines on which a name occurs, definitions first."""
        files, state = await self._current(root)
        return await anyio.to_thread.run_sync(partial(_referring, root, files, name, limit, state))

    async def _current(self, root: Path) -> tuple[Mapping[str, _Known], IndexState]:
        project = self._projects.setdefault(root, _Project())
        self._projects.move_to_end(root)
        if len(self._projects) > MOST_PROJECTS:
            self._projects.popitem(last=False)
        async with project.lock:
            looked = await look(root, self._environment)
            is_complete = await self._update(root, project, looked)
            files = dict(project.files)
        failed = sum(known.source.failed is not None for known in files.values())
        return files, IndexState(len(files), looked.skipped, failed, is_complete)

    async def _update(self, root: Path, project: _Project, looked: Looked) -> bool:
        """Update an index from its files; return whether it is complete."""
        project.files = {file: known for file, known in project.files.items() if file in looked.stamps}
        changed = await anyio.to_thread.run_sync(partial(_find_changed, root, project.files, looked.stamps))
        if not changed:
            return True
        now = time.time_ns()

        def take(file: str, source: SourceFile) -> None:
            project.files[file] = _Known(looked.stamps[file], now, source)

        with anyio.move_on_after(TIMEOUT) as waiting:
            await parse(root, [(file, language_of(file) or "") for file in changed], self._environment, take)
        return not waiting.cancelled_caught


def _find_changed(root: Path, known: dict[str, _Known], stamps: Mapping[str, Stamp]) -> list[str]:
    """Return the files whose content changed; update the stamps of the others."""
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
    files: Mapping[str, _Known], query: str, kinds: Collection[Kind], limit: int, state: IndexState
) -> SymbolResult[Symbol]:
    *outer, name = _SEPARATOR.split(query.strip())
    within = ".".join(outer).lower()
    sought = name.lower()
    found = [
        symbol
        for known in files.values()
        for symbol in known.source.symbols
        if sought in symbol.name.lower()
        and (not kinds or symbol.kind in kinds)
        and (not within or _is_inside(symbol, within))
    ]
    best = nsmallest(limit, found, key=lambda symbol: (*_distance(symbol.name, name), symbol.file, symbol.line))
    return SymbolResult(tuple(best), len(found), state)


def _is_inside(symbol: Symbol, within: str) -> bool:
    return f".{(symbol.container or '').lower()}".endswith(f".{within}")


def _distance(name: str, wanted: str) -> tuple[int, int]:
    """Rank how closely a name matches the query; smaller is closer.

    The order is: exact match, match ignoring case, prefix, start of a word, any other position; then shorter names
    first. An empty query matches all names equally.
    """
    if name == wanted or not wanted:
        return 0, 0
    at = name.lower().find(wanted.lower())
    if at == 0:
        return (1 if len(name) == len(wanted) else 2), len(name)
    before, first = name[at - 1 : at], name[at : at + 1]
    is_word = not before.isalnum() or (first.isupper() and not before.isupper())
    return (3 if is_word else 4), len(name)


def _referring(
    root: Path, files: Mapping[str, _Known], name: str, limit: int, state: IndexState
) -> SymbolResult[SymbolReference]:
    wanted = _SEPARATOR.split(name.strip())[-1]
    places: list[tuple[bool, str, int]] = []
    for file, known in files.items():
        lines = known.source.names.get(wanted)
        if lines is not None:
            defined = {symbol.line for symbol in known.source.symbols if symbol.name == wanted}
            places += [(line not in defined, file, line) for line in lines]
    shown = nsmallest(limit, places)
    texts = {file: _texts(root / file) for file in {file for _, file, _ in shown}}
    found = tuple(SymbolReference(file, line, _line(texts[file], line), not is_use) for is_use, file, line in shown)
    return SymbolResult(found, len(places), state)


def _texts(path: Path) -> Sequence[bytes]:
    try:
        return read_bytes(path).split(b"\n")
    except (OSError, ValueError):  # deleted in the meantime
        return ()


def _line(lines: Sequence[bytes], line: int) -> str:
    text = lines[line - 1].decode(errors="replace").strip() if line <= len(lines) else ""
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"
