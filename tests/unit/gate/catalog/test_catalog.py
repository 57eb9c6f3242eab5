"""The catalog: its snapshots, their differences and the names of tools."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from toolcrib.gate.catalog.catalog import NAMED_TOGETHER, Catalog, CatalogChange, SnapshotPart
from toolcrib.gate.catalog.naming import NameRow, NameTable
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.sources import RunCall
from toolcrib.model.tools import ServerKind, Tool, ToolRef


@dataclass
class Source:
    """A source whose tools a test can change."""

    name: str
    offered: list[Tool]
    kind: ServerKind = "plugin"
    reported: list[Problem] = field(default_factory=list[Problem])

    def tools(self) -> Sequence[Tool]:
        return self.offered

    def problems(self) -> Sequence[Problem]:
        return self.reported

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        raise AssertionError("The catalog must not call a tool.")


@dataclass
class Recorder:
    """Records the changes and names that a catalog reports."""

    changes: list[CatalogChange] = field(default_factory=list[CatalogChange])
    rows: list[NameRow] = field(default_factory=list[NameRow])

    def catalog(self, names: NameTable | None = None) -> Catalog:
        return Catalog(names or NameTable(), keep_names=self.rows.extend, on_change=self.changes.append)


def make_tool(server: str, name: str, description: str = "Does it.", **arguments: str) -> Tool:
    properties = {key: {"type": kind} for key, kind in arguments.items()}
    return Tool(ToolRef(server, name), description, {"type": "object", "properties": properties})


def test_new_source_is_one_change_with_its_tools_in_order() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("weather", [make_tool("weather", "now"), make_tool("weather", "forecast")]))
    assert list(catalog.snapshot.tools) == [ToolRef("weather", "forecast"), ToolRef("weather", "now")]
    assert [change.added for change in recorder.changes] == [tuple(catalog.snapshot.tools)]


def test_snapshot_is_not_affected_by_later_changes() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    before = catalog.snapshot
    catalog.add(Source("b", [make_tool("b", "two")]))
    assert list(before.tools) == [ToolRef("a", "one")]
    assert catalog.snapshot.version > before.version


def test_refresh_without_changes_reports_nothing() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    assert not catalog.refresh()
    assert len(recorder.changes) == 1


def test_refresh_without_changes_keeps_the_snapshot() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    before = catalog.snapshot
    catalog.refresh()
    assert catalog.snapshot is before


def test_unchanged_parts_are_shared_with_the_next_snapshot() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    stays, goes = (SnapshotPart.of(Source(name, [make_tool(name, "tool")], "upstream")) for name in ("b", "c"))
    catalog.set_upstreams(None, (stays, goes))
    before = catalog.snapshot.parts
    changed = SnapshotPart.of(Source("c", [make_tool("c", "tool", "Says something else.")], "upstream"))
    change = catalog.set_upstreams(None, (stays, changed))
    assert change.changed == (ToolRef("c", "tool"),)
    after = catalog.snapshot.parts
    assert [name for name in after if after[name] is not before[name]] == ["c"]


def test_reserved_names_are_not_stored_again() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    part = SnapshotPart.of(Source("b", [make_tool("b", "tool")], "upstream"))
    (rows,) = catalog.reserve([part])
    assert {row.name for row in rows} == {"mcp__b__tool", "b_tool", "mcp_b_tool"}
    catalog.set_upstreams(None, [part])
    assert recorder.rows == []
    assert catalog.names.name("endpoint", ToolRef("b", "tool")) == "b_tool"


def test_names_reserved_in_steps_equal_those_assigned_at_once() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    tools = [make_tool("b", f"tool {number}") for number in range(2 * NAMED_TOGETHER)]
    part = SnapshotPart.of(
        Source("b", [*tools, *(make_tool("b", f"tool_{number}") for number in range(5))], "upstream")
    )
    steps = list(catalog.reserve([part]))
    assert len(steps) == 3
    at_once = NameTable()
    assert [row for rows in steps for row in rows] == list(at_once.extend(part.tools))
    catalog.set_upstreams(None, [part])
    assert recorder.rows == []


def test_changed_removed_and_added_tools_are_reported_separately() -> None:
    recorder = Recorder()
    source = Source("a", [make_tool("a", "kept"), make_tool("a", "gone"), make_tool("a", "changed")])
    catalog = recorder.catalog()
    catalog.add(source)
    source.offered = [make_tool("a", "kept"), make_tool("a", "changed", "Does something else."), make_tool("a", "new")]
    change = catalog.refresh()
    assert (change.added, change.removed, change.changed) == (
        (ToolRef("a", "new"),),
        (ToolRef("a", "gone"),),
        (ToolRef("a", "changed"),),
    )


def test_second_server_with_the_same_name_is_rejected() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    with pytest.raises(Conflict):
        catalog.add(Source("a", [make_tool("a", "evil")]))
    assert list(catalog.snapshot.tools) == [ToolRef("a", "one")]


def test_new_names_are_stored_and_known_ones_reused() -> None:
    first = Recorder()
    first.catalog().add(Source("a_b", [make_tool("a_b", "c")]))
    second = Recorder()
    catalog = second.catalog(NameTable(first.rows))
    catalog.add(Source("a", [make_tool("a", "b_c")]))
    assert catalog.names.refs["endpoint"]["a_b_c"] == ToolRef("a_b", "c")
    assert {row.server for row in second.rows} == {"a"}


def test_sources_are_exchanged_in_one_change_with_their_problems() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("a", [make_tool("a", "one")]))
    problem = Problem("tool.module", "broken")
    change = catalog.exchange(["a"], [Source("b", [make_tool("b", "two")])], [problem])
    assert (change.added, change.removed) == ((ToolRef("b", "two"),), (ToolRef("a", "one"),))
    assert catalog.snapshot.problems == (problem,)


def test_definition_hash_changes_with_any_part_of_the_definition() -> None:
    one = make_tool("a", "one", city="string")
    others = [
        make_tool("a", "one", "Other words.", city="string"),
        make_tool("a", "one", city="number"),
        make_tool("b", "one", city="string"),
        make_tool("a", "two", city="string"),
    ]
    assert len({tool.definition_hash for tool in (one, *others)}) == 5
    assert one.definition_hash == make_tool("a", "one", city="string").definition_hash
