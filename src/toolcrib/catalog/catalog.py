"""The catalog: takes sources in and out, keeps the newest snapshots, tells what changed.

Python tools are there for everybody. Upstream servers are not: which ones there are depends on the directory that is
asked from, so there is one snapshot without any directory and one for each directory somebody asked from.

The catalog owns the list of sources, not the sources: whoever opened one closes it. Only what changed is read and
named; the parts of all other servers are carried over into the next snapshot. Names that are new are handed to
`keep_names`, which stores them, unless `reserve` gave them before; the table known from earlier runs is given at the
start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, count

from toolcrib.catalog.naming import PROMPT_FORMS, TOOL_FORMS, Form, NameRow, NameTable
from toolcrib.catalog.snapshot import CatalogChange, Part, Snapshot, difference, differing
from toolcrib.errors import Conflict
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.model.tools import ToolRef

NAMED_TOGETHER = 50
"""So many tools are given their names in one step."""

Place = str | None
"""A directory by its real path; None where no directory was named."""


class Catalog:
    """All sources, as one snapshot after another."""

    def __init__(
        self,
        names: NameTable,
        *,
        keep_names: Callable[[Sequence[NameRow]], None],
        on_change: Callable[[CatalogChange], None],
    ) -> None:
        self._keep_names = keep_names
        self._on_change = on_change
        self._own: dict[str, Part] = {}
        self._upstreams: dict[Place, tuple[Part, ...]] = {None: ()}
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._versions = count(1)
        self.names = names
        self._snapshots: dict[Place, Snapshot] = {None: Snapshot()}

    @property
    def snapshot(self) -> Snapshot:
        """What there is for somebody who names no directory."""
        return self._snapshots[None]

    def at(self, place: Place) -> Snapshot:
        """What there is for somebody in this directory; as without one where nothing is known of it."""
        return self._snapshots.get(place) or self._snapshots[None]

    def add(self, source: ToolSource) -> CatalogChange:
        """Take a new source in; a name that is taken is refused, so that nobody can stand in for another server."""
        return self._set_own({**self._own, **self._new(source, self._own)})

    def exchange(
        self, gone: Iterable[str], new: Iterable[ToolSource], problems: Iterable[Problem], group: str = "folder"
    ) -> CatalogChange:
        """Swap sources of a group in one step, together with all problems that stand beside that group."""
        left = set(gone)
        own = {name: part for name, part in self._own.items() if name not in left}
        for source in new:
            own |= self._new(source, own)
        self._problems[group] = tuple(problems)
        return self._set_own(own)

    def set_upstreams(self, place: Place, parts: Iterable[Part]) -> CatalogChange:
        """Say what upstream servers offer in a directory; the part of one that offers the same is the same object."""
        before = {id(part) for part in self._upstreams.get(place, ())}
        self._upstreams[place] = tuple(parts)
        self._name(part for part in self._upstreams[place] if id(part) not in before)
        return self._renew(place)

    def forget(self, place: str) -> None:
        """Drop a directory that nobody asks from any more."""
        self._upstreams.pop(place, None)
        self._snapshots.pop(place, None)

    def has_server(self, name: str) -> bool:
        """Whether a server of this name is in."""
        return name in self._own

    def refresh(self) -> CatalogChange:
        """Read all sources but the upstream servers again; publish a new snapshot where anything differs."""
        return self._set_own({name: part.renewed() for name, part in self._own.items()})

    def reserve(self, parts: Iterable[Part]) -> Iterator[Sequence[NameRow]]:
        """Give names to what is in these parts, before anybody sees it; the caller keeps the rows, which are new.

        Some names are given with each step, for there may be thousands; all of them are when there is no next one.
        """
        parts = tuple(parts)
        yield from self._named((ref for part in parts for ref in part.tools), TOOL_FORMS)
        yield from self._named((ref for part in parts for ref in part.prompts), PROMPT_FORMS)

    def _named(self, refs: Iterable[ToolRef], forms: tuple[Form, ...]) -> Iterator[Sequence[NameRow]]:
        missing = self.names.missing(refs, forms)
        for start in range(0, len(missing), NAMED_TOGETHER):
            yield self.names.extend(missing[start : start + NAMED_TOGETHER], forms)

    @staticmethod
    def _new(source: ToolSource, taken: Container[str]) -> dict[str, Part]:
        if source.name in taken:
            raise Conflict("tool.server_exists", f"A server named {source.name!r} is registered already.")
        return {source.name: Part.of(source)}

    def _set_own(self, own: dict[str, Part]) -> CatalogChange:
        self._own = own
        self._name(own.values())
        changes = [self._renew(place) for place in self._upstreams]
        return changes[0]

    def _renew(self, place: Place) -> CatalogChange:
        before = self.at(place)  # who comes to a new place had what there is everywhere
        after = self._composed(place)
        change = difference(before, after)
        if change or differing(before, after) or place not in self._snapshots:
            self._snapshots[place] = after
        if change:
            self._on_change(change)
        return change

    def _composed(self, place: Place) -> Snapshot:
        parts, taken = dict(self._own), list[Problem]()
        for upstream in self._upstreams[place]:
            name = upstream.source.name
            if name in self._own:
                message = f"The server {name!r} is left out: Python tools are registered under that name."
                taken.append(Problem("tool.server_exists", message, "Rename one of them."))
            else:
                parts[name] = upstream
        beside = (problem for group in self._problems.values() for problem in group)
        return Snapshot.of(next(self._versions), parts, (*beside, *taken))

    def _name(self, parts: Iterable[Part]) -> None:
        if rows := tuple(chain.from_iterable(self.reserve(parts))):
            self._keep_names(rows)
