"""Who can use what: a table of principals and servers, with the reason of each cell.

A server opens to its tools, a principal to the list of all its tools. Rows and columns are paged; all choices are in
the URL. Every cell comes from `host.reach`, which asks the function that decides calls.
"""

from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.gate.policy.reach import ACCESS, Access, ReachGroup
from toolcrib.host import Crib
from toolcrib.host.reach import SubjectReach, find_reach
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES, SOURCES, Mode, Source
from toolcrib.model.tools import ToolRef
from toolcrib.web.console.forms import read_query
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.console.screens.agents.tools import SOURCE_WORDS
from toolcrib.web.console.screens.sessions import MODE_WORDS
from toolcrib.web.console.screens.tools.list import tool_address

WORDS: Final[dict[Access, tuple[str, str, str]]] = {
    "allow": ("runs", "good", "✓"),
    "may": ("may run", "good", "◐"),
    "ask": ("asks", "warn", "?"),
    "deny": ("denied", "alarm", "✕"),
    "hidden": ("hidden", "soft", "○"),
}
"""Per access: label, tone and symbol."""
_MOST_TOOLS: Final = 12
"""Up to this many matching tools, each has a column. Otherwise each server has one."""
_COLUMNS: Final = 12
_ROWS: Final = 25
_LIST: Final = 100
"""Columns, rows, and tools of one principal on a page."""


def routes(console: Console) -> list[Route]:
    """Return the routes of the table."""
    return [route("/access/reach", ReachScreen(console).show)]


class ReachScreen:
    """Shows what every principal can do with the tools that match a pattern."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show the table, or the tools of the one principal that `subject` names."""
        form = read_query(request)
        pattern, subject = form.line("pattern") or "*", form.line("subject")
        source: Source = form.choice("source", SOURCES) or "cli"
        mode: Mode = form.choice("mode", MODES) or "default"
        asked: JsonObject = {"pattern": pattern, "source": source, "mode": mode, "who": form.line("who") or ""}
        cwd = (await self._console.local_principal(request)).cwd
        found = await find_reach(self._crib, pattern, source=source, mode=mode, who=subject or asked["who"], cwd=cwd)
        page, columns_page = form.page(), form.page("columns")
        value: JsonObject = {"asked": asked, "subject": None, "columns": [], "rows": [], "pages": []}
        if subject is not None:
            found = [each for each in found if each.subject.who == subject]
            value |= _of_subject(found[0], page) if found else {"tools": 0}
            value["subject"] = subject
        else:
            value |= _table(found, page, columns_page, asked)
        value["pages"] = _link_pages(asked, subject, value["pages"])
        also: JsonObject = {"sources": SOURCE_WORDS, "modes": MODE_WORDS, "table": _address(asked)}
        content = ScreenContent("access", "Who can use what", "access_reach.html", value, also=also)
        return await self._console.respond(request, content)


async def users_of(crib: Crib, ref: ToolRef, cwd: str | None) -> list[JsonObject]:
    """Return who may use one tool in a directory, by name: one entry for each access, the least strict first."""
    names: dict[Access, list[JsonObject]] = {}
    for each in await find_reach(crib, literal_pattern(ref), cwd=cwd):
        for group in each.groups:
            names.setdefault(group.outcome.access, []).append({"who": each.subject.who, "reason": _reason(group)})
    return [_mark(access) | {"names": names[access]} for access in ACCESS if access in names]


def _table(found: list[SubjectReach], page: int, columns_page: int, asked: JsonObject) -> JsonObject:
    refs = sorted({ref for each in found for group in each.groups for ref in group.tools})
    servers = list(dict.fromkeys(ref.server for ref in refs))
    by_tool = len(refs) <= _MOST_TOOLS or len(servers) == 1
    keys = [str(ref) for ref in refs] if by_tool else servers
    columns = keys[(columns_page - 1) * _COLUMNS :][:_COLUMNS]
    rows = found[(page - 1) * _ROWS :][:_ROWS]
    return {
        "tools": len(refs),
        "byTool": by_tool,
        "columns": [_column(each, by_tool, asked) for each in columns],
        "rows": [
            {
                "who": each.subject.who,
                "href": _address(asked, subject=each.subject.who),
                "cells": _cells(each, columns, by_tool),
            }
            for each in rows
        ],
        "pages": [
            _pages("page", page, _ROWS, len(found), "principals"),
            _pages("columns", columns_page, _COLUMNS, len(keys), "tools" if by_tool else "servers"),
        ],
    }


