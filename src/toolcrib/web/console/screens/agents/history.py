"""The history of an agent, also of a deleted one: all versions, their differences, and restore."""

from collections.abc import Iterator, Sequence

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.difference import difference
from toolcrib.agents.zoo.zoo import Revision
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.web.console.forms import read
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author, seed_of

_KINDS = {"+": "ins", "-": "del", "@": "place"}


def routes(console: Console) -> list[Route]:
    """Return the routes of the history."""
    screen = HistoryScreen(console)
    return [
        route("/agents/{id}/history", screen.show),
        route("/agents/{id}/history/{version:int}", screen.version),
        route("/agents/{id}/restore", screen.restore, "POST"),
    ]


class HistoryScreen:
    """The versions of one agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """List all versions, newest first."""
        revisions = await self._zoo.revisions(request.path_params["id"])
        value = _head(request.path_params["id"], revisions[0], revisions) | {
            "revisions": [each.to_json() | {"restores": each.agent is not None} for each in revisions]
        }
        return await self._respond(request, "agent_history.html", "History", value)

    async def version(self, request: Request) -> Response:
        """Show one version and its difference from the previous one."""
        agent_id, number = request.path_params["id"], request.path_params["version"]
        revisions = await self._zoo.revisions(agent_id)
        revision = await self._zoo.revision(agent_id, number)
        before = (await self._zoo.revision(agent_id, number - 1)).agent if number > 1 else None
        names = (f"version {number - 1}", f"version {number}")
        text = await anyio.to_thread.run_sync(difference, before, revision.agent, names)
        value = _head(agent_id, revisions[0], revisions) | {
            "revision": revision.to_json() | {"restores": revision.agent is not None},
            "lines": list(_lines(text)),
        }
        return await self._respond(request, "agent_revision.html", f"Version {number}", value)

    async def restore(self, request: Request) -> Response:
        """Restore an older version as a new one."""
        number = (await read(request)).text("version")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise InvalidRequest("request.invalid", f"{number!r} is not a version.")
        agent_id: str = request.path_params["id"]
        await self._zoo.restore(agent_id, int(number), by=author(self._console.principal(request)))
        return back(f"/agents/{agent_id}")

    async def _respond(self, request: Request, template: str, title: str, value: JsonObject) -> Response:
        shown = ScreenContent(
            "agents", f"{title} of {value['agent']['name']}", template, value, also={"picture": picture}
        )
        return await self._console.respond(request, shown)


def _head(agent_id: str, newest: Revision, revisions: Sequence[Revision]) -> JsonObject:
    """Return the agent of the page heading; a deleted one as it was last."""
    agent = next((each.agent for each in revisions if each.agent is not None), None)
    shape: JsonObject = {
        "id": agent_id,
        "name": agent.name if agent else agent_id,
        "description": agent.description if agent else "",
        "seed": seed_of(agent) if agent else agent_id,
        "version": newest.version,
    }
    return {"agent": shape, "deleted": newest.kind == "deleted"}


def _lines(diff: str) -> Iterator[JsonObject]:
    for line in diff.split("\n")[2:]:  # skip the file names, which the page shows above
        yield {"kind": _KINDS.get(line[:1], "same"), "text": line}
