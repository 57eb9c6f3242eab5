"""Check access: whether an agent may use a tool, why, and the smallest change that would flip the decision."""

from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import Verdict
from toolcrib.model.principals import MODES, SOURCES, Principal, Source
from toolcrib.model.tools import ToolRef
from toolcrib.web.console.forms import FormFields, read_query
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.console.screens.access import (
    grants as access_grants,
)
from toolcrib.web.console.screens.access import (
    reach as access_reach,
)
from toolcrib.web.console.screens.access import (
    rules as access_rules,
)
from toolcrib.web.console.screens.access import (
    tokens as access_tokens,
)
from toolcrib.web.console.screens.access import (
    tool_sets as access_tool_sets,
)
from toolcrib.web.console.screens.agents.tools import SOURCE_WORDS
from toolcrib.web.console.screens.sessions import MODE_WORDS

ANSWERS: Final[dict[Verdict, tuple[str, str, str]]] = {
    "allow": ("Allowed", "good", "Calls run without approval."),
    "ask": ("Needs approval", "warn", "Each call waits for your approval."),
    "deny": ("Denied", "alarm", "The tool is listed, but calls are denied."),
    "hidden": ("Hidden", "alarm", "The tool is neither listed nor callable."),
    "unknown": ("Unknown tool", "soft", "No server offers a tool with this name."),
}
"""Per verdict: label, tone and explanation."""
_MOST_NAMES: Final = 500
"""Limit of the tool names that are suggested while typing."""


def routes(console: Console) -> list[Route]:
    """Return the routes of all access screens."""
    screen = AccessScreen(console)
    parts = (access_reach, access_rules, access_grants, access_tokens, access_tool_sets)
    return [route("/access", screen.show), *(each for part in parts for each in part.routes(console))]


class AccessScreen:
    """Explains the decision for one principal and tool."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show the form and, if a tool is given, the decision."""
        form = read_query(request)
        source: Source = form.choice("source", SOURCES) or "ide"
        question: JsonObject = {
            "tool": form.line("tool"),
            "agent": form.line("agent"),
            "source": source,
            "mode": form.choice("mode", MODES),
            "arguments": form.text("arguments").strip(),
        }
        value: JsonObject = {
            "question": question,
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "answer": await self._answer(form, source) if question["tool"] else None,
            "back": f"/access?{urlencode({key: text for key, text in question.items() if text})}",
        }
        here = (await self._console.local_principal(request)).cwd
        names = [str(ref) for ref in sorted(self._crib.catalog.at(here).tools)[:_MOST_NAMES]]
        also = {"names": names, "sources": SOURCE_WORDS, "modes": MODE_WORDS}
        shown = ScreenContent("access", "Access", "access.html", value, "parts/access_answer.html", also)
        return await self._console.respond(request, shown)

    async def _answer(self, form: FormFields, source: Source) -> JsonObject:
        principal = await self._principal(form.line("agent"), form, source)
        ref = self._ref(form.text("tool").strip())
        explained = await self._crib.why(ref, principal=principal, arguments=form.json_object("arguments"))
        word, tone, sentence = ANSWERS[explained.verdict]
        shape: JsonObject = {"flip": None, "nearest": [], **explained.to_json()}
        steps: list[JsonObject] = [_step(step) for step in shape["steps"]]
        decided = _step(shape["decidedBy"])
        reached = [step for step in steps if step["matched"] or step["rule"] in (None, *explained.naming)]
        return shape | {
            "word": word,
            "tone": tone,
            "sentence": sentence,
            "decidedBy": decided,
            "steps": [step | {"decides": _same(step, decided)} for step in reached],
            "others": [step for step in steps if step not in reached],
            "flip": self._flip(shape["flip"]),
        }

    async def _principal(self, agent: str | None, form: FormFields, source: Source) -> Principal:
        """Return the principal of the question, in the directory of the page."""
        mode = form.choice("mode", MODES)
        self._crib.permissions.require_agent(agent)
        crib = self._crib
        principal = crib.owner(source, mode=mode) if agent is None else crib.as_agent(agent, source, mode=mode)
        place = self._console.place
        return await crib.placed(principal if place is None else replace(principal, cwd=str(place)))

    def _ref(self, text: str) -> ToolRef:
        ref = ToolRef.parse(text) or self._crib.permissions.named(text)
        if ref is None:
            raise InvalidRequest("request.invalid", f"{text!r} is not a tool.", "Use the form `server/tool`.")
        return ref

    def _flip(self, flip: Json) -> JsonObject | None:
        """Return the smallest change, marking what a button can apply; rules in files are not editable here."""
        if flip is None:
            return None
        in_files = {rule.id for rule in self._crib.permissions.list() if rule.origin.file is not None}
        changes: list[JsonObject] = [{"rule": None, **change} for change in flip["changes"]]
        for change in changes:
            adds = change["kind"] == "add_rule" and change["change"].startswith("Add ")  # else it needs an approval
            change["byButton"] = adds or (change["kind"] == "remove_rule" and change["rule"] not in in_files)
        return {**flip, "changes": changes, "word": ANSWERS[flip["verdict"]][0]}


def _step(step: JsonObject) -> JsonObject:
    """Return a step with its origin as text."""
    origin: JsonObject = step.get("origin") or {}
    place = origin.get("file", origin.get("kind", ""))
    line = origin.get("line")
    return {"rule": None, **step, "place": f"{place}:{line}" if line else place}


def _same(step: JsonObject, decided: JsonObject) -> bool:
    return all(step[key] == decided[key] for key in ("step", "matched", "effect", "reason", "rule"))
