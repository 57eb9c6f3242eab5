"""Schedules: in words, with their next runs, whether they could run, and what became of them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.builtin.scheduling import Draft
from toolcrib.console.forms import Fields, asked, read
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.screens.sessions import MODE_WORDS
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import MODES
from toolcrib.model.schedules import Run, Schedule
from toolcrib.schedule.cadence import checked, following, in_words

RUN_WORDS: Final = {
    "running": ("Running", "good"),
    "completed": ("Done", "good"),
    "failed": ("Failed", "alarm"),
    "limit": ("Ended at its limit", "warn"),
    "interrupted": ("Interrupted", "warn"),
    "skipped": ("Left out", "soft"),
    "unknown": ("Unknown", "warn"),
}
"""What became of a run, in a person's word, and how grave it is."""
UNITS: Final = {"1": "minutes", "60": "hours", "1440": "days"}
_NEXT: Final = 3
_NO_RUN: Final[JsonObject] = dict.fromkeys(("sessionId", "endedAt", "reason"))
_NO_MEMBER: Final[JsonObject] = dict.fromkeys(("cron", "timezone", "everySeconds", "at", "model", "reason", "creator"))


def routes(console: Console) -> list[Route]:
    """The list, one schedule, and what is done to it."""
    screen = SchedulesScreen(console)
    return [
        route("/schedules", screen.show),
        route("/schedules", screen.create, "POST"),
        route("/schedules/-/new", screen.fresh),
        route("/schedules/-/when", screen.when),
        route("/schedules/{id}", screen.schedule),
        route("/schedules/{id}", screen.change, "POST"),
        route("/schedules/{id}/{action}", screen.act, "POST"),
    ]


