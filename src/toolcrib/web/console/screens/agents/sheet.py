"""The sheet of one agent: its texts and settings, next to the compiled prompt its IDE receives.

Saving compares the texts with those displayed, so a concurrent edit is not overwritten. Concurrent changes of switches
do not conflict.
"""

import io
import zipfile
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.brain import EntryQuery
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.compile import Compiled
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.agents.zoo.transfer import Form, write
from toolcrib.agents.zoo.zoo import StoredAgent
from toolcrib.gate.audit.statistics import CallFilter
from toolcrib.model.agents import LISTING_MODES, Agent
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.principals import MODES, Principal
from toolcrib.web.console.forms import FormFields, read, read_query
from toolcrib.web.console.portraits import picture, swatch
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.sessions import MODE_WORDS

_OPTIONAL: Final[JsonObject] = dict.fromkeys(("appearanceSeed", "model", "mode", "listing", "toolTokens"))
_PARTS: Final = {
    "title": "parts/agent_title.html",
    "skills": "parts/agent_skills.html",
    "receives": "parts/agent_receives.html",
}
"""Fragments of the sheet that can be requested on their own."""
FORMS: Final[dict[Form, str]] = {
    "json": "AgentZoo file, with brain",
    "claude": "Claude Code sub-agent",
    "skills": "Skills, one SKILL.md each",
}


def routes(console: Console) -> list[Route]:
    """Return the routes of one agent."""
    screen = SheetScreen(console)
    return [
        route("/agents/{id}", screen.show),
        route("/agents/{id}", screen.change, "POST"),
        route("/agents/{id}/clone", screen.clone, "POST"),
        route("/agents/{id}/delete", screen.delete, "POST"),
        route("/agents/{id}/export", screen.export),
        route("/agents/{id}/export/{form}", screen.download),
    ]


class SheetScreen:
    """One agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """Show the sheet."""
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        value = base(stored, compiled) | {"was": _mark(stored.agent), "categories": _categories(stored.agent, compiled)}
        usage = await self._console.history.usage(CallFilter(agent=stored.agent.id))
        value["usage"] = usage.to_json()
        also = {"picture": picture, "swatch": swatch, "modes": MODE_WORDS, "spark": usage.spark}
        part = _PARTS.get(read_query(request).text("part"), "parts/agent_sheet.html")
        shown = ScreenContent("agents", stored.agent.name, "agent.html", value, part, also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save the texts; raise `request.stale` if they were changed meanwhile."""
        form = await read(request)
        stored = await self._zoo.get(request.path_params["id"])
        if form.text("was") != _mark(stored.agent):
            message = f"{stored.agent.name} was changed after you opened this page. Your changes were not saved."
            raise Conflict("request.stale", message, "Copy your text, reload the page and edit again.")
        by = author(self._console.principal(request))
        await self._zoo.update(stored.agent.id, parse(AgentChanges, _read_form(form)), version=stored.version, by=by)
        return back(f"/agents/{stored.agent.id}")

    async def clone(self, request: Request) -> Response:
        """Clone the agent, without its brain."""
        form = await read(request)
        name = form.line("name")
        given: JsonObject = {"name": name} if name else {}
        by = author(self._console.principal(request))
        stored = await self._zoo.clone(request.path_params["id"], parse(AgentChanges, given), by=by)
        return back(f"/agents/{stored.agent.id}")

    async def delete(self, request: Request) -> Response:
        """Delete the agent; the list then offers to restore it."""
        agent_id: str = request.path_params["id"]
        await self._zoo.delete(agent_id, by=author(self._console.principal(request)))
        return back(f"/agents?deleted={agent_id}")

    async def export(self, request: Request) -> Response:
        """Preview the agent in the formats of other apps, with what each format loses."""
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        forms: list[JsonObject] = []
        for form, words in FORMS.items():
            forms.append({"form": form, "words": words, **write(stored.agent, (), form).to_json()})
        value = base(stored, compiled) | {"forms": forms}
        shown = ScreenContent(
            "agents", f"Export {stored.agent.name}", "agent_export.html", value, also={"picture": picture}
        )
        return await self._console.respond(request, shown)

    async def download(self, request: Request) -> Response:
        """Return the file of one format; several files are zipped."""
        asked_for: str = request.path_params["form"]
        form: Form | None = next((each for each in FORMS if each == asked_for), None)
        if form is None:
            raise NotFound("route.unknown", f"Unknown export format {asked_for!r}.")
        stored = await self._zoo.get(request.path_params["id"])
        entries = await self._zoo.brain.find(stored.agent.id, EntryQuery()) if form == "json" else ()
        files = write(stored.agent, entries, form).files
        if len(files) == 1:
            path, text = files[0]
            return _attachment(text.encode(), path.rpartition("/")[2], "text/plain; charset=utf-8")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in files:
                archive.writestr(path, text)
        return _attachment(packed.getvalue(), f"{stored.agent.id}-skills.zip", "application/zip")


def author(principal: Principal) -> str:
    """Return the author of a change as stored in revisions."""
    return f"{principal.name} ({principal.source})"


def seed_of(agent: Agent) -> str | int:
    """Return the seed of its portrait."""
    return agent.id if agent.appearance_seed is None else agent.appearance_seed


def base(stored: StoredAgent, compiled: Compiled) -> JsonObject:
    """Return the values shared by all pages of an agent: its heading, and the prompt its IDE receives."""
    return {
        "agent": _OPTIONAL | stored.to_json() | {"seed": seed_of(stored.agent)},
        "receives": {
            "prompt": compiled.prompt,
            "warnings": list(compiled.warnings),
            "tokens": compiled.tokens.to_json(),
        },
    }


def _categories(agent: Agent, compiled: Compiled) -> list[JsonObject]:
    tokens = dict(compiled.tokens.skills)
    empty: JsonObject = {"tools": [], "requires": []}
    shapes = [empty | skill.to_json() | {"tokens": tokens[skill.id]} for skill in agent.skills]
    return [
        category.to_json() | {"skills": mine}
        for category in agent.skill_categories
        if (mine := [shape for shape in shapes if shape["categoryId"] == category.id])
    ]


def _read_form(form: FormFields) -> JsonObject:
    return {
        "name": form.text("name"),
        "description": form.text("description"),
        "systemPrompt": form.text("systemPrompt"),
        "model": form.line("model"),
        "mode": form.choice("mode", MODES),
        "listing": form.choice("listing", LISTING_MODES),
        "toolTokens": _whole_number(form.number("toolTokens")),
        "contextRefs": form.lines("contextRefs"),
        "appearanceSeed": form.line("appearanceSeed"),
    }


def _mark(agent: Agent) -> str:
    """Return a digest of the texts, to detect concurrent edits."""
    texts = (agent.name, agent.description, agent.system_prompt, agent.model, agent.mode, agent.appearance_seed)
    return digest([*texts, agent.listing, agent.tool_tokens, list(agent.context_refs)])[:16]


def _whole_number(number: float | None) -> float | int | None:
    return int(number) if number is not None and number.is_integer() else number


def _attachment(body: bytes, name: str, media_type: str) -> Response:
    return Response(body, media_type=media_type, headers={"content-disposition": f'attachment; filename="{name}"'})
