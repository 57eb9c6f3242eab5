"""Hides unused tools with visible deny rules of one common reason, and removes these rules together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from toolcrib.gate.costs import DAYS, ToolCost
from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Rule, Where
from toolcrib.model.principals import Source
from toolcrib.model.tools import ToolRef
from toolcrib.web.tool_costs import tool_costs

HIDDEN: Final = f"Hidden to save tokens: not called in {DAYS} days."
"""The reason of every rule made here."""


class HidingScope(NamedTuple):
    """The callers that tools are hidden from, and the server of these tools; None means every one."""

    agent: str | None = None
    source: Source | None = None
    server: str | None = None

    def where(self) -> Where:
        """Return the part of a rule that names the callers."""
        agents = (self.agent,) if self.agent is not None else ()
        return Where(sources=(self.source,) if self.source is not None else (), agents=agents)

    def to_json(self) -> JsonObject:
        """Return the shape for the audit."""
        return {"agent": self.agent, "source": self.source, "server": self.server}


async def unused_tools(crib: Crib, scope: HidingScope, cwd: str | None = None) -> list[ToolCost]:
    """Return the tools that the cost report suggests to hide. Raises `request.invalid` if no caller is named."""
    if scope.agent is None and scope.source is None:
        message = "Name the agent or the source from which unused tools are hidden."
        raise InvalidRequest("request.invalid", message)
    principal = await crib.placed(replace(crib.owner(source=scope.source or "ide"), agent=scope.agent, cwd=cwd))
    report = await tool_costs(crib, principal)
    suggested = {
        ref
        for each in report.suggestions()
        if each["kind"] == "hide" and scope.server in (None, each["server"])
        for ref in each["tools"]
    }
    return [each for each in report.tools if str(each.ref) in suggested]


def hiding_rules(crib: Crib, scope: HidingScope) -> list[Rule]:
    """Return the rules made by `hide` for these callers; without any named, for all."""
    is_named = scope.agent is not None or scope.source is not None
    of_server = literal_pattern(ToolRef(scope.server, "")) if scope.server is not None else ""
    return [
        rule
        for rule in crib.permissions.list()
        if (rule.effect, rule.reason, rule.origin.file) == ("deny", HIDDEN, None)
        and rule.pattern.startswith(of_server)
        and (not is_named or rule.where == scope.where())
    ]


async def hide(crib: Crib, tools: Sequence[ToolCost], scope: HidingScope, *, by: str) -> list[Rule]:
    """Add a deny rule for each tool."""
    where = scope.where().to_json()
    raw = [{"effect": "deny", "pattern": literal_pattern(each.ref), "where": where, "reason": HIDDEN} for each in tools]
    return [await crib.permissions.add(each, by=by) for each in raw]


async def show_again(crib: Crib, rules: Sequence[Rule]) -> None:
    """Remove the rules of hidden tools."""
    for rule in rules:
        await crib.permissions.remove(rule.id)
