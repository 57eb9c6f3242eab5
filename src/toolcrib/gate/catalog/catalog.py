"""The catalog: adds and removes sources, holds the current snapshots, and publishes changes.

Python tools are available everywhere. Upstream servers depend on the caller's directory, so there is one snapshot
without a directory and one for each directory in use.

The catalog owns the list of sources, not the sources: the code that opens one closes it. Only changes are read and
named; the parts of all other servers carry over into the next snapshot. New names are passed to `keep_names`, which
stores them, unless `reserve` assigned them before. The table of earlier runs is passed in at the start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, count

from toolcrib.gate.catalog.naming import PROMPT_FORMS, TOOL_FORMS, Form, NameRow, NameTable
from toolcrib.gate.catalog.snapshot import CatalogChange, Snapshot, SnapshotPart, difference, differing
from toolcrib.model.errors import Conflict
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.model.tools import ToolRef

NAMED_TOGETHER = 50
"""Number of tools that are named in one step."""

Place = str | None
"""A directory by its real path, or None."""


class Catalog:
    """All sources, as a sequence of snapshots."""

    def __init__(
        self,
        names: NameTable,
        *,
        keep_names: Callable[[Sequence[NameRow]], None],
        on_change: Callable[[CatalogChange], None],
    ) -> None:
        self._keep_names = keep_names
        self._listeners = [on_change]
        self._own: dict[str, SnapshotPart] = {}
        self._upstreams: dict[Place, tuple[SnapshotPart, ...]] = {None: ()}
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._versions = count(1)
        self.names = names
        self._snapshots: dict[Place, Snapshot] = {None: Snapshot()}

    def watch(self, listener: Callable[[CatalogChange], None]) -> None:
        """Call `listener` after every change from now on."""
        self._listeners.append(listener)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot for callers without a directory."""
        return self._snapshots[None]

    def at(self, place: Place) -> Snapshot:
        """Return the snapshot for callers in this directory, or the one without a directory if it is unknown."""
        return self._snapshots.get(place) or self._snapshots[None]

    def add(self, source: ToolSource) -> CatalogChange:
        """Add a source. Raises `Conflict` for a taken name, so that no source can impersonate another server."""
        return self._set_own({**self._own, **self._new(source, self._own)})

    def exchange(
        self, gone: Iterable[str], new: Iterable[ToolSource], problems: Iterable[Problem], group: str = "folder"
    ) -> CatalogChange:
        """Swap the sources of a group in one step, and replace all problems of that group."""
        left = set(gone)
        own = {name: part for name, part in self._own.items() if name not in left}
        for source in new:
            own |= self._new(source, own)
        self._problems[group] = tuple(problems)
        return self._set_own(own)

    def set_upstreams(self, place: Place, parts: Iterable[SnapshotPart]) -> CatalogChange:
        """Set the upstream servers of a directory. An unchanged server must be passed as the same part object."""
        before = {id(part) for part in self._upstreams.get(place, ())}
        self._upstreams[place] = tuple(parts)
        self._name(part for part in self._upstreams[place] if id(part) not in before)
        return self._renew(place)

    def forget(self, place: str) -> None:
        """Drop a directory that is no longer in use."""
        self._upstreams.pop(place, None)
        self._snapshots.pop(place, None)

    def has_server(self, name: str) -> bool:
        """Return whether a server of this name is registered."""
        return name in self._own

    def refresh(self) -> CatalogChange:
        """Re-read all sources except upstream servers, and publish a new snapshot if anything differs."""
        return self._set_own({name: part.renewed() for name, part in self._own.items()})

    def reserve(self, parts: Iterable[SnapshotPart]) -> Iterator[Sequence[NameRow]]:
        """Name the tools and prompts in these parts before they are published. The caller stores the new rows.

        There may be thousands, so each step assigns only some names. All are assigned once the iterator is exhausted.
        """
        parts = tuple(parts)
        yield from self._named((ref for part in parts for ref in part.tools), TOOL_FORMS)
        yield from self._named((ref for part in parts for ref in part.prompts), PROMPT_FORMS)

    def _named(self, refs: Iterable[ToolRef], forms: tuple[Form, ...]) -> Iterator[Sequence[NameRow]]:
        missing = self.names.missing(refs, forms)
        for start in range(0, len(missing), NAMED_TOGETHER):
            yield self.names.extend(missing[start : start + NAMED_TOGETHER], forms)

    @staticmethod
    def _new(source: ToolSource, taken: Container[str]) -> dict[str, SnapshotPart]:
        if source.name in taken:
            raise Conflict("tool.server_exists", f"A server named {source.name!r} is already registered.")
        return {source.name: SnapshotPart.of(source)}

    def _set_own(self, own: dict[str, SnapshotPart]) -> CatalogChange:
        self._own = own
        self._name(own.values())
        changes = [self._renew(place) for place in self._upstreams]
        return changes[0]

    def _renew(self, place: Place) -> CatalogChange:
        before = self.at(place)  # a new directory starts from the snapshot without a directory
        after = self._composed(place)
        change = difference(before, after)
        if change or differing(before, after) or place not in self._snapshots:
            self._snapshots[place] = after
        if change:
            for listener in self._listeners:
                listener(change)
        return change

    def _composed(self, place: Place) -> Snapshot:
        parts, taken = dict(self._own), list[Problem]()
        for upstream in self._upstreams[place]:
            name = upstream.source.name
            if name in self._own:
                message = f"The server {name!r} was skipped: Python tools are registered under that name."
                taken.append(Problem("tool.server_exists", message, "Rename one of them."))
            else:
                parts[name] = upstream
        beside = (problem for group in self._problems.values() for problem in group)
        return Snapshot.of(next(self._versions), parts, (*beside, *taken))

    def _name(self, parts: Iterable[SnapshotPart]) -> None:
        if rows := tuple(chain.from_iterable(self.reserve(parts))):
            self._keep_names(rows)
