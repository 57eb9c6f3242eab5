"""The tools of an app, a project or an agent, chosen by switches and search.

Sets of apps and projects are rules (`web.tool_sets`); an agent has tool permissions. Every switch saves at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.gate.costs import definition_tokens
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import Tool
from toolcrib.web.console.forms import FormFields, read, read_query
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author
from toolcrib.web.console.screens.tools.list import KINDS, kind_of
from toolcrib.web.tool_sets import OWN_TOOLS, ToolSet, ToolSetScope, chosen_set, rules_of, save_set, tool_set

_PAGE: Final = 100
"""Servers or tools on one page."""
_FOR: Final = ("app", "project", "agent")
SetOwner: TypeAlias = Literal["app", "project", "agent"]


def routes(console: Console) -> list[Route]:
    """Return the routes of tool sets."""
    screen = ToolSetScreen(console)
    return [route("/access/tools", screen.show), route("/access/tools", screen.change, "POST")]


@dataclass(frozen=True, slots=True)
class _Owner:
    """What a set belongs to."""

    kind: SetOwner
    name: str

    @property
    def scope(self) -> ToolSetScope | None:
        return None if self.kind == "agent" else ToolSetScope(self.kind, self.name)


class ToolSetScreen:
    """Shows and changes one set."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show the servers with their switches; the tools of one, or those that match the words of a search."""
        return await self._respond(request, read_query(request))

    async def change(self, request: Request) -> Response:
        """Switch a tool or a server, or replace the set."""
        form = await read(request)
        owner = self._owner(form)
        before = await self._set_of(owner)
        wanted = self._change(owner, before, form)
        details: JsonObject = {owner.kind: owner.name, "kind": wanted.kind, "tools": list(wanted.tools or ())}
        person = self._console.principal(request)

        async def work() -> None:
            if owner.scope is not None:
                await save_set(self._crib, owner.scope, wanted, by=person.name)
            else:
                changes = parse(AgentChanges, {"toolPermissions": None if wanted.tools is None else [*wanted.tools]})
                await self._crib.zoo.update(owner.name, changes, by=author(person))

        if wanted != before:
            await self._crib.changes.make("tools.set", details, work, by=person, door="console")
        if request.headers.get("hx-request") == "true":
            return await self._respond(request, form)
        return back(_address(owner, form))

    def _change(self, owner: _Owner, before: ToolSet, form: FormFields) -> ToolSet:
        tools = self._tools(owner)
        if (kind := form.choice("kind", ("all", "servers", "chosen", "open"))) is not None:
            made = {"all": ToolSet(), "servers": ToolSet(None, OWN_TOOLS), "open": before.opened(tools)}
            return made[kind] if kind in made else before.closed(tools)
        if form.has("patterns"):
            return chosen_set(self._crib, form.lines("patterns"))
        server, tool = form.line("server_of"), form.line("tool_of")
        if server is None:
            raise InvalidRequest("request.invalid", "Nothing to change was named.")
        start = before.closed(tools) if owner.kind == "agent" and before.tools is None else before
        return start.switched(server, tool, form.has("on"), [each.ref for each in tools])

    def _tools(self, owner: _Owner) -> list[Tool]:
        """Return the tools that a set can have, sorted."""
        cwd = owner.name if owner.kind == "project" else str(self._console.place or "") or None
        found = self._crib.catalog.at(cwd).tools.values()
        return sorted((each for each in found if each.kind != "runtime"), key=lambda each: each.ref)

    def _owner(self, form: FormFields) -> _Owner:
        kind: SetOwner | None = next((each for each in _FOR if form.line(each) is not None), None)
        name = (form.line(kind) if kind is not None else None) or ""
        if kind is None:
            raise InvalidRequest("request.invalid", "Name an app, a project or an agent.")
        if kind == "app" and self._crib.tokens.named(name) is None:
            raise NotFound("token.unknown", f"Token {name!r} not found.")
        if kind == "agent":
            self._crib.permissions.require_agent(name)
        if kind == "project" and (not Path(name).is_absolute() or "\0" in name):
            raise InvalidRequest("request.invalid", f"{name!r} is not an absolute path.")
        return _Owner(kind, name)

    async def _set_of(self, owner: _Owner) -> ToolSet:
        if owner.scope is not None:
            return tool_set(self._crib, owner.scope)
        return ToolSet((await self._crib.zoo.get(owner.name)).agent.tool_permissions)

    async def _respond(self, request: Request, form: FormFields) -> Response:
        owner = self._owner(form)
        chosen, tools = await self._set_of(owner), self._tools(owner)
        server, words = form.line("server"), form.line("words") or ""
        in_set = [tool for tool in tools if _is_on(owner, chosen, tool)]
        name = self._crib.gate.name
        tokens = [sum(definition_tokens(name("endpoint", each.ref), each) for each in some) for some in (in_set, tools)]
        rows = self._rows(owner, chosen, tools, server, words)
        page = form.page()
        rules = rules_of(self._crib, owner.scope) if owner.scope is not None else []
        value: JsonObject = {
            "owner": {"kind": owner.kind, "name": owner.name},
            "kind": chosen.kind,
            "patterns": list(chosen.tools or ()),
            "rules": [rule.id for rule in rules],
            "on": len(in_set), "total": len(tools), "tokens": tokens[0], "saves": tokens[1] - tokens[0],
            "server": server, "words": words,
            "rows": rows[(page - 1) * _PAGE :][:_PAGE], "found": len(rows), "first": (page - 1) * _PAGE + 1,
            "page": page,
            "previous": _address(owner, form, page - 1) if page > 1 else None,
            "next": _address(owner, form, page + 1) if page * _PAGE < len(rows) else None,
        }  # fmt: skip
        also: JsonObject = {"here": _address(owner, form, page), "start": _address(owner, None)}
        title = f"Tools of {owner.scope.label if owner.scope is not None else owner.name}"
        shown = ScreenContent("access", title, "access_tools.html", value, "parts/access_tools.html", also)
        return await self._console.respond(request, shown)

    def _rows(
        self, owner: _Owner, chosen: ToolSet, tools: list[Tool], server: str | None, words: str
    ) -> list[JsonObject]:
        """Return the servers, or the tools of one server or of a search."""
        if server is None and not words:
            return _server_rows(owner, chosen, tools)
        sought = words.casefold().split()
        found = [each for each in tools if server in (None, each.ref.server)]
        return [
            {
                "server": each.ref.server, "tool": each.ref.tool, "description": each.description[:200],
                "on": _is_on(owner, chosen, each), "effect": kind_of(each), "tone": KINDS[kind_of(each)][1],
            }
            for each in found
            if all(word in f"{each.ref} {each.title or ''} {each.description}".casefold() for word in sought)
        ]  # fmt: skip


def _server_rows(owner: _Owner, chosen: ToolSet, tools: list[Tool]) -> list[JsonObject]:
    counts: dict[str, list[int]] = {}
    for each in tools:
        count = counts.setdefault(each.ref.server, [0, 0])
        count[0] += _is_on(owner, chosen, each)
        count[1] += 1
    return [
        {"server": server, "tool": None, "on": on > 0, "count": on, "of": of, "href": _address(owner, None, of=server)}
        for server, (on, of) in counts.items()
    ]


def _is_on(owner: _Owner, chosen: ToolSet, tool: Tool) -> bool:
    """Return whether a tool is in the set. Without tool permissions, an agent has no privileged tools."""
    return chosen.has(tool.ref) and not (owner.kind == "agent" and chosen.tools is None and tool.marks.privileged)


def _address(owner: _Owner, form: FormFields | None, page: int = 1, of: str | None = None) -> str:
    """Return the address of a page with the same server and words, or of a server."""
    server = of or (form.line("server") if form is not None else None)
    words = form.line("words") if form is not None else None
    query = {owner.kind: owner.name, "server": server, "words": words, "page": str(page) if page > 1 else None}
    return f"/access/tools?{urlencode({key: value for key, value in query.items() if value})}"
