"""Activity: the audit log. Every view is an address, with facets that count what is there.

One row is one call: its outcome or, while it runs, its intent. Facets count the newest records that fit, not all there
ever were, and the page says so.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.audit import Filters
from toolcrib.console.forms import Fields, asked
from toolcrib.console.respond import Console, Shown, route
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.tools import ToolRef

FACETS: Final = {
    "decision": "Decision",
    "error": "Ended",
    "server": "Server",
    "tool": "Tool",
    "agent": "Agent",
    "door": "Door",
    "session": "Session",
}
DECISIONS: Final = {"allow": "good", "ask": "warn", "deny": "alarm", "hidden": "alarm", "unknown": "soft"}
_FILTERS: Final = (*FACETS, "principal", "phase")
_LOOKED_AT: Final = 1_000
"""Records that are read for one page, and that its facets count."""
_SHOWN: Final = 50
_MOST_VALUES: Final = 8


def routes(console: Console) -> list[Route]:
    """The log, one record, and the check of the chain."""
    screen = ActivityScreen(console)
    return [
        route("/activity", screen.show),
        route("/activity/verify", screen.verify),
        route("/activity/{number:int}", screen.record),
    ]


class ActivityScreen:
    """What was called, by whom, and why it was allowed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._audit = console.crib.audit

    async def show(self, request: Request) -> Response:
        """The newest calls that fit; `seen` is the newest one that a page already has: without a newer one it stays."""
        form = asked(request)
        chosen = {name: text for name in _FILTERS if (text := form.line(name))}
        after = _number(form, "after")
        calls = [call async for call in self._calls(chosen, after)]
        newest = calls[0]["id"] if calls else 0
        if form.line("seen") == str(newest) and request.headers.get("hx-request") == "true":
            return Response(status_code=204)
        rows = calls[:_SHOWN]
        value: JsonObject = {
            "calls": rows,
            "filters": chosen,
            "facets": [_facet(name, calls, chosen) for name in FACETS],
            "counted": len(calls),
            "whole": len(calls) < _LOOKED_AT,
            "newest": newest,
            "older": _url(chosen | {"after": str(rows[-1]["id"])}) if len(calls) > _SHOWN else None,
            "isNewest": after is None,
        }
        also = {"again": _url(chosen | {"seen": str(newest)}), "decisions": DECISIONS, "words": FACETS}
        shown = Shown("activity", "Activity", "activity.html", value, "parts/activity_rows.html", also)
        return await self._console.respond(request, shown)

    async def record(self, request: Request) -> Response:
        """One record, and the others of the same call."""
        record = await self._audit.get(request.path_params["number"])
        value: JsonObject = {"record": _row(record), "whole": record, "why": _why(record)}
        title = f"Record {record['id']}"
        shown = Shown("activity", title, "activity_record.html", value, also={"decisions": DECISIONS})
        return await self._console.respond(request, shown)

    async def verify(self, request: Request) -> Response:
        """Check every record and every link of the chain."""
        checked = await self._audit.verify()
        value: JsonObject = {"ok": checked.ok, **checked.to_json()}
        shown = Shown("activity", "Check of the log", "activity_verify.html", value, "parts/activity_verify.html")
        return await self._console.respond(request, shown)

    async def _calls(self, chosen: Mapping[str, str], after: int | None) -> AsyncIterator[JsonObject]:
        """One row per call. Further pages leave intents out: their outcomes are on a page before."""
        filters = _filters(chosen, after)
        if after is not None and filters.phase is None:
            filters = replace(filters, phase="outcome")
        seen: set[Json] = set()
        for record in await self._audit.find(filters):
            call = record.get("call", record["id"])
            if call not in seen:
                seen.add(call)
                row = _row(record)
                if chosen.get("error") in (None, row["error"]):
                    yield row


def _filters(chosen: Mapping[str, str], after: int | None) -> Filters:
    server, tool = chosen.get("server"), chosen.get("tool")
    if tool is not None and (ref := ToolRef.parse(tool)) is not None:
        server, tool = ref
    return Filters(
        server,
        tool,
        agent=chosen.get("agent"),
        decision=chosen.get("decision"),
        phase=chosen.get("phase"),
        door=chosen.get("door"),
        principal=chosen.get("principal"),
        session=chosen.get("session"),
        after=after,
        limit=_LOOKED_AT,
    )


def _row(record: JsonObject) -> JsonObject:
    """What a list shows of a record; of a damaged one, what can still be told."""
    principal: Json = record.get("principal")
    who: JsonObject = principal if is_object(principal) else {}
    server, tool = record.get("server"), record.get("tool")
    return {
        "id": record["id"],
        "at": record.get("at"),
        "phase": record.get("phase"),
        "server": server,
        "tool": f"{server}/{tool}" if server else tool,
        "agent": who.get("agent"),
        "name": who.get("name"),
        "source": who.get("source"),
        "mode": who.get("mode"),
        "session": who.get("session"),
        "door": record.get("door"),
        "decision": record.get("decision"),
        "durationMs": record.get("durationMs"),
        "isChange": server == "toolcrib" and "." in str(tool),
        "error": _ending(record),
    }


def _ending(record: JsonObject) -> str:
    """How a call ended, in a word that is also a filter."""
    if record.get("damaged"):
        return "damaged"
    if record.get("phase") != "outcome":
        return "running"
    return "error" if record.get("isError") else "ok"


def _facet(name: str, calls: Iterable[JsonObject], chosen: Mapping[str, str]) -> JsonObject:
    counts = Counter(value for call in calls if (value := call[name]))
    return {
        "name": name,
        "values": [
            {"value": value, "count": number, "url": _url({**chosen, name: value}), "chosen": chosen.get(name) == value}
            for value, number in counts.most_common(_MOST_VALUES)
        ],
        "more": max(0, len(counts) - _MOST_VALUES),
        "without": _url({key: value for key, value in chosen.items() if key != name}) if name in chosen else None,
    }


def _why(record: JsonObject) -> str | None:
    """The question to Access that this call is about."""
    row = _row(record)
    if row["isChange"] or not row["tool"]:
        return None
    asked = {"tool": row["tool"], "agent": row["agent"], "source": row["source"], "mode": row["mode"]}
    return f"/access?{urlencode({key: value for key, value in asked.items() if value})}"


def _number(form: Fields, name: str) -> int | None:
    text = form.text(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _url(query: Mapping[str, str]) -> str:
    return f"/activity?{urlencode(query)}" if query else "/activity"
