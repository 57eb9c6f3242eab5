"""All servers, those that need attention first."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerState
from toolcrib.servers.server_status import ServerStatus, own_crib
from toolcrib.web.console.responses import Console, ScreenContent, error_json, route

TONES: Final[dict[ServerState, str]] = {
    "connected": "good",
    "connecting": "soft",
    "not_checked": "soft",
    "disabled": "soft",
    "shadowed": "soft",
    "invalid": "alarm",
    "untrusted": "warn",
    "needs_auth": "warn",
    "failed": "alarm",
}
NEEDS_YOU: Final = frozenset({"invalid", "untrusted", "needs_auth", "failed"})
OFF: Final = frozenset({"disabled", "shadowed"})
GROUPS: Final = (
    ("you", "Needs attention"),
    ("connecting", "Connecting"),
    ("connected", "Connected"),
    ("unchecked", "Not checked"),
    ("off", "Inactive"),
)
_BUTTONS: Final = {
    "needs_auth": ("Sign in", "/servers/{}/auth"),
    "failed": ("Retry", "/rows/{}/test"),
    "connecting": ("Cancel", "/rows/{}/cancel"),
    "not_checked": ("Check", "/rows/{}/test"),
    "disabled": ("Enable", "/rows/{}/enable"),
}
"""The action that is safe without a review; the other states link to the server's page."""
_LINKS: Final = {"invalid": "Fix setup", "untrusted": "Review", "shadowed": "Compare"}
PATIENCE: Final = 10.0
"""Seconds that a page waits for servers to respond."""
_LIVE_PATIENCE: Final = 1.0
"""The same for a new page that updates itself by script: it shows a timer and Cancel meanwhile."""
_TABS: Final = {"invalid": "setup", "untrusted": "setup", "shadowed": "setup", "failed": "log"}
"""The tab that a state links to."""


def routes(console: Console) -> list[Route]:
    """Return the routes of the list."""
    screen = ServersScreen(console)
    return [
        route("/servers", screen.show),
        route("/servers/check", screen.check_all, "POST"),
        route("/rows/{alias}/{action}", screen.act, "POST"),
    ]


class ServersScreen:
    """Lists all servers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._upstreams = console.crib.upstreams

    async def show(self, request: Request) -> Response:
        """Show the list."""
        return await self._console.respond(request, await self.content())

    async def check_all(self, request: Request) -> Response:
        """Trust the definitions that were displayed, then connect all servers; rows update meanwhile."""
        form = await request.form()
        shown = {str(digest) for digest in form.getlist("digest")}
        for status in await self._upstreams.list(self._console.place):
            entry = status.entry
            if status.state == "untrusted" and entry.digest in shown:
                await trust(self._console, request, entry.alias, entry.digest)
        with anyio.move_on_after(PATIENCE):  # slower servers fill in their rows when they respond
            await self._upstreams.check_all(self._console.place)
        return await self._console.respond(request, await self.content())

    async def act(self, request: Request) -> Response:
        """Run the action of a row and return the updated list."""
        alias, action = request.path_params["alias"], request.path_params["action"]
        place = self._console.place
        failure: JsonObject | None = None
        try:
            if action == "test":
                with anyio.move_on_after(PATIENCE):
                    await self._upstreams.test(alias, place)
            elif action == "cancel":
                await self._upstreams.cancel(alias, place)
            elif action == "enable":
                await self._console.crib.servers.switch(alias, enabled=True, cwd=place)
        except ToolcribError as error:
            failure = error_json(error)
        return await self._console.respond(request, await self.content(failure))

    async def content(self, failure: JsonObject | None = None) -> ScreenContent:
        """Return the list, those that need attention first."""
        found = await self._console.crib.servers.list(self._console.place)
        statuses = [self._upstreams.status(entry) for entry in found.servers]
        rows = [row(status) for status in statuses]
        groups = [{"title": title, "rows": [each for each in rows if each["group"] == key]} for key, title in GROUPS]
        files = {source.file for status in statuses for source in status.entry.sources}
        startable = await self._startable(statuses)
        value: JsonObject = {
            "groups": [group for group in groups if group["rows"]],
            "total": len(rows),
            "files": len(files),
            "unchecked": sum(each["group"] == "unchecked" for each in rows),
            "startable": startable,
            "unreviewed": sum(status.state == "untrusted" for status in statuses) - len(startable),
            "problems": [problem.to_json() for problem in found.problems],
            "failure": failure,
        }
        return ScreenContent("servers", "Servers", "servers.html", value, "parts/server_rows.html")

    async def _startable(self, statuses: Iterable[ServerStatus]) -> list[JsonObject]:
        """Return the servers that one click may trust and start: from user files and without grave warnings."""
        waiting = [
            status.entry for status in statuses if status.state == "untrusted" and status.entry.source.project is None
        ]
        questions = {
            details.server.digest: details.question
            for file in sorted({entry.source.file for entry in waiting})
            for details in await self._console.crib.servers.at(Path(file))
        }
        found: list[JsonObject] = []
        for entry in waiting:
            question = questions.get(entry.digest)
            if question is not None and not any(danger.grave for danger in question.dangers):
                starts = question.command_line or question.url
                found.append({"alias": entry.alias, "name": entry.name, "digest": entry.digest, "starts": starts})
        return found


def timeout_of(form: FormData) -> float:
    """Return the seconds to wait for a server before a form is answered with a page."""
    return _LIVE_PATIENCE if form.get("live") else PATIENCE


async def trust(console: Console, request: Request, alias: str, digest: str, *, secrets: bool = False) -> None:
    """Trust a definition as displayed, and record it; `secrets` accepts its grave warnings."""
    servers = console.crib.servers
    await console.crib.changes.make(
        "servers.trust",
        {"name": alias, "digest": digest, "allowSecrets": secrets},
        lambda: servers.trust(alias, console.place, shown=digest, secrets=secrets),
        by=console.principal(request),
        door="console",
    )


def connecting_since(status: ServerStatus) -> str | None:
    """Return when the attempt to connect a server began; None if there is none."""
    since = status.link.connecting_since if status.link is not None else None
    return datetime.fromtimestamp(since, UTC).isoformat() if since is not None else None


def row(status: ServerStatus) -> JsonObject:
    """Return a server as a table row.

    `post` is the address of its action, `stays` whether that returns the list, `link` the label of what needs a review.
    """
    state, entry = status.state, status.entry
    button = _BUTTONS.get(state) if own_crib(entry) is None else None
    alias = quote(entry.alias, safe="")
    return {
        "alias": entry.alias,
        "name": entry.name,
        "href": f"/servers/{alias}/{_TABS.get(state, 'tools')}",
        "state": state,
        "word": status.label,
        "tone": TONES[state],
        "sentence": status.sentence,
        "since": connecting_since(status),
        "stderr": status.link.stderr[-1] if state == "failed" and status.link and status.link.stderr else None,
        "place": f"{entry.source.client}, …/{'/'.join(Path(entry.source.file).parts[-2:])}",
        "places": [f"{source.client}: {source.file}" for source in entry.sources or (entry.source,)],
        "button": button[0] if button else None,
        "post": button[1].format(alias) if button else None,
        "stays": state != "needs_auth",
        "link": _LINKS.get(state),
        "group": _group(state),
    }


def _group(state: ServerState) -> str:
    if state in NEEDS_YOU:
        return "you"
    if state in OFF:
        return "off"
    return "unchecked" if state == "not_checked" else state
