"""One server: tools, setup, protocol log, callers, and all actions.

Every file change shows its diff and can be undone. Trust applies only to the definition displayed.
"""

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.audit.statistics import CallFilter
from toolcrib.gate.policy.patterns import glob, parts
from toolcrib.model.errors import InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.version import __version__
from toolcrib.servers.edits import Edit
from toolcrib.servers.sandbox import SandboxChoice
from toolcrib.servers.server_status import own_crib
from toolcrib.servers.servers import Details
from toolcrib.servers.transfer import Transfer
from toolcrib.store.audit import Filters
from toolcrib.web.console.paging import list_page
from toolcrib.web.console.responses import Console, ScreenContent, back, error_json, route
from toolcrib.web.console.screens.servers.list import TONES, connecting_since, timeout_of, trust
from toolcrib.web.console.screens.tools.list import CHANGES_ON_PAGE, TOOLS_ON_PAGE, pending_changes, tool_row

TABS: Final = (("tools", "Tools"), ("setup", "Setup"), ("log", "Log"), ("uses", "Usage"))
_OPTIONAL: Final = (
    "lastError", "exitCode", "latencyMs", "protocolVersion", "serverTitle", "pid", "retryAt", "shadowedBy", "action",
    "sandbox",
)  # fmt: skip
"""Members that a server only sometimes has."""
PROFILE_LABELS: Final = (
    ("off", "Off: no sandbox"),
    ("learn", "Learn: no sandbox, record what it uses"),
    ("project", "Project: the project and the network"),
    ("strict", "Strict: read the project only, no network"),
)
PROJECT_FILES: Final = {
    "toolcrib": "Toolcrib (.toolcrib/mcp.json)",
    "claude-code": "Claude Code (.mcp.json)",
    "cursor": "Cursor (.cursor/mcp.json)",
    "vscode": "VS Code (.vscode/mcp.json)",
}
"""The apps whose project files the console writes, with their labels."""
_CALLS: Final = 200
"""Calls searched for the callers of a server."""


def routes(console: Console) -> list[Route]:
    """Return the routes of a server; must come after all other routes below `/servers`."""
    screen = ServerScreen(console)
    return [
        route("/servers/-/undo", screen.undo, "POST"),
        route("/servers/{alias}", screen.show),
        route("/servers/{alias}/{tab}", screen.show),
        route("/servers/{alias}/{action}", screen.act, "POST"),
    ]