class SchedulesScreen:
    """Agents that are given a prompt at set times."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib
        self._schedules = console.crib.schedules

    async def show(self, request: Request) -> Response:
        """All of them, by name."""
        last = await self._schedules.last_runs()
        rows = [await self._row(each, last.get(each.id)) for each in await self._schedules.list()]
        value: JsonObject = {"schedules": rows}
        shown = Shown(
            "schedules", "Schedules", "schedules.html", value, "parts/schedule_rows.html", {"runs": RUN_WORDS}
        )
        return await self._console.respond(request, shown)

    async def fresh(self, request: Request) -> Response:
        """A schedule to be made."""
        value: JsonObject = {"schedule": None, "form": _filled(None), **await self._choices()}
        shown = Shown(
            "schedules", "New schedule", "schedule_new.html", value, also={"modes": MODE_WORDS, "units": UNITS}
        )
        return await self._console.respond(request, shown)

    async def when(self, request: Request) -> Response:
        """What the times of a form mean, in words, before anything is saved."""
        value: JsonObject = {"words": None, "next": [], "wrong": None}
        try:
            cadence = _draft(asked(request)).cadence()
            if cadence is not None:
                moments = following(checked(cadence), datetime.now(UTC), _NEXT)
                value |= {"words": in_words(cadence), "next": [each.isoformat() for each in moments]}
        except InvalidRequest as error:
            value["wrong"] = error.message
        shown = Shown("schedules", "When", "schedule_when.html", value, "parts/schedule_when.html")
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Make one; it is followed from now on."""
        draft = await _checked(_draft(await read(request)))
        person, create = self._console.principal(request), self._crib.crew.scheduling.create
        made = await self._crib.changes.make(
            "schedules.create", _told(draft), lambda: create(person, draft), by=person, door="console"
        )
        return back(f"/schedules/{made.id}")

    async def schedule(self, request: Request) -> Response:
        """One of them, with its history."""
        found = await self._schedules.get(request.path_params["id"])
        runs = await self._schedules.history(found.id)
        value: JsonObject = {
            "schedule": await self._row(found, runs[0] if runs else None),
            "history": [_NO_RUN | run.to_json() for run in runs],
            "form": _filled(found),
            **await self._choices(),
        }
        also = {"modes": MODE_WORDS, "units": UNITS, "runs": RUN_WORDS}
        shown = Shown("schedules", found.name, "schedule.html", value, "parts/schedule_body.html", also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save what the form says; its time begins anew."""
        id: str = request.path_params["id"]
        draft = await _checked(_draft(await read(request)))
        person, change = self._console.principal(request), self._crib.crew.scheduling.change
        await self._crib.changes.make(
            "schedules.change", {"id": id, **_told(draft)}, lambda: change(person, id, draft), by=person, door="console"
        )
        return back(f"/schedules/{id}")

    async def act(self, request: Request) -> Response:
        """Pause it, resume it, run it now, or remove it."""
        id, action = request.path_params["id"], request.path_params["action"]
        work: Callable[[str], Awaitable[Schedule | Run]] | None = {
            "pause": self._schedules.pause,
            "resume": self._schedules.resume,
            "run": self._schedules.run_now,
            "remove": self._schedules.remove,
        }.get(action)
        if work is None:
            raise NotFound("route.unknown", f"There is nothing at {request.url.path}.")
        await self._schedules.get(id)
        person, make = self._console.principal(request), self._crib.changes.make
        await make(f"schedules.{action}", {"id": id}, lambda: work(id), by=person, door="console")
        return back("/schedules" if action == "remove" else f"/schedules/{id}")

    async def _row(self, schedule: Schedule, last: Run | None) -> JsonObject:
        first = schedule.next_at
        moments = [] if first is None else [first, *following(schedule.cadence, first, _NEXT - 1)]
        return {
            **_NO_MEMBER,
            **schedule.to_json(),
            "words": in_words(schedule.cadence),
            "next": [moment.isoformat(timespec="seconds") for moment in moments],
            "readiness": (await self._schedules.readiness(schedule)).to_json(),
            "lastRun": None if last is None else _NO_RUN | last.to_json(),
        }

    async def _choices(self) -> JsonObject:
        agents = [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()]
        return {"agents": agents, "cwd": str(self._console.place or "")}


def _draft(form: Fields) -> Draft:
    """What a form says; of the three ways to say when, the one that was chosen."""
    way = form.text("way")
    every, unit = form.number("every"), form.number("unit") or 1
    minutes, cost = form.number("maxMinutes"), form.number("maxCostUsd")
    return Draft(
        name=form.line("name"),
        agent=form.line("agent"),
        prompt=form.text("prompt") or None,
        cron=form.line("cron") if way == "cron" else None,
        timezone=form.line("timezone"),
        every_minutes=int(every * unit) if way == "every" and every is not None else None,
        at=_moment(form) if way == "at" else None,
        mode=form.choice("mode", MODES),
        tools=form.lines("tools"),
        max_minutes=None if minutes is None else int(minutes),
        max_cost_usd=cost,
        cwd=form.line("cwd"),
    )


def _moment(form: Fields) -> str | None:
    """The moment of a form, in the time zone beside it."""
    text = form.line("at")
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        zone = ZoneInfo(form.line("timezone") or "UTC")
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return text  # told as what it is where it is read
    return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).isoformat()


async def _checked(draft: Draft) -> Draft:
    if draft.cwd is not None and not (Path(draft.cwd).is_absolute() and await anyio.Path(draft.cwd).is_dir()):
        raise InvalidRequest("session.cwd", f"{draft.cwd} is not the full path of a directory.")
    return draft


def _told(draft: Draft) -> JsonObject:
    """What the record of a change says."""
    given = {"name": draft.name, "agentId": draft.agent, "prompt": draft.prompt, "cwd": draft.cwd, "mode": draft.mode}
    when = {"cron": draft.cron, "timezone": draft.timezone, "everyMinutes": draft.every_minutes, "at": draft.at}
    limits = {"maxMinutes": draft.max_minutes, "maxCostUsd": draft.max_cost_usd, "tools": list(draft.tools or ())}
    return {key: value for key, value in {**given, **when, **limits}.items() if value is not None}


def _filled(schedule: Schedule | None) -> JsonObject:
    """What the fields of the form hold."""
    cadence = schedule.cadence if schedule else None
    minutes = cadence.every_seconds // 60 if cadence and cadence.every_seconds else None
    unit = next((size for size in (1440, 60, 1) if minutes and minutes % size == 0), 60)
    at = cadence.at if cadence else None
    return {
        "way": "cron" if cadence is None or cadence.cron else "every" if minutes else "at",
        "cron": (cadence.cron if cadence else "0 9 * * 1-5") or "",
        "timezone": cadence.timezone if cadence else "UTC",
        "every": minutes // unit if minutes else "",
        "unit": str(unit),
        "at": at.astimezone(ZoneInfo(cadence.timezone if cadence else "UTC")).strftime("%Y-%m-%dT%H:%M") if at else "",
        "maxMinutes": int(schedule.limits.seconds // 60) if schedule and schedule.limits.seconds else "",
        "maxCostUsd": schedule.limits.cost_usd if schedule and schedule.limits.cost_usd else "",
        "tools": list(schedule.tools) if schedule else [],
    }
