"""Who can use what: a table of principals and servers or tools, with the reason of each cell."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.policy.reach import ACCESS, Access, ReachGroup
from toolcrib.host.reach import SubjectReach, find_reach
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES, SOURCES, Mode, Source
from toolcrib.model.tools import ToolRef
from toolcrib.web.console.forms import read_query
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.console.screens.agents.tools import SOURCE_WORDS
from toolcrib.web.console.screens.sessions import MODE_WORDS

WORDS: Final[dict[Access, tuple[str, str]]] = {
    "allow": ("runs", "good"),
    "may": ("may run", "good"),
    "ask": ("asks", "warn"),
    "deny": ("denied", "alarm"),
    "hidden": ("hidden", "soft"),
}
"""Per access: label and tone."""
_MOST_TOOLS: Final = 12
"""Up to this many matching tools, each has a column. Otherwise each server has one."""
_MOST_COLUMNS: Final = 24


def routes(console: Console) -> list[Route]:
    """Return the routes of the table."""
    return [route("/access/reach", ReachScreen(console).show)]


class ReachScreen:
    """Shows what every principal can do with the tools that match a pattern."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show the table for the pattern, source and mode of the query."""
        form = read_query(request)
        pattern = form.line("pattern") or "*"
        source: Source = form.choice("source", SOURCES) or "cli"
        mode: Mode = form.choice("mode", MODES) or "default"
        found = await find_reach(self._crib, pattern, source=source, mode=mode)
        refs = sorted({ref for each in found for group in each.groups for ref in group.tools})
        by_tool = len(refs) <= _MOST_TOOLS
        columns = list(dict.fromkeys(str(ref) if by_tool else ref.server for ref in refs))
        shown = columns[:_MOST_COLUMNS]
        value: JsonObject = {
            "asked": {"pattern": pattern, "source": source, "mode": mode},
            "tools": len(refs),
            "columns": shown,
            "omitted": len(columns) - len(shown),
            "rows": [{"who": each.subject.who, "cells": _cells(each, shown, by_tool)} for each in found],
        }
        also: JsonObject = {"sources": SOURCE_WORDS, "modes": MODE_WORDS}
        content = ScreenContent("access", "Who can use what", "access_reach.html", value, also=also)
        return await self._console.respond(request, content)


def _cells(found: SubjectReach, columns: list[str], by_tool: bool) -> list[list[JsonObject]]:
    """Return the marks of each column, the least strict first."""
    marks: dict[str, dict[Access, list[tuple[ReachGroup, int]]]] = {column: {} for column in columns}
    for group in found.groups:
        for column, count in _counts(group.tools, by_tool).items():
            if column in marks:
                marks[column].setdefault(group.outcome.access, []).append((group, count))
    return [[_mark(access, cell[access], by_tool) for access in ACCESS if access in cell] for cell in marks.values()]


def _counts(refs: tuple[ToolRef, ...], by_tool: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for ref in refs:
        column = str(ref) if by_tool else ref.server
        counts[column] = counts.get(column, 0) + 1
    return counts


def _mark(access: Access, groups: list[tuple[ReachGroup, int]], by_tool: bool) -> JsonObject:
    word, tone = WORDS[access]
    reasons = list(dict.fromkeys(_reason(group) for group, _ in groups))
    count = sum(count for _, count in groups)
    return {"access": access, "word": word if by_tool else f"{word} {count}", "tone": tone, "reasons": reasons}


def _reason(group: ReachGroup) -> str:
    step = group.outcome.step
    note = " It depends on the arguments." if len(group.outcome.verdicts) > 1 else ""
    return f"{step.reason}{note}" + (f" (rule {step.rule})" if step.rule is not None else "")
