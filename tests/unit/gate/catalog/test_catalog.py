"""The catalog: snapshots, their differences and their names."""

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
    """A source with fixed tools, which a test can change."""

    name: str
    offered: list[Tool]
    kind: ServerKind = "plugin"
    wrong: list[Problem] = field(default_factory=list[Problem])

    def tools(self) -> Sequence[Tool]:
        return self.offered

    def problems(self) -> Sequence[Problem]:
        return self.wrong

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        raise AssertionError("the catalog calls nothing")


@dataclass
class Recorder:
    """What a catalog told its surroundings."""

    changes: list[CatalogChange] = field(default_factory=list[CatalogChange])
    rows: list[NameRow] = field(default_factory=list[NameRow])

    def catalog(self, names: NameTable | None = None) -> Catalog:
        return Catalog(names or NameTable(), keep_names=self.rows.extend, on_change=self.changes.append)


def a_tool(server: str, name: str, description: str = "Does it.", **arguments: str) -> Tool:
    properties = {key: {"type": kind} for key, kind in arguments.items()}
    return Tool(ToolRef(server, name), description, {"type": "object", "properties": properties})


def test_a_new_source_is_one_change_with_its_tools_in_order() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("weather", [a_tool("weather", "now"), a_tool("weather", "forecast")]))
    assert list(catalog.snapshot.tools) == [ToolRef("weather", "forecast"), ToolRef("weather", "now")]
    assert [change.added for change in recorder.changes] == [tuple(catalog.snapshot.tools)]


def test_a_snapshot_stays_as_it_was_when_the_catalog_goes_on() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    before = catalog.snapshot
    catalog.add(Source("b", [a_tool("b", "two")]))
    assert list(before.tools) == [ToolRef("a", "one")]
    assert catalog.snapshot.version > before.version


def test_a_refresh_that_finds_nothing_new_tells_nobody() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    assert not catalog.refresh()
    assert len(recorder.changes) == 1


def test_a_refresh_that_finds_nothing_new_keeps_the_snapshot() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    before = catalog.snapshot
    catalog.refresh()
    assert catalog.snapshot is before


def test_what_did_not_change_is_the_same_part_in_the_next_snapshot() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    stays, goes = (SnapshotPart.of(Source(name, [a_tool(name, "tool")], "upstream")) for name in ("b", "c"))
    catalog.set_upstreams(None, (stays, goes))
    before = catalog.snapshot.parts
    changed = SnapshotPart.of(Source("c", [a_tool("c", "tool", "Says something else.")], "upstream"))
    change = catalog.set_upstreams(None, (stays, changed))
    assert change.changed == (ToolRef("c", "tool"),)
    after = catalog.snapshot.parts
    assert [name for name in after if after[name] is not before[name]] == ["c"]


def test_names_that_were_reserved_are_not_handed_over_again() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    part = SnapshotPart.of(Source("b", [a_tool("b", "tool")], "upstream"))
    (rows,) = catalog.reserve([part])
    assert {row.name for row in rows} == {"mcp__b__tool", "b_tool", "mcp_b_tool"}
    catalog.set_upstreams(None, [part])
    assert recorder.rows == []
    assert catalog.names.name("endpoint", ToolRef("b", "tool")) == "b_tool"


def test_names_that_are_reserved_step_by_step_are_those_that_would_be_given_at_once() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    tools = [a_tool("b", f"tool {number}") for number in range(2 * NAMED_TOGETHER)]
    part = SnapshotPart.of(Source("b", [*tools, *(a_tool("b", f"tool_{number}") for number in range(5))], "upstream"))
    steps = list(catalog.reserve([part]))
    assert len(steps) == 3
    at_once = NameTable()
    assert [row for rows in steps for row in rows] == list(at_once.extend(part.tools))
    catalog.set_upstreams(None, [part])
    assert recorder.rows == []


def test_changed_removed_and_added_tools_are_told_apart() -> None:
    recorder = Recorder()
    source = Source("a", [a_tool("a", "kept"), a_tool("a", "gone"), a_tool("a", "changed")])
    catalog = recorder.catalog()
    catalog.add(source)
    source.offered = [a_tool("a", "kept"), a_tool("a", "changed", "Does something else."), a_tool("a", "new")]
    change = catalog.refresh()
    assert (change.added, change.removed, change.changed) == (
        (ToolRef("a", "new"),),
        (ToolRef("a", "gone"),),
        (ToolRef("a", "changed"),),
    )


def test_a_second_server_of_the_same_name_is_refused_and_the_first_stays() -> None:
    catalog = Recorder().catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    with pytest.raises(Conflict):
        catalog.add(Source("a", [a_tool("a", "evil")]))
    assert list(catalog.snapshot.tools) == [ToolRef("a", "one")]


def test_new_names_are_handed_over_to_be_kept_and_known_ones_are_used() -> None:
    first = Recorder()
    first.catalog().add(Source("a_b", [a_tool("a_b", "c")]))
    second = Recorder()
    catalog = second.catalog(NameTable(first.rows))
    catalog.add(Source("a", [a_tool("a", "b_c")]))
    assert catalog.names.refs["endpoint"]["a_b_c"] == ToolRef("a_b", "c")
    assert {row.server for row in second.rows} == {"a"}


def test_a_group_of_sources_is_exchanged_in_one_step_with_its_problems() -> None:
    recorder = Recorder()
    catalog = recorder.catalog()
    catalog.add(Source("a", [a_tool("a", "one")]))
    problem = Problem("tool.module", "broken")
    change = catalog.exchange(["a"], [Source("b", [a_tool("b", "two")])], [problem])
    assert (change.added, change.removed) == ((ToolRef("b", "two"),), (ToolRef("a", "one"),))
    assert catalog.snapshot.problems == (problem,)


def test_the_definition_hash_changes_with_anything_that_is_told_of_a_tool() -> None:
    one = a_tool("a", "one", city="string")
    others = [
        a_tool("a", "one", "Other words.", city="string"),
        a_tool("a", "one", city="number"),
        a_tool("b", "one", city="string"),
        a_tool("a", "two", city="string"),
    ]
    assert len({tool.definition_hash for tool in (one, *others)}) == 5
    assert one.definition_hash == a_tool("a", "one", city="string").definition_hash