def _of_subject(found: SubjectReach, page: int) -> JsonObject:
    """Return the tools of one principal, sorted, with access and reason."""
    every = sorted((ref, group) for group in found.groups for ref in group.tools)
    tools: list[JsonObject] = [
        {"ref": str(ref), "href": tool_address(ref), **_mark(group.outcome.access), "reason": _reason(group)}
        for ref, group in every[(page - 1) * _LIST :][:_LIST]
    ]
    counts = found.to_json()["counts"]
    totals = [_mark(access) | {"count": counts[access]} for access in ACCESS if counts[access]]
    pages = [_pages("page", page, _LIST, len(every), "tools")]
    return {"tools": len(every), "totals": totals, "rows": tools, "pages": pages}


def _column(key: str, by_tool: bool, asked: JsonObject) -> JsonObject:
    """Return a column. A tool leads to its page, a server to the table of its tools."""
    if by_tool:
        ref = ToolRef(*key.split("/", 1))
        return {"server": ref.server, "name": ref.tool, "href": tool_address(ref)}
    pattern = literal_pattern(ToolRef(key, "")) + "*"
    return {"server": None, "name": key, "href": _address(asked, pattern=pattern)}


def _cells(found: SubjectReach, columns: list[str], by_tool: bool) -> list[list[JsonObject]]:
    """Return the marks of each column, the least strict first."""
    marks: dict[str, dict[Access, list[tuple[ReachGroup, int]]]] = {column: {} for column in columns}
    for group in found.groups:
        for column, count in _counts(group.tools, by_tool).items():
            if column in marks:
                marks[column].setdefault(group.outcome.access, []).append((group, count))
    return [[_cell(access, cell[access], by_tool) for access in ACCESS if access in cell] for cell in marks.values()]


def _counts(refs: tuple[ToolRef, ...], by_tool: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for ref in refs:
        column = str(ref) if by_tool else ref.server
        counts[column] = counts.get(column, 0) + 1
    return counts


def _cell(access: Access, groups: list[tuple[ReachGroup, int]], by_tool: bool) -> JsonObject:
    mark = _mark(access)
    count = sum(count for _, count in groups)
    word = mark["word"] if by_tool else f"{mark['word']} {count}"
    return mark | {"word": word, "reasons": list(dict.fromkeys(_reason(group) for group, _ in groups))}


def _mark(access: Access) -> JsonObject:
    word, tone, symbol = WORDS[access]
    return {"access": access, "word": word, "tone": tone, "symbol": symbol}


def _reason(group: ReachGroup) -> str:
    step = group.outcome.step
    note = " It depends on the arguments." if len(group.outcome.verdicts) > 1 else ""
    return f"{step.reason}{note}" + (f" (rule {step.rule})" if step.rule is not None else "")


def _pages(name: str, page: int, size: int, total: int, noun: str) -> JsonObject:
    first = (page - 1) * size + 1
    return {
        "name": name, "page": page, "noun": noun, "first": first, "last": min(first + size - 1, total), "total": total,
    }  # fmt: skip


def _link_pages(asked: JsonObject, subject: str | None, pages: list[JsonObject]) -> list[JsonObject]:
    """Return the pages of rows and columns, each with the addresses of the previous and the next one."""
    here = {each["name"]: str(each["page"]) for each in pages if each["page"] > 1}
    for each in pages:
        before = each["page"] - 1 if each["page"] > 1 else None
        after = each["page"] + 1 if each["last"] < each["total"] else None
        each["links"] = {
            word: None if number is None else _address(asked, **here | {"subject": subject, each["name"]: str(number)})
            for word, number in (("previous", before), ("next", after))
        }
    return pages


def _address(asked: JsonObject, **changed: str | None) -> str:
    query = {key: value for key, value in {**asked, **changed}.items() if value}
    return f"/access/reach?{urlencode(query)}"
