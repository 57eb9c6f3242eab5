"""A snapshot: all tools, prompts and resources of the crib at one moment, immutable and numbered.

It is put together from parts, one for each server, which are immutable too: a snapshot shares the parts of the one
before it but for what changed, so whoever works something out for a part need not do so again. Whoever lists or calls
works on one snapshot from start to end. Two snapshots are compared to say what changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ContentSource, ToolSource
from toolcrib.model.tools import ContentItem, Tool, ToolRef


@dataclass(frozen=True, slots=True)
class Part:
    """What one server offers: tools and prompts by identity, resources and templates, all in sorted order."""

    source: ToolSource
    tools: Mapping[ToolRef, Tool]
    prompts: Mapping[ToolRef, ContentItem]
    resources: tuple[ContentItem, ...]
    templates: tuple[ContentItem, ...]
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, source: ToolSource) -> "Part":
        """What a source offers now."""
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
        )

    def renewed(self) -> "Part":
        """What its source offers now: the same object where that is the same."""
        now = Part.of(self.source)
        return self if now == self else now


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tools and prompts by identity in sorted order, resources and their templates, the part of each server, what is
    wrong. The version is another one for every snapshot of a catalog."""

    version: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict[str, Part])
    tools: Mapping[ToolRef, Tool] = field(default_factory=dict[ToolRef, Tool])
    prompts: Mapping[ToolRef, ContentItem] = field(default_factory=dict[ToolRef, ContentItem])
    resources: tuple[ContentItem, ...] = ()
    templates: tuple[ContentItem, ...] = ()
    sources: Mapping[str, ToolSource] = field(default_factory=dict[str, ToolSource])
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, version: int, parts: Mapping[str, Part], problems: Iterable[Problem]) -> "Snapshot":
        """All of these servers together; `problems` belong to none of them."""
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
        )


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What one snapshot has that the one before it had not, and the other way round."""

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
        """Data of the event `catalog_changed`."""
        lists = {"added": self.added, "removed": self.removed, "changed": self.changed}
        tools = {key: [str(ref) for ref in refs] for key, refs in lists.items()}
        return {"version": self.version, **tools, "prompts": self.prompts_changed, "resources": self.resources_changed}


def differing(before: Snapshot, after: Snapshot) -> list[str]:
    """The servers that have another part in one snapshot than in the other, in order."""
    old, new = before.parts, after.parts
    return sorted(name for name in old.keys() | new.keys() if old.get(name) is not new.get(name))


def difference(before: Snapshot, after: Snapshot) -> CatalogChange:
    """What changed between two snapshots; a tool counts as changed when its definition or marks do."""
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


def _sorted(items: Sequence[ContentItem]) -> tuple[ContentItem, ...]:
    return tuple(sorted(items, key=lambda item: (item.server, item.key)))
