"""The catalog: adds and removes sources, holds the current snapshots, and publishes changes.

Python tools are available everywhere. Upstream servers depend on the caller's directory, so there is one snapshot
without a directory and one for each directory in use.

The catalog owns the list of sources, not the sources: the code that opens one closes it. Only changes are read and
named; the parts of all other servers carry over into the next snapshot. New names are passed to `keep_names`, which
stores them, unless `reserve` assigned them before. The table of earlier runs is passed in at the start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from toolcrib.gate.catalog.naming import PROMPT_FORMS, TOOL_FORMS, Form, NameRow, NameTable
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import NO_NAMES, ServerNames
from toolcrib.model.sources import ContentSource, NamedSource, ToolSource
from toolcrib.model.tools import ContentItem, Tool, ToolRef


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """The offering of one server: tools and prompts by identity, resources and templates, all sorted."""

    source: ToolSource
    tools: Mapping[ToolRef, Tool]
    prompts: Mapping[ToolRef, ContentItem]
    resources: tuple[ContentItem, ...]
    templates: tuple[ContentItem, ...]
    problems: tuple[Problem, ...]
    names: ServerNames = NO_NAMES

    @classmethod
    def of(cls, source: ToolSource) -> "SnapshotPart":
        """Read what a source currently offers."""
        content = source if isinstance(source, ContentSource) else None
        tools = {tool.ref: tool for tool in source.tools()}
        prompts = {ToolRef(each.server, each.key): each for each in content.prompts()} if content is not None else {}
        return cls(
            source,
            dict(sorted(tools.items())),
            dict(sorted(prompts.items())),
            _sort_items(content.resources()) if content is not None else (),
            _sort_items(content.templates()) if content is not None else (),
            tuple(source.problems()),
            source.server_names if isinstance(source, NamedSource) else NO_NAMES,
        )

    def renewed(self) -> "SnapshotPart":
        """Re-read the source. Returns the same object if nothing changed."""
        now = SnapshotPart.of(self.source)
        return self if now == self else now


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tools, prompts and resources at one moment: sorted by identity, with the part of each server, and problems.

    A snapshot shares unchanged parts with the one before it, so results computed for a part can be reused. A listing or
    call uses one snapshot from start to end.

    `also` maps other names of a definition to its server. The version differs for every snapshot of a catalog.
    """

    version: int = 0
    parts: Mapping[str, SnapshotPart] = field(default_factory=dict[str, SnapshotPart])
    tools: Mapping[ToolRef, Tool] = field(default_factory=dict[ToolRef, Tool])
    prompts: Mapping[ToolRef, ContentItem] = field(default_factory=dict[ToolRef, ContentItem])
    resources: tuple[ContentItem, ...] = ()
    templates: tuple[ContentItem, ...] = ()
    sources: Mapping[str, ToolSource] = field(default_factory=dict[str, ToolSource])
    problems: tuple[Problem, ...] = ()
    also: Mapping[str, str] = field(default_factory=dict[str, str])

    def server(self, name: str) -> str:
        """Return the server of this name: the one known by it, otherwise one whose definition also has it."""
        return name if name in self.parts else self.also.get(name, name)

    def canonical(self, ref: ToolRef) -> ToolRef:
        """Return the same tool under the canonical name of its server."""
        server = self.server(ref.server)
        return ref if server == ref.server else ToolRef(server, ref.tool)

    @classmethod
    def of(cls, version: int, parts: Mapping[str, SnapshotPart], problems: Iterable[Problem]) -> "Snapshot":
        """Combine these servers. `problems` belong to none of them."""
        in_order = [part for _, part in sorted(parts.items())]
        tools: dict[ToolRef, Tool] = {}
        prompts: dict[ToolRef, ContentItem] = {}
        for part in in_order:
            tools.update(part.tools)
            prompts.update(part.prompts)
        return cls(
            version,
            dict(sorted(parts.items())),
            tools,
            prompts,
            tuple(chain.from_iterable(part.resources for part in in_order)),
            tuple(chain.from_iterable(part.templates for part in in_order)),
            {name: part.source for name, part in parts.items()},
            (*problems, *chain.from_iterable(part.problems for part in parts.values())),
            _other_names(parts),
        )


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """The difference between a snapshot and the one before it."""

    version: int
    added: tuple[ToolRef, ...]
    removed: tuple[ToolRef, ...]
    changed: tuple[ToolRef, ...]
    prompts_changed: bool = False
    resources_changed: bool = False
    problems_changed: bool = False

    def __bool__(self) -> bool:
        tools = self.added or self.removed or self.changed
        return bool(tools or self.prompts_changed or self.resources_changed or self.problems_changed)

    def to_json(self) -> JsonObject:
        """Return the data of the event `catalog_changed`."""
        lists = {"added": self.added, "removed": self.removed, "changed": self.changed}
        tools = {key: [str(ref) for ref in refs] for key, refs in lists.items()}
        return {"version": self.version, **tools, "prompts": self.prompts_changed, "resources": self.resources_changed}


