"""The catalog: takes sources in and out, keeps the newest snapshots, tells what changed.

Python tools are there for everybody. Upstream servers are not: which ones there are depends on the directory that is
asked from, so there is one snapshot without any directory and one for each directory somebody asked from.

The catalog owns the list of sources, not the sources: whoever opened one closes it. Names that are new are handed to
`keep_names`, which stores them; the table known from earlier runs is given at the start.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from toolcrib.catalog.naming import PROMPT_FORMS, NameRow, NameTable
from toolcrib.catalog.snapshot import CatalogChange, Snapshot, difference
from toolcrib.errors import Conflict
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ContentSource, ToolSource
from toolcrib.model.tools import ContentItem, ToolRef

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
        self._sources: dict[str, ToolSource] = {}
        self._upstreams: dict[Place, tuple[ToolSource, ...]] = {None: ()}
        self._folder_problems: tuple[Problem, ...] = ()
        self._versions = itertools.count(1)
        self.names = names
        self._snapshots: dict[Place, Snapshot] = {None: Snapshot(names=names)}

    @property
    def snapshot(self) -> Snapshot:
        """What there is for somebody who names no directory."""
        return self._snapshots[None]

    def at(self, place: Place) -> Snapshot:
        """What there is for somebody in this directory; as without one where nothing is known of it."""
        return self._snapshots.get(place) or self._snapshots[None]

    def add(self, source: ToolSource) -> CatalogChange:
        """Take a new source in; a name that is taken is refused, so that nobody can stand in for another server."""
        if source.name in self._sources:
            raise Conflict("tool.server_exists", f"A server named {source.name!r} is registered already.")
        self._sources[source.name] = source
        return self.refresh()

    def exchange(self, gone: Iterable[str], new: Iterable[ToolSource], problems: Iterable[Problem]) -> CatalogChange:
        """Swap a group of sources in one step, together with the problems that stand beside them."""
        sources = {name: source for name, source in self._sources.items() if name not in set(gone)}
        for source in new:
            if source.name in sources:
                raise Conflict("tool.server_exists", f"A server named {source.name!r} is registered already.")
            sources[source.name] = source
        self._sources = sources
        self._folder_problems = tuple(problems)
        return self.refresh()

    def set_upstreams(self, place: Place, sources: Iterable[ToolSource]) -> CatalogChange:
        """Say which upstream servers there are in a directory, and that what they offer may have changed."""
        self._upstreams[place] = tuple(sources)
        return self._renew(place)

    def forget(self, place: str) -> None:
        """Drop a directory that nobody asks from any more."""
        self._upstreams.pop(place, None)
        self._snapshots.pop(place, None)

    def has_server(self, name: str) -> bool:
        """Whether a server of this name is in."""
        return name in self._sources

    def refresh(self) -> CatalogChange:
        """Read all sources again; publish a new snapshot where anything differs."""
        changes = [self._renew(place) for place in self._upstreams]
        return changes[0]

    def _renew(self, place: Place) -> CatalogChange:
        before = self.at(place)  # who comes to a new place had what there is everywhere
        after = self._read(place)
        change = difference(before, after)
        self._snapshots[place] = after
        if change:
            self._on_change(change)
        return change

    def _read(self, place: Place) -> Snapshot:
        sources, taken = dict(self._sources), list[Problem]()
        for upstream in self._upstreams[place]:
            if upstream.name in sources:
                message = f"The server {upstream.name!r} is left out: Python tools are registered under that name."
                taken.append(Problem("tool.server_exists", message, "Rename one of them."))
            else:
                sources[upstream.name] = upstream
        tools = {tool.ref: tool for source in sources.values() for tool in source.tools()}
        contents = [source for source in sources.values() if isinstance(source, ContentSource)]
        prompts = {ToolRef(each.server, each.key): each for source in contents for each in source.prompts()}
        self._name(tools, prompts)
        return Snapshot(
            version=next(self._versions),
            tools=dict(sorted(tools.items())),
            prompts=dict(sorted(prompts.items())),
            resources=_sorted(each for source in contents for each in source.resources()),
            templates=_sorted(each for source in contents for each in source.templates()),
            sources=sources,
            names=self.names,
            problems=(*self._folder_problems, *taken, *(each for s in sources.values() for each in s.problems())),
        )

    def _name(self, tools: Iterable[ToolRef], prompts: Mapping[ToolRef, ContentItem]) -> None:
        self.names, tool_rows = self.names.extend(tools)
        self.names, prompt_rows = self.names.extend(prompts, PROMPT_FORMS)
        if rows := (*tool_rows, *prompt_rows):
            self._keep_names(rows)


def _sorted(items: Iterable[ContentItem]) -> tuple[ContentItem, ...]:
    return tuple(sorted(items, key=lambda item: (item.server, item.key)))
