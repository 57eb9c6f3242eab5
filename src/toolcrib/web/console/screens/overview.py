"""The start page: what waits, what runs, what is wrong, and the calls of a day, week or month as plots.

Calls are counted from the audit log, from the full hour at which the range begins; so the first bar of a plot may be
partial, like the last. The filter by project, agent and app is part of the address.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.base.processes.memory import measure_sessions
from toolcrib.gate.audit.statistics import CallFilter, CallStatistics, Tally, start_of_hour
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import Session
from toolcrib.model.tools import ToolRef
from toolcrib.store.sessions import SessionFilter
from toolcrib.web.console import plots
from toolcrib.web.console.forms import read_query
from toolcrib.web.console.render import seconds
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.console.screens.servers.list import ServersScreen
from toolcrib.web.console.screens.sessions import STATES
from toolcrib.web.tool_costs import with_offers


class Range(NamedTuple):
    """A choice of time: its label, its length in hours, and the hours of one bar."""

    label: str
    hours: int
    step: int


RANGES: Final = {"day": Range("Day", 24, 1), "week": Range("Week", 24 * 7, 6), "month": Range("Month", 24 * 30, 24)}
_FILTERS: Final = ("project", "agent", "app")
_TOP: Final = 8
_COUNTED_SESSIONS: Final = 1_000
_AT_WORK: Final = ("starting", "running", "waiting")
_MEGABYTE: Final = 1024 * 1024


def routes(console: Console) -> list[Route]:
    """Return the routes of the start page and of its fragment."""
    screen = OverviewScreen(console)
    return [route("/", screen.show), route("/overview", screen.body)]


class OverviewScreen:
    """Shows what is going on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._servers = ServersScreen(console)

    async def show(self, request: Request) -> Response:
        """Show the whole page, with the list of servers below."""
        servers = await self._servers.content()
        value, also = await self._summary(request)
        shown = ScreenContent("overview", "Overview", "overview.html", {**servers.value, **value}, servers.part, also)
        return await self._console.respond(request, shown)

    async def body(self, request: Request) -> Response:
        """Show the summary alone, to refresh it."""
        value, also = await self._summary(request)
        shown = ScreenContent("overview", "Overview", "overview.html", value, "parts/overview_body.html", also)
        if request.headers.get("hx-request") != "true":
            return await self.show(request)
        return await self._console.respond(request, shown)

    async def _summary(self, request: Request) -> tuple[JsonObject, JsonObject]:
        form = read_query(request)
        name = form.line("range") or "day"
        if name not in RANGES:
            raise InvalidRequest("request.invalid", f"{name!r} is not a time range.", f"Use {', '.join(RANGES)}.")
        chosen = {key: text for key in _FILTERS if (text := form.line(key))}
        wanted, shown = CallFilter(**chosen), RANGES[name]
        counted = await self._console.history.read_on()
        until = datetime.now(UTC)
        since = start_of_hour(until) - timedelta(hours=shown.hours)
        series = counted.series(since, until, shown.step, wanted)
        sessions = await self._console.crib.sessions.list(SessionFilter(limit=_COUNTED_SESSIONS))
        costs = _costs(sessions, [at for at, _ in series], shown.step, chosen)
        value: JsonObject = {
            "range": name,
            "ranges": [_range(each, name, chosen) for each in RANGES],
            "filters": chosen,
            "choices": {key: _choices(counted, since, key, chosen, name) for key in _FILTERS},
            "isComplete": self._console.history.is_complete,
            "waiting": await self._console.waiting(),
            "atWork": [_session(each) for each in sessions if each.state in _AT_WORK],
            "summary": counted.total(since, wanted).to_json() | {"costUsd": round(sum(costs), 4)},
            "series": [
                {"at": at.isoformat(), **tally.to_json(), "costUsd": cost}
                for (at, tally), cost in zip(series, costs, strict=True)
            ],
            "topTools": [self._tool(each) for each in counted.by_tool(since, wanted)[:_TOP]],
            "topCallers": [_named_tally(each) for each in counted.by_caller(since, wanted)[:_TOP]],
            "apps": await self._apps(),
        }
        value["saved"] = await self._saved_by_sharing(len(value["apps"]))
        return value, {"plots": _plots(value["series"]), "states": STATES, "again": _url({"range": name, **chosen})}

    def _tool(self, group: tuple[str, Tally]) -> JsonObject:
        """Return a tool with its tally, and whether it has a page: reads of resources and removed tools have none."""
        gate, ref = self._console.crib.gate, ToolRef.parse(group[0])
        has_page = ref is not None and gate.find_visible(self._console.crib.owner(source="web"), ref)[0] is not None
        return {**_named_tally(group), "hasPage": has_page}

    async def _apps(self) -> list[JsonObject]:
        """Return the connected apps with what each receives."""
        crib = self._console.crib
        rows: list[JsonObject] = []
        for app in await with_offers(crib, await crib.clients.list(crib.settings.default_cwd)):
            for connection in app["connections"]:
                offers = {each["tools"]: each for each in connection["offers"]}
                offer = offers.get(connection["tools"], offers["all"])
                title = f"{app['title']} as {connection['agent']}" if connection["agent"] else app["title"]
                received = {"tools": offer["definitions"], "tokens": offer["tokens"]}
                rows.append({"name": title, "client": app["client"], **received})
        return rows

    async def _saved_by_sharing(self, apps: int) -> JsonObject | None:
        """Return the processes and memory that sharing saves: each app would start every server for itself."""
        statuses = await self._console.crib.upstreams.list(self._console.place)
        leaders = {each.link.pid for each in statuses if each.link is not None and each.link.pid}
        if apps < 2 or not leaders:
            return None
        measured = await anyio.to_thread.run_sync(measure_sessions, leaders)
        processes, memory = measured or (len(leaders), 0)
        return {
            "apps": apps,
            "servers": len(leaders),
            "processes": (apps - 1) * processes,
            "megabytes": (apps - 1) * memory // _MEGABYTE,
        }


