"""Access: may this agent use this tool, why, and the smallest change; then the rules. What is granted lies beside."""

from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import Fields, asked
from toolcrib.console.respond import Console, Shown, route
from toolcrib.console.screens import access_grants, access_rules, access_tokens
from toolcrib.console.screens.agent_tools import SOURCE_WORDS
from toolcrib.console.screens.sessions import MODE_WORDS
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import Verdict
from toolcrib.model.principals import MODES, SOURCES, Principal, Source
from toolcrib.model.tools import ToolRef

ANSWERS: Final[dict[Verdict, tuple[str, str, str]]] = {
    "allow": ("Yes", "good", "A call runs without asking anybody."),
    "ask": ("After asking you", "warn", "A call waits until you approve it."),
    "deny": ("No", "alarm", "It sees the tool, but a call is refused."),
    "hidden": ("No", "alarm", "For it the tool does not exist."),
    "unknown": ("There is no such tool", "soft", "Nothing of that name is offered now."),
}
"""Each verdict in a word, how grave it is, and what it means."""
_MOST_NAMES: Final = 2_000
"""Names of tools that are offered while one is typed."""


def routes(console: Console) -> list[Route]:
    """The question, and everything that answers depend on."""
    screen = AccessScreen(console)
    parts = (access_rules, access_grants, access_tokens)
    return [route("/access", screen.show), *(each for part in parts for each in part.routes(console))]


class AccessScreen:
    """Who may use what, and why."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """The question and, if a tool is named, the answer."""
        form = asked(request)
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
        names = [str(ref) for ref in sorted(self._crib.catalog.snapshot.tools)[:_MOST_NAMES]]
        also = {"names": names, "sources": SOURCE_WORDS, "modes": MODE_WORDS}
        shown = Shown("access", "Access", "access.html", value, "parts/access_answer.html", also)
        return await self._console.respond(request, shown)

    async def _answer(self, form: Fields, source: Source) -> JsonObject:
        asker = self._asker(form.line("agent"), form, source)
        ref = self._ref(form.text("tool").strip())
        explained = await self._crib.why(ref, principal=asker, arguments=form.json_object("arguments"))
        word, tone, sentence = ANSWERS[explained.verdict]
        shape: JsonObject = {"flip": None, "nearest": [], **explained.to_json()}
        steps: list[JsonObject] = [_step(step) for step in shape["steps"]]
        decided = _step(shape["decidedBy"])
        naming = {ranked.rule.id for ranked in self._crib.permissions.rules().naming(ref)}
        reached = [step for step in steps if step["matched"] or step["rule"] in (None, *naming)]
        return shape | {
            "word": word,
            "tone": tone,
            "sentence": sentence,
            "decidedBy": decided,
            "steps": [step | {"decides": _same(step, decided)} for step in reached],
            "others": [step for step in steps if step not in reached],
            "flip": self._flip(shape["flip"]),
        }

    def _asker(self, agent: str | None, form: Fields, source: Source) -> Principal:
        mode = form.choice("mode", MODES)
        if agent is None:
            return self._crib.owner(source, mode=mode)
        if not self._crib.permissions.has_agent(agent):
            raise NotFound("agent.unknown", f"There is no agent {agent!r}.")
        return self._crib.as_agent(agent, source, mode=mode)

    def _ref(self, text: str) -> ToolRef:
        ref = ToolRef.parse(text) or self._crib.permissions.named(text)
        if ref is None:
            raise InvalidRequest("request.invalid", f"{text!r} is not a tool.", "Write `server/tool`.")
        return ref

    def _flip(self, flip: Json) -> JsonObject | None:
        """The smallest change, with what a button could do of it: rules that stand in a file are not its business."""
        if flip is None:
            return None
        in_files = {rule.id for rule in self._crib.permissions.list() if rule.origin.file is not None}
        changes: list[JsonObject] = [{"rule": None, **change} for change in flip["changes"]]
        for change in changes:
            adds = change["kind"] == "add_rule" and change["change"].startswith("Add ")  # else it is an answer to give
            change["byButton"] = adds or (change["kind"] == "remove_rule" and change["rule"] not in in_files)
        return {**flip, "changes": changes, "word": ANSWERS[flip["verdict"]][0]}


def _step(step: JsonObject) -> JsonObject:
    """A step with its place in words."""
    origin: JsonObject = step.get("origin") or {}
    place = origin.get("file", origin.get("kind", ""))
    line = origin.get("line")
    return {"rule": None, **step, "place": f"{place}:{line}" if line else place}


def _same(step: JsonObject, decided: JsonObject) -> bool:
    return all(step[key] == decided[key] for key in ("step", "matched", "effect", "reason", "rule"))
