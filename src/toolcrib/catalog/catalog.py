"""The catalog: takes sources in and out, keeps the newest snapshot, tells what changed.

The catalog owns the list of sources, not the sources: whoever opened one closes it. Names that are new are handed to
`keep_names`, which stores them; the table known from earlier runs is given at the start.
"""

from collections.abc import Callable, Iterable, Sequence

from toolcrib.catalog.naming import NameRow, NameTable
from toolcrib.catalog.snapshot import CatalogChange, Snapshot, difference
from toolcrib.errors import Conflict
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource


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
        self._folder_problems: tuple[Problem, ...] = ()
        self.snapshot = Snapshot(names=names)

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

    def has_server(self, name: str) -> bool:
        """Whether a server of this name is in."""
        return name in self._sources

    def refresh(self) -> CatalogChange:
        """Read all sources again; publish a new snapshot if anything differs."""
        tools = {tool.ref: tool for source in self._sources.values() for tool in source.tools()}
        names, rows = self.snapshot.names.extend(tools)
        if rows:
            self._keep_names(rows)
        problems = [problem for source in self._sources.values() for problem in source.problems()]
        after = Snapshot(
            version=self.snapshot.version + 1,
            tools=dict(sorted(tools.items())),
            sources=dict(self._sources),
            names=names,
            problems=(*self._folder_problems, *problems),
        )
        before, self.snapshot = self.snapshot, after
        change = difference(before, after)
        if change:
            self._on_change(change)
        return change
