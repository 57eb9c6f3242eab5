"""The rules: where each stands, adding and removing them, and what another rule would have changed in the past."""

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import Fields, asked, read
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.screens.agent_tools import SOURCE_WORDS
from toolcrib.host.replay import Trial, replay
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import CONDITION_TESTS, RULE_EFFECTS, Rule
from toolcrib.model.principals import SOURCES
from toolcrib.policy.reading import MEMBERS

EFFECTS: Final = {"allow": "good", "ask": "warn", "deny": "alarm"}
ORIGINS: Final = {"user": "added by hand", "remembered": "your answer", "session": "your answer, in one session"}
"""Where a rule comes from that stands in no file."""
LENGTHS: Final = {"": "for good", "1": "for an hour", "8": "for 8 hours", "168": "for a week"}
"""How long a rule counts, by hours."""
_KEPT: Final = ("effect", "pattern", "agent", "source", "pointer", "test", "value", "reason", "hours")
_SHOWN: Final = 200
_NO_MEMBER: Final[JsonObject] = dict.fromkeys(("reason", "createdAt", "expiresAt", "session", "definitionHash"))


def routes(console: Console) -> list[Route]:
    """The list, and what is done to it."""
    screen = RulesScreen(console)
    return [
        route("/access/rules", screen.show),
        route("/access/rules", screen.add, "POST"),
        route("/access/rules/{id}/remove", screen.remove, "POST"),
        route("/access/simulate", screen.simulate),
    ]


class RulesScreen:
    """All rules."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """The rules, those of files first."""
        return await self._list(request, None)

    async def add(self, request: Request) -> Response:
        """Add a rule; it counts from the next call on."""
        form = await read(request)
        person = self._console.principal(request)
        rule = await self._crib.permissions.draft(_written(form), by=person.name)
        remember = self._crib.permissions.remember
        await self._crib.changes.make("rules.add", rule.to_json(), lambda: remember(rule), by=person, door="console")
        return back(_home(form.text("back")))

    async def remove(self, request: Request) -> Response:
        """Remove one that stands in no file; what is shown then can add it again."""
        form = await read(request)
        person = self._console.principal(request)
        rule = self._crib.permissions.get(request.path_params["id"])
        remove = self._crib.permissions.remove
        await self._crib.changes.make(
            "rules.remove", rule.to_json(), lambda: remove(rule.id), by=person, door="console"
        )
        return back(form.text("back")) if form.text("back").startswith("/access?") else await self._list(request, rule)

    async def simulate(self, request: Request) -> Response:
        """What recorded calls would have come to with one more rule, or without one."""
        form = asked(request)
        removed, pattern = form.line("remove"), form.line("pattern")
        value: JsonObject = {
            "asked": {key: form.text(key) for key in _KEPT} | {"remove": removed},
            "rule": _shape(self._crib.permissions.get(removed)) if removed else None,
            "simulation": None,
        }
        if removed or pattern:
            trial = Trial([_written(form)] if pattern else [], [removed] if removed else [])
            found = (await replay(self._crib, trial)).to_json()
            value["simulation"] = found | {"differences": found["differences"][:_SHOWN]}
            value["differing"] = len(found["differences"])
        also = await self._words() | {"again": urlencode(value["asked"] | {"remove": removed or ""})}
        shown = Shown("access", "Try a rule on the past", "access_simulate.html", {"differing": 0, **value}, also=also)
        return await self._console.respond(request, shown)

    async def _list(self, request: Request, removed: Rule | None) -> Response:
        permissions = self._crib.permissions
        now = datetime.now(UTC)
        value: JsonObject = {
            "rules": [_shape(rule) | {"expired": _is_over(rule, now)} for rule in permissions.list()],
            "problems": [problem.to_json() for problem in permissions.problems],
            "removed": None if removed is None else _members(removed),
        }
        shown = Shown("access", "Rules", "access_rules.html", value, also=await self._words())
        return await self._console.respond(request, shown)

    async def _words(self) -> JsonObject:
        return {
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "sources": SOURCE_WORDS,
            "effects": EFFECTS,
            "tests": CONDITION_TESTS,
            "lengths": LENGTHS,
        }


def _written(form: Fields) -> Json:
    """The rule that a form means; `rule` holds one whole, as it was removed."""
    whole = form.json_object("rule")
    if whole is not None:
        return whole
    line = form.line("line")
    if line is not None:
        effect, _, pattern = line.partition(" ")
        return {"effect": effect, "pattern": pattern}
    rule: JsonObject = {"effect": form.choice("effect", RULE_EFFECTS), "pattern": form.line("pattern")}
    where = {"agents": form.all("agent"), "sources": [each for each in form.all("source") if each in SOURCES]}
    hours = form.number("hours")
    optional: JsonObject = {
        "reason": form.line("reason"),
        "where": {key: values for key, values in where.items() if values} or None,
        "conditions": _conditions(form),
        "expiresAt": None
        if hours is None
        else (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds"),
    }
    return rule | {key: value for key, value in optional.items() if value is not None}


def _conditions(form: Fields) -> list[JsonObject] | None:
    pointer = form.line("pointer")
    if pointer is None:
        return None
    test = form.choice("test", CONDITION_TESTS) or "equals"
    value: Json = form.text("value") if test in ("glob", "regex") else form.json("value")
    return [{"pointer": pointer if pointer.startswith("/") else f"/{pointer}", "test": test, "value": value}]


def _shape(rule: Rule) -> JsonObject:
    origin = rule.origin
    place = f"{origin.file}:{origin.line}" if origin.line else origin.file or ORIGINS.get(origin.kind, origin.kind)
    absent: JsonObject = {"conditions": [], "where": {}, **_NO_MEMBER}
    return absent | rule.to_json() | {"place": place, "inFile": origin.file is not None}


def _members(rule: Rule) -> JsonObject:
    """What a person said in a rule, to be said again."""
    return {key: value for key, value in rule.to_json().items() if key in MEMBERS}


def _is_over(rule: Rule, now: datetime) -> bool:
    return rule.expires_at is not None and rule.expires_at <= now


def _home(to: str) -> str:
    """Where a form leads back to: to a question of this screen, else to the list."""
    return to if to.startswith("/access?") else "/access/rules"
