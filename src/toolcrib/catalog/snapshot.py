"""A snapshot: all tools, prompts and resources of the crib at one moment, immutable and numbered.

Whoever lists or calls works on one snapshot from start to end. Two snapshots are compared to say what changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.catalog.naming import NameTable
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import ToolSource
from toolcrib.model.tools import ContentItem, Tool, ToolRef


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tools and prompts by identity in sorted order, resources and their templates, the source that runs each server's,
    the names, what is wrong. The version is another one for every snapshot of a catalog."""

    version: int = 0
    tools: Mapping[ToolRef, Tool] = field(default_factory=dict[ToolRef, Tool])
    prompts: Mapping[ToolRef, ContentItem] = field(default_factory=dict[ToolRef, ContentItem])
    resources: tuple[ContentItem, ...] = ()
    templates: tuple[ContentItem, ...] = ()
    sources: Mapping[str, ToolSource] = field(default_factory=dict[str, ToolSource])
    names: NameTable = field(default_factory=NameTable)
    problems: tuple[Problem, ...] = ()


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


def difference(before: Snapshot, after: Snapshot) -> CatalogChange:
    """What changed between two snapshots; a tool counts as changed when its definition or marks do."""
    old, new = before.tools, after.tools
    return CatalogChange(
        version=after.version,
        added=tuple(ref for ref in new if ref not in old),
        removed=tuple(ref for ref in old if ref not in new),
        changed=tuple(ref for ref in new if ref in old and new[ref] is not old[ref] and new[ref] != old[ref]),
        prompts_changed=before.prompts != after.prompts,
        resources_changed=(before.resources, before.templates) != (after.resources, after.templates),
        problems_changed=before.problems != after.problems,
    )
