"""The brain of an agent as a timeline: what it remembers, added to, changed, pinned and forgotten."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import Fields, asked, read
from toolcrib.console.portraits import picture
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.screens.agent_sheet import author, base
from toolcrib.model.agents import ENTRY_TYPES, BrainEntry
from toolcrib.model.json import JsonObject
from toolcrib.zoo import EntryQuery, parse
from toolcrib.zoo.input import AgentChanges, EntryChanges, EntryInput

_SHOWN = 200


def routes(console: Console) -> list[Route]:
    """The timeline, one entry, and what is done to them."""
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
    """What one agent remembers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """The entries, newest first; of one type, with a tag or pinned, where the address says so."""
        return await self._timeline(request, None)

    async def add(self, request: Request) -> Response:
        """Remember something; with an id, something that was just forgotten."""
        form = await read(request)
        given = _given(form) | {"pinned": form.has("pinned")}
        optional = {name: form.line(name) for name in ("id", "timestamp")}
        entry = parse(EntryInput, given | {name: value for name, value in optional.items() if value})
        await self._zoo.brain.add(request.path_params["id"], entry, source="manual")
        return back(self._path(request))

    async def entry(self, request: Request) -> Response:
        """One entry to be changed."""
        kept, compiled = await self._zoo.compiled(request.path_params["id"])
        entry = await self._zoo.brain.get(kept.agent.id, request.path_params["entry"])
        value = base(kept, compiled) | {"entry": entry.to_json()}
        also = {"picture": picture, "types": ENTRY_TYPES}
        shown = Shown("agents", f"An entry of {kept.agent.name}", "agent_entry.html", value, also=also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save an entry."""
        changes = parse(EntryChanges, _given(await read(request)))
        await self._zoo.brain.change(request.path_params["id"], request.path_params["entry"], changes)
        return back(self._path(request))

    async def pin(self, request: Request) -> Response:
        """Pin it or let it go."""
        form = await read(request)
        await self._zoo.brain.pin(request.path_params["id"], request.path_params["entry"], form.has("pinned"))
        return back(self._path(request))

    async def delete(self, request: Request) -> Response:
        """Forget an entry; what is shown then holds it once more, so that it can be had back."""
        agent_id, entry_id = request.path_params["id"], request.path_params["entry"]
        entry = await self._zoo.brain.get(agent_id, entry_id)
        await self._zoo.brain.delete(agent_id, entry_id)
        return await self._timeline(request, entry)

    async def include(self, request: Request) -> Response:
        """Whether pinned entries and context references are part of the prompt."""
        form = await read(request)
        changes = parse(AgentChanges, {"includeBrain": form.has("includeBrain")})
        await self._zoo.update(request.path_params["id"], changes, by=author(self._console.principal(request)))
        return back(self._path(request))

    async def _timeline(self, request: Request, forgotten: BrainEntry | None) -> Response:
        kept, compiled = await self._zoo.compiled(request.path_params["id"])
        query = asked(request)
        kind, tag = query.choice("type", ENTRY_TYPES), query.line("tag")
        pinned = True if query.has("pinned") else None
        wanted = EntryQuery(kind, (tag,) if tag else (), pinned=pinned, limit=_SHOWN)
        entries = await self._zoo.brain.find(kept.agent.id, wanted)
        value = base(kept, compiled) | {
            "entries": [entry.to_json() for entry in entries],
            "filter": {"type": kind, "tag": tag, "pinned": pinned},
            "most": _SHOWN,
            "forgotten": forgotten.to_json() if forgotten is not None else None,
        }
        also = {"picture": picture, "types": ENTRY_TYPES}
        title = f"Brain of {kept.agent.name}"
        return await self._console.respond(
            request, Shown("agents", title, "agent_brain.html", value, "parts/agent_brain.html", also)
        )

    def _path(self, request: Request) -> str:
        return f"/agents/{request.path_params['id']}/brain"


def _given(form: Fields) -> JsonObject:
    return {"type": form.text("type"), "content": form.text("content"), "tags": form.words("tags")}
