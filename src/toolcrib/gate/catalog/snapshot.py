"""Snapshots: all tools, prompts and resources of the crib at one moment, immutable and numbered.

A snapshot consists of immutable parts, one per server, and shares unchanged parts with the one before it. Results
computed for a part can therefore be reused. A listing or call uses one snapshot from start to end. Comparing two
snapshots yields the changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.server_names import NO_NAMES, ServerNames
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
            _sorted(content.resources()) if content is not None else (),
            _sorted(content.templates()) if content is not None else (),
            tuple(source.problems()),
            source.server_names if isinstance(source, NamedSource) else NO_NAMES,
        )

    def renewed(self) -> "SnapshotPart":
        """Re-read the source. Returns the same object if nothing changed."""
        now = SnapshotPart.of(self.source)
        return self if now == self else now


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Sorted tools and prompts by identity, resources and templates, the part of each server, and problems.

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


def _sorted(items: Sequence[ContentItem]) -> tuple[ContentItem, ...]:
    return tuple(sorted(items, key=lambda item: (item.server, item.key)))