class ServerScreen:
    """One server."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._servers = console.crib.servers
        self._upstreams = console.crib.upstreams
        self._acts: dict[str, Callable[[Request, str], Awaitable[Response]]] = {
            "test": self._test, "cancel": self._cancel, "reload": self._reload, "enable": self._enable,
            "disable": self._disable,
            "remove": self._remove, "trust": self._trust, "untrust": self._untrust, "auth": self._sign_in,
            "answer": self._answer, "unauth": self._sign_out, "edit": self._edit, "take": self._take,
            "sandbox": self._sandbox, "copy": self._copy,
        }  # fmt: skip

    async def show(self, request: Request) -> Response:
        """Show one tab; redirect if the alias is a duplicate of another server."""
        alias, tab = request.path_params["alias"], request.path_params.get("tab", "tools")
        found = (await self._servers.list(self._console.place)).find(alias)
        if found is not None and alias != found.alias and alias in found.same_as:
            return back(_address(found.alias, tab))
        if tab in self._acts and tab != "auth":  # that is a tab, too
            return back(_address(alias, "setup"))  # the address of a form's answer, opened or reloaded
        return await self.page(request, alias, tab)

    async def act(self, request: Request) -> Response:
        """Run the action of a button."""
        alias, action = request.path_params["alias"], request.path_params["action"]
        do = self._acts.get(action)
        if do is None:
            raise NotFound("route.unknown", f"{request.url.path} does not exist.")
        return await do(request, alias)

    async def undo(self, request: Request) -> Response:
        """Undo the last file change, which is the one just displayed."""
        done = await self._servers.undo()
        value: JsonObject = {"name": "", "change": done.to_json(), "undone": True}
        return await self._console.respond(request, ScreenContent("servers", "Undone", "server_gone.html", value))

    async def page(self, request: Request, alias: str, tab: str, **more: Json) -> Response:
        """Show the page with one tab; `more` describes what was just done."""
        details = await self._servers.get(alias, self._console.place)
        of_tab = {"tools": self._tools, "setup": self._setup, "log": self._log, "uses": self._uses, "auth": self._auth}
        if tab not in of_tab:
            raise NotFound("route.unknown", f"Servers have no page {tab!r}.")
        value = self._shape(details) | {"tab": tab, "change": None, "edited": None, "notCopied": None} | more
        value |= await of_tab[tab](request, details)
        title = f"{details.server.name}: {tab}"
        usage = await self._console.history.usage(CallFilter(server=details.server.alias))
        value["usage"] = usage.to_json()
        also = {"spark": usage.spark, "tabs": TABS, "base": f"/servers/{quote(details.server.alias, safe='')}"}
        part = "protocol_log" if tab == "log" and "protocolLog" in request.query_params else "server_body"
        return await self._console.respond(
            request, ScreenContent("servers", title, "server.html", value, f"parts/{part}.html", also)
        )

    def _shape(self, details: Details) -> JsonObject:
        status = self._upstreams.status(details.server)
        shape = details.to_json() | status.to_json()
        known = {key: shape.get(key) for key in _OPTIONAL} | {"stderr": shape.get("stderr", [])}
        return shape | known | {
            "word": status.label,
            "tone": TONES[status.state],
            "since": connecting_since(status),
            "etag": details.version,
            "isOwn": details.server.source.client == "toolcrib",
            "isOwnCrib": own_crib(details.server) is not None,
            "report": report(details, shape | known),
        }  # fmt: skip

    async def _tools(self, request: Request, details: Details) -> JsonObject:
        principal, alias = await self._console.local_principal(request), details.server.alias
        listed = [tool for tool in self._console.crib.gate.listing(principal).tools if tool.ref.server == alias]
        changes = [change for change in pending_changes(self._console, principal) if change["server"] == alias]
        shown = list_page(request, listed, TOOLS_ON_PAGE)
        return {
            "listed": [tool_row(tool) for tool in shown.items], "links": shown.links,
            "changes": changes[:CHANGES_ON_PAGE], "changed": len(changes),
        }  # fmt: skip

    async def _setup(self, request: Request, details: Details) -> JsonObject:
        written = orjson.dumps(details.server.definition, option=orjson.OPT_INDENT_2).decode()
        place = self._console.place
        return {
            "written": written, "profiles": PROFILE_LABELS,
            "project": str(place) if place is not None else None, "projectFiles": PROJECT_FILES,
        }  # fmt: skip

    async def _log(self, request: Request, details: Details) -> JsonObject:
        protocol_log = [each.to_json() for each in self._upstreams.protocol_log(details.server)]
        return {"protocolLog": [each | {"at": _moment(each["at"])} for each in protocol_log]}

    async def _uses(self, request: Request, details: Details) -> JsonObject:
        alias = details.server.alias
        records = await self._console.crib.audit.find(Filters(server=alias, phase="outcome", limit=_CALLS))
        rules = (rule for rule in self._console.crib.permissions.list() if _concerns(rule.pattern, alias))
        return {"users": _users(records), "calls": records[:20], "rules": [rule.to_json() for rule in rules]}

    async def _auth(self, request: Request, details: Details) -> JsonObject:
        status = await self._upstreams.await_sign_in(details.server.alias, 0.0, self._console.place)
        return {"signIn": {"error": None} | status.to_json()}

    async def _cancel(self, request: Request, alias: str) -> Response:
        await self._upstreams.cancel(alias, self._console.place)
        return await self.page(request, alias, "tools")

    async def _test(self, request: Request, alias: str) -> Response:
        with anyio.move_on_after(timeout_of(await request.form())):
            await self._upstreams.test(alias, self._console.place)
        return back(_address(alias, "tools"))

    async def _reload(self, request: Request, alias: str) -> Response:
        await self._upstreams.reload(alias, self._console.place)
        return back(_address(alias, "tools"))

    async def _enable(self, request: Request, alias: str) -> Response:
        done = await self._servers.switch(alias, enabled=True, cwd=self._console.place)
        return await self.page(request, alias, "setup", change=done.to_json())

    async def _disable(self, request: Request, alias: str) -> Response:
        done = await self._servers.switch(alias, enabled=False, cwd=self._console.place)
        return await self.page(request, alias, "setup", change=done.to_json())

    async def _remove(self, request: Request, alias: str) -> Response:
        name = (await self._servers.find(alias, self._console.place)).name
        done = await self._servers.remove(alias, self._console.place)
        value: JsonObject = {"name": name, "change": done.to_json(), "undone": False}
        return await self._console.respond(request, ScreenContent("servers", "Removed", "server_gone.html", value))

    async def _trust(self, request: Request, alias: str) -> Response:
        form = await request.form()
        secrets = form.get("allowSecrets") == "yes"
        await trust(self._console, request, alias, str(form.get("digest", "")), secrets=secrets)
        return await self._test(request, alias)

    async def _untrust(self, request: Request, alias: str) -> Response:
        place, principal = self._console.place, self._console.principal(request)
        await self._console.crib.changes.make(
            "servers.untrust",
            {"name": alias},
            lambda: self._servers.untrust(alias, place),
            by=principal,
            door="console",
        )
        return back(_address(alias, "setup"))

    async def _sign_in(self, request: Request, alias: str) -> Response:
        form = await request.form()
        await self._upstreams.sign_in(alias, self._console.place, again="again" in form)
        return back(_address(alias, "auth"))

    async def _answer(self, request: Request, alias: str) -> Response:
        """Complete a sign-in with the address that a browser on another computer ended at."""
        form = await request.form()
        await self._upstreams.answer(alias, str(form.get("address", "")).strip(), self._console.place)
        await self._upstreams.await_sign_in(alias, 25.0, self._console.place)
        return back(_address(alias, "auth"))

    async def _sign_out(self, request: Request, alias: str) -> Response:
        await self._upstreams.sign_out(alias, self._console.place)
        return back(_address(alias, "tools"))

    async def _edit(self, request: Request, alias: str) -> Response:
        """Preview an edit, or save it and test the server."""
        form = await request.form()
        text, etag = str(form.get("definition", "")), str(form.get("etag", ""))
        saves = form.get("do") == "save"
        try:
            entry = entry_of(text)
            done = await self._servers.replace(
                alias, entry, self._console.place, version=etag or None, dry_run=not saves
            )
        except ToolcribError as error:
            return await self.page(request, alias, "setup", edited={"text": text, "failure": error_json(error)})
        if saves:
            change, has_responded = await self._test_change(alias, done, timeout_of(form))
            return await self.page(request, alias, "setup" if has_responded else "tools", change=change)
        return await self.page(request, alias, "setup", change=done.to_json(), edited={"text": text, "failure": None})

    async def _sandbox(self, request: Request, alias: str) -> Response:
        """Change the profile, or allow what the sandbox refused."""
        form = await request.form()
        kind, target = str(form.get("kind", "")), str(form.get("target", ""))
        allowed = {each: [str(value) for value in form.getlist(each)] for each in ("read", "write", "host", "removed")}
        if kind in allowed:
            allowed[kind].append(target)
        choice = SandboxChoice(
            str(form["profile"]) if "profile" in form else None,
            tuple(allowed["read"]),
            tuple(allowed["write"]),
            True if kind == "network" else None,
            tuple(each for text in allowed["host"] for each in text.split()),
            tuple(allowed["removed"]),
            form.get("unconfined") == "yes",
        )
        done = await self._servers.sandbox(alias, choice, self._console.place)
        return await self.page(request, alias, "setup", change=done.to_json())

    async def _take(self, request: Request, alias: str) -> Response:
        """Import the server of another app into Toolcrib's own file, where it can be edited."""
        form = await request.form()
        saves = form.get("do") == "save"
        done = await self._servers.import_([alias], self._console.place, dry_run=not saves)
        edit = _only_edit(done, alias, "imported")
        return await self.page(request, alias, "setup", change=edit.to_json() | {"takes": not saves})

    async def _copy(self, request: Request, alias: str) -> Response:
        """Preview or write a copy of the server in a file of the page's project."""
        form = await request.form()
        client, saves = str(form.get("client", "")), form.get("do") == "save"
        if client not in PROJECT_FILES:
            raise InvalidRequest("request.invalid", f"The console cannot write project files of {client!r}.")
        try:
            done = await self._servers.export_to(
                client, [alias], self._console.place, scope="project", dry_run=not saves
            )
            edit = _only_edit(done, alias, "copied")
        except ToolcribError as error:
            return await self.page(request, alias, "setup", notCopied=error_json(error) | {"client": client})
        return await self.page(request, alias, "setup", change=edit.to_json() | {"copies": client})

    async def _test_change(self, alias: str, done: Edit, seconds: float) -> tuple[JsonObject, bool]:
        """Return the saved change after testing the server, and whether the test ended in time."""
        try:
            with anyio.move_on_after(seconds) as waiting:
                await self._upstreams.test(alias, self._console.place)
        except ToolcribError as error:
            return done.to_json() | {"untried": error.message}, True
        return done.to_json(), not waiting.cancelled_caught