def _costs(sessions: list[Session], steps: list[datetime], hours: int, chosen: Mapping[str, str]) -> list[float]:
    """Return the cost per step, of sessions by the time of their last turn."""
    sums = defaultdict[int, float](float)
    for session in sessions:
        if chosen.get("agent") in (None, session.agent) and chosen.get("project") in (None, session.cwd):
            sums[int((session.updated_at - steps[0]).total_seconds()) // (3_600 * hours)] += session.spent.cost_usd
    is_other_app = chosen.get("app") not in (None, "session")
    return [0.0 if is_other_app else round(sums[index], 4) for index in range(len(steps))]


def _plots(series: list[JsonObject]) -> list[JsonObject]:
    """Return the plots with their highest values; cost only if there was any."""
    calls, errors, costs = ([float(each[name]) for each in series] for name in ("calls", "errors", "costUsd"))
    latency = [[each["p50"] for each in series], [each["p95"] for each in series]]
    slowest = max([each["p95"] or 0 for each in series], default=0)
    drawn: list[JsonObject] = [
        {
            "title": "Calls, failed ones in red",
            "highest": f"{max(calls):,.0f}",
            "svg": plots.bars(calls, errors, f"{sum(calls):,.0f} calls, {sum(errors):,.0f} failed"),
        },
        {
            "title": "Latency: p50 and p95",
            "highest": seconds(slowest),
            "svg": plots.lines(latency, f"95 % of the calls within {seconds(slowest)}"),
        },
    ]
    if any(costs):
        svg = plots.bars(costs, [0.0] * len(costs), f"{sum(costs):,.4f} USD")
        drawn.append({"title": "Cost of sessions in USD", "highest": f"{max(costs):,.4f}", "svg": svg})
    return drawn


def _named_tally(group: tuple[str, Tally]) -> JsonObject:
    return {"name": group[0], **group[1].to_json()}


def _session(session: Session) -> JsonObject:
    return {
        "id": session.id,
        "title": session.title or session.agent or session.id,
        "state": session.state,
        "updatedAt": session.updated_at.isoformat(),
    }


def _range(name: str, chosen_range: str, chosen: Mapping[str, str]) -> JsonObject:
    return {"label": RANGES[name].label, "chosen": name == chosen_range, "url": _url({"range": name, **chosen})}


def _choices(
    counted: CallStatistics, since: datetime, field: str, chosen: Mapping[str, str], name: str
) -> list[JsonObject]:
    others = {key: value for key, value in chosen.items() if key != field}
    found = counted.values(since, field)
    if field in chosen and chosen[field] not in found:
        found.append(chosen[field])
    return [
        {
            "value": value,
            "chosen": chosen.get(field) == value,
            "url": _url({"range": name, **others, **({} if chosen.get(field) == value else {field: value})}),
        }
        for value in found[:_TOP]
    ]


def _url(query: Mapping[str, str]) -> str:
    given = {key: value for key, value in query.items() if (key, value) != ("range", "day")}
    return f"/?{urlencode(given)}" if given else "/"
