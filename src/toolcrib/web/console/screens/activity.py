"""Activity: the audit log. Every filtered view has a URL, and facets count the matching calls.

One row is one call: its outcome or, while in flight, its intent. Facets count only the newest matching records, and the
page states that.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters
from toolcrib.web.console.forms import FormFields, read_query
from toolcrib.web.console.responses import Console, ScreenContent, route

FACETS: Final = {
    "decision": "Decision",
    "error": "Outcome",
    "server": "Server",
    "tool": "Tool",
    "agent": "Agent",
    "door": "Door",
    "session": "Session",
}
DECISIONS: Final = {"allow": "good", "ask": "warn", "deny": "alarm", "hidden": "alarm", "unknown": "soft"}
_FILTERS: Final = (*FACETS, "principal", "phase")
_LOOKED_AT: Final = 1_000
"""Records read for one page and counted by its facets."""
_SHOWN: Final = 50
_MOST_VALUES: Final = 8


def routes(console: Console) -> list[Route]:
    """Return the routes of the audit log, of one record, and of the chain check."""
    screen = ActivityScreen(console)
    return [
        route("/activity", screen.show),
        route("/activity/verify", screen.verify),
        route("/activity/{number:int}", screen.record),
    ]


class ActivityScreen:
    """The audit log: calls, callers and decisions."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._audit = console.crib.audit

    async def show(self, request: Request) -> Response:
        """List the newest matching calls. Return 204 if `seen`, the newest call on the page, is still the newest."""
        form = read_query(request)
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
        shown = ScreenContent("activity", "Activity", "activity.html", value, "parts/activity_rows.html", also)
        return await self._console.respond(request, shown)

    async def record(self, request: Request) -> Response:
        """Show one record and the others of the same call."""
        record = await self._audit.get(request.path_params["number"])
        value: JsonObject = {"record": _row(record), "whole": record, "why": _why(record)}
        title = f"Record {record['id']}"
        shown = ScreenContent("activity", title, "activity_record.html", value, also={"decisions": DECISIONS})
        return await self._console.respond(request, shown)

    async def verify(self, request: Request) -> Response:
        """Verify every record and every link of the hash chain."""
        checked = await self._audit.verify()
        value: JsonObject = {"ok": checked.ok, **checked.to_json()}
        shown = ScreenContent(
            "activity", "Log verification", "activity_verify.html", value, "parts/activity_verify.html"
        )
        return await self._console.respond(request, shown)

    async def _calls(self, chosen: Mapping[str, str], after: int | None) -> AsyncIterator[JsonObject]:
        """Yield one row per call. Later pages skip intents, because their outcomes are on an earlier page."""
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
    """Return the row of a record; a damaged record has only the fields that survived."""
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
    """Return how a call ended, as a word that is also a filter value."""
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
    """Return the URL of the access check for this call."""
    row = _row(record)
    if row["isChange"] or not row["tool"]:
        return None
    asked = {"tool": row["tool"], "agent": row["agent"], "source": row["source"], "mode": row["mode"]}
    return f"/access?{urlencode({key: value for key, value in asked.items() if value})}"


def _number(form: FormFields, name: str) -> int | None:
    text = form.text(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _url(query: Mapping[str, str]) -> str:
    return f"/activity?{urlencode(query)}" if query else "/activity"