def differing(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the servers whose part differs between the snapshots, sorted."""
    old, new = before.parts, after.parts
    return sorted(name for name in old.keys() | new.keys() if old.get(name) is not new.get(name))


def difference(before: Snapshot, after: Snapshot) -> CatalogChange:
    """Return what changed between two snapshots. A tool is changed if its definition or marks are."""
    servers = differing(before, after)
    old = {ref: tool for name in servers if name in before.parts for ref, tool in before.parts[name].tools.items()}
    new = {ref: tool for name in servers if name in after.parts for ref, tool in after.parts[name].tools.items()}
    return CatalogChange(
        version=after.version,
        added=tuple(ref for ref in new if ref not in old),
        removed=tuple(ref for ref in old if ref not in new),
        changed=tuple(ref for ref in new if ref in old and new[ref] is not old[ref] and new[ref] != old[ref]),
        prompts_changed=before.prompts != after.prompts,
        resources_changed=(before.resources, before.templates) != (after.resources, after.templates),
        problems_changed=before.problems != after.problems,
    )


def _other_names(parts: Mapping[str, SnapshotPart]) -> dict[str, str]:
    """Map each additional name to its server: trusted names first, then in order of the servers."""
    in_order = [(server, part.names) for server, part in sorted(parts.items())]
    trusted = [(other.name, server) for server, names in in_order for other in names.trusted]
    claimed = [(other.name, server) for server, names in in_order for other in names.claimed]
    meant: dict[str, str] = {}
    for name, server in (*trusted, *claimed):
        if name not in parts:
            meant.setdefault(name, server)
    return meant


def _sort_items(items: Sequence[ContentItem]) -> tuple[ContentItem, ...]:
    return tuple(sorted(items, key=lambda item: (item.server, item.key)))


NAMED_TOGETHER = 50
"""Number of tools that are named in one step."""

ProjectDirectory = str | None
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
        self._upstreams: dict[ProjectDirectory, tuple[SnapshotPart, ...]] = {None: ()}
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._versions = count(1)
        self.names = names
        self.by_directory: dict[ProjectDirectory, Snapshot] = {None: Snapshot()}
        """The snapshot of each directory in use. None is that of callers without a directory, or in another one."""

    def watch(self, listener: Callable[[CatalogChange], None]) -> None:
        """Call `listener` after every change from now on."""
        self._listeners.append(listener)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot for callers without a directory."""
        return self.by_directory[None]

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots of all directories in use, the one without a directory first."""
        return tuple(self.by_directory.values())

    def at(self, place: ProjectDirectory) -> Snapshot:
        """Return the snapshot for callers in this directory, or the one without a directory if it is unknown."""
        return self.by_directory.get(place) or self.by_directory[None]

    def add(self, source: ToolSource) -> CatalogChange:
        """Add a source. Raises `Conflict` for a taken name, so that no source can impersonate another server."""
        return self._set_own({**self._own, **self._new(source, self._own)})

    def exchange(
        self, removed: Iterable[str], new: Iterable[ToolSource], problems: Iterable[Problem], group: str = "folder"
    ) -> CatalogChange:
        """Swap the sources of a group in one step, and replace all problems of that group."""
        left = set(removed)
        own = {name: part for name, part in self._own.items() if name not in left}
        for source in new:
            own |= self._new(source, own)
        self._problems[group] = tuple(problems)
        return self._set_own(own)

    def set_upstreams(self, place: ProjectDirectory, parts: Iterable[SnapshotPart]) -> CatalogChange:
        """Set the upstream servers of a directory. An unchanged server must be passed as the same part object."""
        before = {id(part) for part in self._upstreams.get(place, ())}
        self._upstreams[place] = tuple(parts)
        self._name(part for part in self._upstreams[place] if id(part) not in before)
        return self._renew(place)

    def forget(self, place: str) -> None:
        """Drop a directory that is no longer in use."""
        self._upstreams.pop(place, None)
        self.by_directory.pop(place, None)

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
        published = {id(part) for upstreams in self._upstreams.values() for part in upstreams}
        parts = tuple(part for part in parts if id(part) not in published)
        yield from self._reserve_missing((ref for part in parts for ref in part.tools), TOOL_FORMS)
        yield from self._reserve_missing((ref for part in parts for ref in part.prompts), PROMPT_FORMS)

    def _reserve_missing(self, refs: Iterable[ToolRef], forms: tuple[Form, ...]) -> Iterator[Sequence[NameRow]]:
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

    def _renew(self, place: ProjectDirectory) -> CatalogChange:
        before = self.at(place)  # a new directory starts from the snapshot without a directory
        after = self._compose(place)
        change = difference(before, after)
        if change or differing(before, after) or place not in self.by_directory:
            self.by_directory[place] = after
        if change:
            for listener in self._listeners:
                listener(change)
        return change

    def _compose(self, place: ProjectDirectory) -> Snapshot:
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
