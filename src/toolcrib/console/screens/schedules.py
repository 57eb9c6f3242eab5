"""Schedules: in words, with their next runs, whether they could run, and what became of them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import asked, read
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.schedule_forms import MISSED_WORDS, OVERLAP_WORDS, UNITS, cadence_of, changed, filled, wanted
from toolcrib.console.screens.sessions import MODE_WORDS
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
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
_WORDS: Final = {"modes": MODE_WORDS, "units": UNITS, "overlaps": OVERLAP_WORDS, "misses": MISSED_WORDS}
"""What can be chosen in the form."""
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
        value: JsonObject = {"schedule": None, "form": filled(None), **await self._choices()}
        shown = Shown("schedules", "New schedule", "schedule_new.html", value, also=_WORDS)
        return await self._console.respond(request, shown)

    async def when(self, request: Request) -> Response:
        """What the times of a form mean, in words, before anything is saved."""
        value: JsonObject = {"words": None, "next": [], "wrong": None}
        try:
            cadence = cadence_of(asked(request))
            if cadence is not None:
                moments = following(checked(cadence), datetime.now(UTC), _NEXT)
                value |= {"words": in_words(cadence), "next": [each.isoformat() for each in moments]}
        except InvalidRequest as error:
            value["wrong"] = error.message
        shown = Shown("schedules", "When", "schedule_when.html", value, "parts/schedule_when.html")
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Make one; it is followed from now on."""
        new = await wanted(self._crib, await read(request))
        person, add = self._console.principal(request), self._schedules.add
        made = await self._crib.changes.make(
            "schedules.create", new.to_json(), lambda: add(new), by=person, door="console"
        )
        return back(f"/schedules/{made.id}")

    async def schedule(self, request: Request) -> Response:
        """One of them, with its history."""
        found = await self._schedules.get(request.path_params["id"])
        runs = await self._schedules.history(found.id)
        value: JsonObject = {
            "schedule": await self._row(found, runs[0] if runs else None),
            "history": [_NO_RUN | run.to_json() for run in runs],
            "form": filled(found),
            **await self._choices(),
        }
        also = {**_WORDS, "runs": RUN_WORDS}
        shown = Shown("schedules", found.name, "schedule.html", value, "parts/schedule_body.html", also)
        return await self._console.respond(request, shown)

    async def change(self, request: Request) -> Response:
        """Save what the form says; its time begins anew."""
        before = await self._schedules.get(request.path_params["id"])
        new = changed(before, await wanted(self._crib, await read(request)))
        person, put = self._console.principal(request), self._schedules.replace
        await self._crib.changes.make("schedules.change", new.to_json(), lambda: put(new), by=person, door="console")
        return back(f"/schedules/{before.id}")

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