def _only_edit(done: Transfer, alias: str, verb: str) -> Edit:
    """Return the edit that writes the one chosen server, or raise why it cannot be written."""
    skipped = [moved for moved in done.moved if moved.reason is not None]
    if done.edit is None or skipped:
        reason = skipped[0].reason if skipped else "there is nothing to write"
        raise InvalidRequest("server.not_exportable", f'Server "{alias}" cannot be {verb}: {reason}.')
    return done.edit


def report(details: Details, shape: JsonObject) -> str:
    """Return a text report for support requests; secrets are masked."""
    question, source = details.question, details.server.source
    tried = (question.command_line or question.url) if question is not None else None
    known = {
        "toolcrib": f"{__version__} on {sys.platform}",
        "server": details.server.name,
        "defined in": f"{source.file}:{source.line}" if source.line else source.file,
        "tried": tried,
        "in": question.cwd if question is not None else None,
        "state": f"{shape['state']}: {shape['sentence']}",
        "last error": shape["lastError"],
        "exit code": shape["exitCode"],
        "protocol": shape["protocolVersion"],
        "problems": "; ".join(problem.message for problem in details.server.problems),
    }
    lines = [f"{key}: {value}" for key, value in known.items() if value not in (None, "")]
    return "\n".join([*lines, "stderr:", *shape["stderr"]] if shape["stderr"] else lines)


