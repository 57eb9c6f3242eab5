"""Schedules: cadence in words, next runs, readiness and history."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.schedules.cadence import checked, following, in_words
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.schedules import Run, Schedule
from toolcrib.web.console.forms import read, read_query
from toolcrib.web.console.plots import sparkline
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.schedule_forms import (
    MISSED_WORDS,
    OVERLAP_WORDS,
    UNITS,
    cadence_of,
    changed,
    filled,
    wanted,
)
from toolcrib.web.console.screens.sessions import MODE_WORDS

RUN_WORDS: Final = {
    "running": ("Running", "good"),
    "completed": ("Completed", "good"),
    "failed": ("Failed", "alarm"),
    "limit": ("Limit reached", "warn"),
    "interrupted": ("Interrupted", "warn"),
    "skipped": ("Skipped", "soft"),
    "unknown": ("Unknown", "warn"),
}
"""Per run state: label and tone."""
_WORDS: Final = {"modes": MODE_WORDS, "units": UNITS, "overlaps": OVERLAP_WORDS, "misses": MISSED_WORDS}
"""Labels of the choices in the form."""
_NEXT: Final = 3
_NO_RUN: Final[JsonObject] = dict.fromkeys(("sessionId", "endedAt", "reason"))
_NO_MEMBER: Final[JsonObject] = dict.fromkeys(("cron", "timezone", "everySeconds", "at", "model", "reason", "creator"))


def routes(console: Console) -> list[Route]:
    """Return the routes of schedules."""
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
    """Schedules: prompts that agents receive at set times."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib
        self._schedules = console.crib.schedules

    async def show(self, request: Request) -> Response:
        """List all schedules by name."""
        last = await self._schedules.last_runs()
        rows = [await self._row(each, last.get(each.id)) for each in await self._schedules.list()]
        value: JsonObject = {"schedules": rows}
        shown = ScreenContent(
            "schedules", "Schedules", "schedules.html", value, "parts/schedule_rows.html", {"runs": RUN_WORDS}
        )
        return await self._console.respond(request, shown)

    async def fresh(self, request: Request) -> Response:
        """Show the form of a new schedule."""
        value: JsonObject = {"schedule": None, "form": filled(None), **await self._choices()}
        shown = ScreenContent("schedules", "New schedule", "schedule_new.html", value, also=_WORDS)
        return await self._console.respond(request, shown)

    async def when(self, request: Request) -> Response:
        """Describe the cadence of an unsaved form, with its next runs."""
        value: JsonObject = {"words": None, "next": [], "wrong": None}
        try:
            cadence = cadence_of(read_query(request))
            if cadence is not None:
                moments = following(checked(cadence), datetime.now(UTC), _NEXT)
                value |= {"words": in_words(cadence), "next": [each.isoformat() for each in moments]}
        except InvalidRequest as error:
            value["wrong"] = error.message
        shown = ScreenContent("schedules", "When", "schedule_when.html", value, "parts/schedule_when.html")
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Create a schedule; it is active immediately."""
        new = await wanted(self._crib, await read(request))
        person, add = self._console.principal(request), self._schedules.add
        made = await self._crib.changes.make(
            "schedules.create", new.to_json(), lambda: add(new), by=person, door="console"
        )
        return back(f"/schedules/{made.id}")

    async def schedule(self, request: Request) -> Response:
        """Show one schedule with its history."""
        found = await self._schedules.get(request.path_params["id"])
        runs = await self._schedules.history(found.id)
        value: JsonObject = {
            "schedule": await self._row(found, runs[0] if runs else None),
            "history": [_NO_RUN | run.to_json() for run in runs],
            "form": filled(found),
            **await self._choices(),
        }
        durations = [_seconds(run) for run in reversed(runs)]
        spark = sparkline(durations, f"seconds of the last {len(runs)} runs") if len(runs) > 1 else None
        also = {**_WORDS, "runs": RUN_WORDS, "spark": spark}
        shown = ScreenContent("schedules", found.name, "schedule.html", value, "parts/schedule_body.html", also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save a schedule and restart its cadence."""
        before = await self._schedules.get(request.path_params["id"])
        new = changed(before, await wanted(self._crib, await read(request)))
        person, put = self._console.principal(request), self._schedules.replace
        await self._crib.changes.make("schedules.change", new.to_json(), lambda: put(new), by=person, door="console")
        return back(f"/schedules/{before.id}")

    async def act(self, request: Request) -> Response:
        """Pause, resume, run now or remove a schedule."""
        id, action = request.path_params["id"], request.path_params["action"]
        work: Callable[[str], Awaitable[Schedule | Run]] | None = {
            "pause": self._schedules.pause,
            "resume": self._schedules.resume,
            "run": self._schedules.run_now,
            "remove": self._schedules.remove,
        }.get(action)
        if work is None:
            raise NotFound("route.unknown", f"{request.url.path} does not exist.")
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


def _seconds(run: Run) -> float:
    return (run.ended_at - run.started_at).total_seconds() if run.ended_at is not None else 0.0
