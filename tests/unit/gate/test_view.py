"""The view of one principal on consecutive snapshots."""

from dataclasses import dataclass
from typing import Any

import pytest

from toolcrib.gate import view as gate_view
from toolcrib.gate.catalog.catalog import Snapshot, SnapshotPart
from toolcrib.gate.policy.decide import Grants, sees
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.view import PrincipalView
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.sources import RunCall
from toolcrib.model.tools import ServerKind, Tool, ToolRef

OWNER = Principal("owner", "owner", "api")


@dataclass
class Source:
    """A server with fixed tools."""

    name: str
    names: tuple[str, ...]
    kind: ServerKind = "upstream"

    def tools(self) -> list[Tool]:
        return [Tool(ToolRef(self.name, name), "", {}, self.kind) for name in self.names]

    def problems(self) -> list[Problem]:
        return []

    def prepare(self, tool: str, arguments: JsonObject, canonical: bytes) -> RunCall:
        raise AssertionError("The view must not call a tool.")


def snapshot(version: int, *parts: SnapshotPart) -> Snapshot:
    return Snapshot.of(version, {part.source.name: part for part in parts}, ())


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the tools that are decided on, in order."""
    refs: list[str] = []

    def recorded(tool: Tool, *rest: Any) -> bool:
        refs.append(str(tool.ref))
        return sees(tool, *rest)

    monkeypatch.setattr(gate_view, "sees", recorded)
    return refs


def test_unchanged_tools_are_not_decided_again(decided: list[str]) -> None:
    a, b = SnapshotPart.of(Source("a", ("one", "two"))), SnapshotPart.of(Source("b", ("tool",)))
    first = PrincipalView(snapshot(1, a, b), Rules(1), OWNER, Grants())
    assert [str(tool.ref) for tool in first.listing.tools] == ["a/one", "a/two", "b/tool"]
    decided.clear()
    more = SnapshotPart.of(Source("b", ("other", "tool")))
    second = PrincipalView(snapshot(2, a, more), Rules(1), OWNER, Grants(), first)
    assert [str(tool.ref) for tool in second.listing.tools] == ["a/one", "a/two", "b/other", "b/tool"]
    assert decided == ["b/other", "b/tool"]
    assert second.listing.version == (2, 1)


@pytest.mark.parametrize(("rules", "grants"), [(Rules(2), Grants()), (Rules(1), Grants(permissions=("a/*",)))])
def test_other_rules_or_grants_decide_all_tools_again(rules: Rules, grants: Grants, decided: list[str]) -> None:
    part = SnapshotPart.of(Source("a", ("one",)))
    first = PrincipalView(snapshot(1, part), Rules(1), OWNER, Grants())
    assert first.servers == {"a"}
    decided.clear()
    assert PrincipalView(snapshot(2, part), rules, OWNER, grants, first).servers == {"a"}
    assert decided == ["a/one"]
