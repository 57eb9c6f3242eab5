"""The rules: list, add, remove, and simulate a change against recorded calls."""

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.policy.rule_look_alikes import look_alikes
from toolcrib.gate.policy.rule_parser import MEMBERS
from toolcrib.gate.policy.rule_presets import find_rule_preset
from toolcrib.gate.policy.zones import is_inside
from toolcrib.host.reach import preset_shapes
from toolcrib.host.replay import Trial, replay
from toolcrib.host.rule_check import find_rule_findings
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import CONDITION_TESTS, RULE_EFFECTS, Rule
from toolcrib.model.principals import SOURCES
from toolcrib.model.problems import Problem
from toolcrib.web.console.forms import FormFields, read, read_query
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.tools import SOURCE_WORDS

EFFECTS: Final = {"allow": "good", "ask": "warn", "deny": "alarm"}
ORIGINS: Final = {"user": "added manually", "remembered": "remembered approval", "session": "session approval"}
"""Labels for the origins of rules that are not in a file."""
LENGTHS: Final = {"": "never", "1": "in 1 hour", "8": "in 8 hours", "168": "in 7 days"}
"""How long a rule is valid, by hours."""
_KEPT: Final = ("effect", "pattern", "agent", "source", "pointer", "test", "value", "reason", "hours")
_SHOWN: Final = 200
_NO_MEMBER: Final[JsonObject] = dict.fromkeys(
    ("reason", "createdAt", "expiresAt", "session", "definitionHash", "principal", "uses")
)


def routes(console: Console) -> list[Route]:
    """Return the routes of the rules."""
    screen = RulesScreen(console)
    return [
        route("/access/rules", screen.show),
        route("/access/rules", screen.add, "POST"),
        route("/access/rules/{id}/remove", screen.remove, "POST"),
        route("/access/presets/{id}", screen.switch_preset, "POST"),
        route("/access/simulate", screen.simulate),
    ]


class RulesScreen:
    """Lists and changes rules."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """List the rules, those from files first."""
        return await self._list(request, None)

    async def add(self, request: Request) -> Response:
        """Add a rule; it takes effect with the next call."""
        form = await read(request)
        person = self._console.principal(request)
        rule = await self._crib.permissions.draft(_read_rule(form), by=person.name)
        remember = self._crib.permissions.remember
        await self._crib.changes.make("rules.add", rule.to_json(), lambda: remember(rule), by=person, door="console")
        return back(_home(form.text("back")))

    async def remove(self, request: Request) -> Response:
        """Remove a rule that is not in a file; the page then offers to add it again."""
        form = await read(request)
        person = self._console.principal(request)
        rule = self._crib.permissions.get(request.path_params["id"])
        remove = self._crib.permissions.remove
        await self._crib.changes.make(
            "rules.remove", rule.to_json(), lambda: remove(rule.id), by=person, door="console"
        )
        return back(form.text("back")) if form.text("back").startswith("/access?") else await self._list(request, rule)

    async def switch_preset(self, request: Request) -> Response:
        """Switch a preset of rules on or off."""
        form = await read(request)
        person = self._console.principal(request)
        preset, on = find_rule_preset(request.path_params["id"]), form.text("on") == "true"
        switch = self._crib.permissions.switch_preset
        change: JsonObject = {"id": preset.id, "on": on}
        await self._crib.changes.make(
            "rules.preset", change, lambda: switch(preset, on=on, by=person.name), by=person, door="console"
        )
        return back("/access/rules")

    async def simulate(self, request: Request) -> Response:
        """Show how recorded calls would have been decided with a rule added or removed."""
        form = read_query(request)
        removed, pattern = form.line("remove"), form.line("pattern")
        value: JsonObject = {
            "asked": {key: form.text(key) for key in _KEPT} | {"remove": removed},
            "rule": _shape(self._crib.permissions.get(removed)) if removed else None,
            "simulation": None,
        }
        if removed or pattern:
            trial = Trial([_read_rule(form)] if pattern else [], [removed] if removed else [])
            found = (await replay(self._crib, trial)).to_json()
            value["simulation"] = found | {"differences": found["differences"][:_SHOWN]}
            value["differing"] = len(found["differences"])
        also = await self._words() | {"again": urlencode(value["asked"] | {"remove": removed or ""})}
        shown = ScreenContent("access", "Simulate a rule", "access_simulate.html", {"differing": 0, **value}, also=also)
        return await self._console.respond(request, shown)

    async def _list(self, request: Request, removed: Rule | None) -> Response:
        permissions = self._crib.permissions
        now = datetime.now(UTC)
        twins = look_alikes(permissions.list(), self._crib.catalog.at(None).tools)
        value: JsonObject = {
            "rules": [
                _shape(rule) | {"expired": _is_over(rule, now), "inProject": self._is_here(rule)}
                for rule in permissions.list()
            ],
            "problems": [each.to_json() for each in (*permissions.problems, *twins, *await self._findings())],
            "removed": None if removed is None else _members(removed),
            "presets": await preset_shapes(self._crib),
        }
        shown = ScreenContent("access", "Rules", "access_rules.html", value, also=await self._words())
        return await self._console.respond(request, shown)

    def _is_here(self, rule: Rule) -> bool | None:
        """Return whether a rule for projects applies to the chosen one; None if either is not restricted."""
        chosen = self._console.chosen_project
        if chosen is None or not rule.where.projects:
            return None
        return any(is_inside(chosen, path) for path in rule.where.projects)

    async def _findings(self) -> list[Problem]:
        return [Problem(each.code, each.message, each.fix) for each in await find_rule_findings(self._crib)]

    async def _words(self) -> JsonObject:
        return {
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "sources": SOURCE_WORDS,
            "effects": EFFECTS,
            "tests": CONDITION_TESTS,
            "lengths": LENGTHS,
        }


def _read_rule(form: FormFields) -> Json:
    """Return the rule of a form; `rule` holds a whole rule, as it was removed."""
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


def _conditions(form: FormFields) -> list[JsonObject] | None:
    pointer = form.line("pointer")
    if pointer is None:
        return None
    test = form.choice("test", CONDITION_TESTS) or "equals"
    value: Json = form.json("value") if test in ("equals", "range", "present") else form.text("value")
    return [{"pointer": pointer if pointer.startswith("/") else f"/{pointer}", "test": test, "value": value}]


def _shape(rule: Rule) -> JsonObject:
    origin = rule.origin
    place = f"{origin.file}:{origin.line}" if origin.line else origin.file or ORIGINS.get(origin.kind, origin.kind)
    absent: JsonObject = {"conditions": [], "where": {}, **_NO_MEMBER}
    bound = rule.principal.describe() if rule.principal is not None else None
    return absent | rule.to_json() | {"place": place, "inFile": origin.file is not None, "boundTo": bound}


def _members(rule: Rule) -> JsonObject:
    """Return the user-defined members of a rule, to add it again."""
    return {key: value for key, value in rule.to_json().items() if key in MEMBERS}


def _is_over(rule: Rule, now: datetime) -> bool:
    return rule.uses == 0 or (rule.expires_at is not None and rule.expires_at <= now)


def _home(to: str) -> str:
    """Return where a form redirects to: an access check, else the list of rules."""
    return to if to.startswith("/access?") else "/access/rules"
