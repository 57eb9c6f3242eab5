"""The brain of an agent as a timeline: add, edit, pin and delete memories."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges, EntryChanges, EntryInput
from toolcrib.model.agents import ENTRY_TYPES, BrainEntry
from toolcrib.model.json import JsonObject
from toolcrib.web.console.forms import FormFields, read, read_query
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author, base

_SHOWN = 200


def routes(console: Console) -> list[Route]:
    """Return the routes of the timeline and its entries."""
    screen = BrainScreen(console)
    return [
        route("/agents/{id}/brain", screen.show),
        route("/agents/{id}/brain", screen.add, "POST"),
        route("/agents/{id}/brain/-/include", screen.include, "POST"),
        route("/agents/{id}/brain/{entry}", screen.entry),
        route("/agents/{id}/brain/{entry}", screen.change, "POST"),
        route("/agents/{id}/brain/{entry}/pin", screen.pin, "POST"),
        route("/agents/{id}/brain/{entry}/delete", screen.delete, "POST"),
    ]


class BrainScreen:
    """The memories of one agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """List the entries, newest first, filtered by type, tag, pin or dates."""
        return await self._timeline(request, None)

    async def add(self, request: Request) -> Response:
        """Add an entry; with an id, restore one that was just deleted."""
        form = await read(request)
        given = _read_form(form) | {"pinned": form.has("pinned")}
        optional = {name: form.line(name) for name in ("id", "timestamp")}
        entry = parse(EntryInput, given | {name: value for name, value in optional.items() if value})
        await self._zoo.brain.add(request.path_params["id"], entry, source="manual")
        return back(self._path(request))

    async def entry(self, request: Request) -> Response:
        """Show one entry for editing."""
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        entry = await self._zoo.brain.get(stored.agent.id, request.path_params["entry"])
        value = base(stored, compiled) | {"entry": entry.to_json()}
        also = {"picture": picture, "types": ENTRY_TYPES}
        shown = ScreenContent("agents", f"Brain entry of {stored.agent.name}", "agent_entry.html", value, also=also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save an entry."""
        changes = parse(EntryChanges, _read_form(await read(request)))
        await self._zoo.brain.change(request.path_params["id"], request.path_params["entry"], changes)
        return back(self._path(request))

    async def pin(self, request: Request) -> Response:
        """Pin or unpin an entry."""
        form = await read(request)
        await self._zoo.brain.pin(request.path_params["id"], request.path_params["entry"], form.has("pinned"))
        return back(self._path(request))

    async def delete(self, request: Request) -> Response:
        """Delete an entry; the page then offers to restore it."""
        agent_id, entry_id = request.path_params["id"], request.path_params["entry"]
        entry = await self._zoo.brain.get(agent_id, entry_id)
        await self._zoo.brain.delete(agent_id, entry_id)
        return await self._timeline(request, entry)

    async def include(self, request: Request) -> Response:
        """Set whether pinned entries and context references are part of the prompt."""
        form = await read(request)
        changes = parse(AgentChanges, {"includeBrain": form.has("includeBrain")})
        await self._zoo.update(request.path_params["id"], changes, by=author(self._console.principal(request)))
        return back(self._path(request))

    async def _timeline(self, request: Request, forgotten: BrainEntry | None) -> Response:
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        query = read_query(request)
        kind, tag = query.choice("type", ENTRY_TYPES), query.line("tag")
        pinned = True if query.has("pinned") else None
        since, until = query.line("from"), query.line("to")
        wanted = EntryQuery(kind, (tag,) if tag else (), since, until, pinned, _SHOWN)
        entries = await self._zoo.brain.find(stored.agent.id, wanted)
        value = base(stored, compiled) | {
            "entries": [entry.to_json() for entry in entries],
            "filter": {"type": kind, "tag": tag, "pinned": pinned, "from": since, "to": until},
            "most": _SHOWN,
            "forgotten": forgotten.to_json() if forgotten is not None else None,
        }
        also = {"picture": picture, "types": ENTRY_TYPES}
        title = f"Brain of {stored.agent.name}"
        return await self._console.respond(
            request, ScreenContent("agents", title, "agent_brain.html", value, "parts/agent_brain.html", also)
        )

    def _path(self, request: Request) -> str:
        return f"/agents/{request.path_params['id']}/brain"


def _read_form(form: FormFields) -> JsonObject:
    return {"type": form.text("type"), "content": form.text("content"), "tags": form.words("tags")}