def _address(alias: str, tab: str) -> str:
    return f"/servers/{quote(alias, safe='')}/{tab}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def entry_of(text: str) -> JsonObject:
    """Parse a definition; raise `request.malformed` if it is not a JSON object."""
    try:
        entry: Json = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("request.malformed", f"The definition is not valid JSON: {error}.") from error
    if not is_object(entry):
        raise InvalidRequest("request.malformed", "The definition must be a JSON object.")
    return entry


def _users(records: list[JsonObject]) -> list[JsonObject]:
    """Return the callers of a server, most frequent first."""
    users: dict[tuple[str, str], JsonObject] = {}
    for record in records:
        principal = record.get("principal")
        caller = principal if is_object(principal) else {}
        key = str(caller.get("agent") or caller.get("name") or "?"), str(caller.get("source") or "?")
        user = users.setdefault(
            key, {"who": key[0], "source": key[1], "calls": 0, "errors": 0, "last": record.get("at")}
        )
        user["calls"] += 1
        user["errors"] += bool(record.get("isError"))
    return sorted(users.values(), key=lambda user: -user["calls"])


def _concerns(pattern: str, alias: str) -> bool:
    """Return whether a rule may apply to tools of this server."""
    globs = parts(pattern)
    return globs is not None and bool(glob(globs.server)(alias))
