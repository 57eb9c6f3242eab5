"""Add a server: paste anything, review the recognised definition and the change, save, and test."""

from pathlib import Path

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.servers.edits import Edit
from toolcrib.servers.servers import WriteScope
from toolcrib.servers.transfer import Proposal
from toolcrib.web.console.responses import Console, ScreenContent, error_json, route
from toolcrib.web.console.screens.servers.list import timeout_of
from toolcrib.web.console.screens.servers.server import ServerScreen, entry_of

EXAMPLES = (
    "https://mcp.example.com/mcp",
    "npx -y @modelcontextprotocol/server-filesystem .",
    "claude mcp add files -- uvx files-server",
    '{"mcpServers": {"files": {"command": "uvx", "args": ["files-server"]}}}',
)


def routes(console: Console) -> list[Route]:
    """Return the routes; must precede those of a server, which could be named `new`."""
    screen = AddScreen(console)
    return [
        route("/servers/new", screen.show),
        route("/servers/new", screen.recognise, "POST"),
        route("/servers/new/save", screen.save, "POST"),
    ]


class AddScreen:
    """Adds a server."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._servers = console.crib.servers
        self._page = ServerScreen(console)

    async def show(self, request: Request) -> Response:
        """Show the input box."""
        scope = _scope(request.query_params.get("scope"))
        return await self._respond(request, request.query_params.get("text", ""), [], [], scope)

    async def recognise(self, request: Request) -> Response:
        """Return the servers recognised in the pasted text, each with the change that adds it."""
        form = await request.form()
        text, scope = str(form.get("text", "")), _scope(form.get("scope"))
        found, problems = await self._servers.recognise(text)
        proposals = [await self._proposal_json(proposal, scope) for proposal in found]
        return await self._respond(request, text, proposals, [problem.to_json() for problem in problems], scope)

    async def save(self, request: Request) -> Response:
        """Preview the change with another name or file, or save it and test the server."""
        form = await request.form()
        text, name = str(form.get("definition", "")), str(form.get("name", "")).strip()
        scope = _scope(form.get("scope"))
        saves, placement = form.get("do") == "save", form.get("placement")
        card = _card(name, text, scope) | {"placement": "one" if placement == "one" else "node"}
        try:
            entry = entry_of(text)
            if placement in ("node", "one"):
                entry = {name: value for name, value in entry.items() if name != "placement"}
                entry |= {"placement": "one"} if placement == "one" else {}
            done = await self._add(name, entry, scope, dry_run=not saves)
        except ToolcribError as error:
            return await self._respond(request, "", [card | {"failure": error_json(error)}], [], scope)
        if not saves:
            return await self._respond(request, "", [card | {"change": done.to_json()}], [], scope)
        alias = (await self._servers.find(name, self._console.place, file=done.file)).alias
        untried: JsonObject = {}
        try:
            with anyio.move_on_after(timeout_of(form)):  # the page of a slower server is filled in when it responds
                await self._console.crib.upstreams.test(alias, self._console.place)
        except ToolcribError as error:
            untried = {"untried": error.message}
        return await self._page.page(request, alias, "tools", change=done.to_json() | untried)

    async def _add(self, name: str, entry: JsonObject, scope: WriteScope, *, dry_run: bool) -> Edit:
        return await self._servers.add(name, entry, scope=scope, cwd=self._console.place, dry_run=dry_run)

    async def _proposal_json(self, proposal: Proposal, scope: WriteScope) -> JsonObject:
        text = orjson.dumps(proposal.entry, option=orjson.OPT_INDENT_2).decode()
        shape = proposal.to_json()
        card = _card(proposal.name, text, scope) | {"placement": proposal.entry.get("placement", "node")}
        card |= {"question": shape["question"], "problems": shape["problems"]}
        try:
            done = await self._add(proposal.name, proposal.entry, scope, dry_run=True)
        except ToolcribError as error:
            return card | {"failure": error_json(error)}
        return card | {"change": done.to_json()}

    async def _respond(
        self,
        request: Request,
        text: str,
        proposals: list[JsonObject],
        problems: list[JsonObject],
        scope: WriteScope,
    ) -> Response:
        place: Path | None = self._console.place
        value: JsonObject = {
            "text": text,
            "scope": scope,
            "proposals": proposals,
            "problems": problems,
            "project": str(place) if place is not None else None,
            "clustered": self._console.crib.store.shared,
        }
        shown = ScreenContent("servers", "Add a server", "server_new.html", value, also={"examples": EXAMPLES})
        return await self._console.respond(request, shown)


def _scope(text: object) -> WriteScope:
    return "project" if text == "project" else "user"


def _card(name: str, text: str, scope: str) -> JsonObject:
    return {
        "name": name, "definition": text, "scope": scope,
        "question": None, "problems": [], "change": None, "failure": None, "placement": "node",
    }  # fmt: skip
