"""Activity: the audit log. Every filtered view has a URL, and facets count the matching calls.

One row is one call: its outcome or, while in flight, its intent. The total and the facets count all matching calls,
except for outcomes that only the newest records tell: running and damaged.
"""

import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolcrib.gate.audit.statistics import start_of_hour
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import COUNTED, Filters
from toolcrib.web.console.forms import FormFields, read_query
from toolcrib.web.console.responses import Console, ScreenContent, back, route

FACETS: Final = {
    "decision": "Decision",
    "error": "Outcome",
    "server": "Server",
    "tool": "Tool",
    "agent": "Agent",
    "door": "Via",
    "session": "Session",
}
DECISIONS: Final = {"allow": "good", "ask": "warn", "deny": "alarm", "hidden": "alarm", "unknown": "soft"}
RANGES: Final = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last 24 hours", timedelta(days=1)),
    "week": ("Last 7 days", timedelta(days=7)),
    "month": ("Last 30 days", timedelta(days=30)),
}
_FILTERS: Final = (*FACETS, "principal", "phase", "range", "from", "to", "words")
_COLUMNS: Final = (
    "id", "at", "phase", "tool", "decision", "error", "durationMs", "name", "agent", "source", "mode", "session",
    "door",
)  # fmt: skip
"""The columns of the CSV export."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets run cells that begin with these."""
_LOOKED_AT: Final = 1_000
"""Records read for one page and counted by its facets."""
_SHOWN: Final = 50
_MOST_VALUES: Final = 8
_ENDED: Final = {"error": True, "ok": False}
"""Whether calls with this outcome failed."""
_Counts: TypeAlias = dict[str, Counter[str]]


def routes(console: Console) -> list[Route]:
    """Return the routes of the audit log, of one record, and of the chain check."""
    screen = ActivityScreen(console)
    return [
        route("/activity", screen.show),
        route("/activity/verify", screen.verify),
        route("/activity/export", screen.export),
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
        calls, is_whole = await self._calls(chosen, after)
        newest = calls[0]["id"] if calls else 0
        if form.line("seen") == str(newest) and request.headers.get("hx-request") == "true":
            return Response(status_code=204)
        rows = calls[:_SHOWN]
        counts, total = await self._counts(chosen, calls, is_whole=is_whole)
        value: JsonObject = {
            "calls": rows,
            "filters": chosen,
            "facets": [_facet(name, counts[name], chosen) for name in FACETS],
            "counted": len(calls) if total is None else total,
            "total": total,
            "changes": sum(number for tool, number in counts["tool"].items() if _is_change(*tool.split("/", 1))),
            "ranges": [_range(name, chosen) for name in RANGES],
            "exports": {form: f"/activity/export?{urlencode({**chosen, 'format': form})}" for form in ("csv", "jsonl")},
            "newest": newest,
            "older": _url(chosen | {"after": str(rows[-1]["id"])}) if len(calls) > _SHOWN else None,
            "isNewest": after is None,
            "follows": after is None and "words" not in chosen,
        }
        also = {"again": _url(chosen | {"seen": str(newest)}), "decisions": DECISIONS, "words": FACETS}
        shown = ScreenContent("activity", "Activity", "activity.html", value, "parts/activity_rows.html", also)
        return await self._console.respond(request, shown)

    async def export(self, request: Request) -> Response:
        """Export all matching records, newest first, as CSV or JSON Lines."""
        form = read_query(request)
        chosen = {name: text for name in _FILTERS if (text := form.line(name))}
        kind = form.line("format") or "jsonl"
        if kind not in ("csv", "jsonl"):
            raise InvalidRequest("request.invalid", f"{kind!r} is not a format.", "Choose csv or jsonl.")
        _filters(chosen, None)  # raises for invalid dates before the response starts
        media_type = "text/csv; charset=utf-8" if kind == "csv" else "application/x-ndjson"
        headers = {"content-disposition": f'attachment; filename="activity.{kind}"'}
        return StreamingResponse(self._export_lines(chosen, kind), media_type=media_type, headers=headers)

    async def _export_lines(self, chosen: Mapping[str, str], kind: str) -> AsyncIterator[bytes]:
        if kind == "csv":
            yield _csv_lines([_COLUMNS])
        after: int | None = None
        while records := await self._audit.find(_filters(chosen, after)):
            after = records[-1]["id"]
            rows = [(record, _row(record)) for record in records]
            rows = [(record, row) for record, row in rows if chosen.get("error") in (None, row["error"])]
            if kind == "csv":
                yield _csv_lines([[row[column] for column in _COLUMNS] for _, row in rows])
            else:
                yield b"".join(dumps(record) + b"\n" for record, _ in rows)

    async def _counts(
        self, chosen: Mapping[str, str], calls: list[JsonObject], *, is_whole: bool
    ) -> tuple[_Counts, int | None]:
        """Return the matching calls by facet and value, and their number; None if only the newest are known."""
        counts: _Counts = {name: Counter() for name in FACETS}
        is_ended = chosen.get("error") in (None, *_ENDED) and chosen.get("phase") in (None, "outcome")
        if is_whole or not is_ended:
            _add(counts, calls)
            return counts, len(calls) if is_whole else None
        _add(counts, [call for call in calls if call["error"] == "running"])
        running = counts["error"].total()
        rows, failed = await self._audit.tally(_filters(chosen, None))
        ended = sum(number for _, number in rows)
        for values, number in rows:
            row: JsonObject = dict(zip(COUNTED, values, strict=True))
            row["tool"] = _tool(row["server"], row["tool"])
            _add(counts, [row], number)
        counts["error"].update({"error": failed, "ok": ended - failed})
        return counts, running + ended

    async def record(self, request: Request) -> Response:
        """Show one record; the intent of a call that has ended leads to its outcome."""
        record = await self._audit.get(request.path_params["number"])
        if (outcome := await self._outcome_of(record)) is not None:
            return back(f"/activity/{outcome}")
        value: JsonObject = {"record": _row(record), "whole": record, "why": _access_url(record)}
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

    async def _outcome_of(self, record: JsonObject) -> int | None:
        """Return the number of the outcome of an intent, None for other records."""
        call, at = record.get("call"), record.get("at")
        if record.get("phase") != "intent" or not isinstance(call, str) or not isinstance(at, str):
            return None
        wanted = Filters(phase="outcome", since=datetime.fromisoformat(at), text=call, limit=10)
        found = await self._audit.find(wanted)
        return next((each["id"] for each in found if each.get("call") == call), None)

    async def _calls(self, chosen: Mapping[str, str], after: int | None) -> tuple[list[JsonObject], bool]:
        """Return one row per call, and whether every matching record was read.

        Later pages skip intents, because their outcomes are on an earlier page.
        """
        filters = _filters(chosen, after)
        if after is not None and filters.phase is None:
            filters = replace(filters, phase="outcome")
        seen: set[Json] = set()
        records = await self._audit.find(filters)
        rows: list[JsonObject] = []
        for record in records:
            call = record.get("call", record["id"])
            if call not in seen:
                seen.add(call)
                row = _row(record)
                if chosen.get("error") in (None, row["error"]):
                    rows.append(row)
        return rows, after is None and len(records) < _LOOKED_AT


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
        since=_since(chosen),
        until=_day(chosen["to"]) + timedelta(days=1) if "to" in chosen else None,
        after=after,
        limit=_LOOKED_AT,
        text=chosen.get("words"),
        failed=_ENDED.get(chosen.get("error", "")),
    )


def _since(chosen: Mapping[str, str]) -> datetime | None:
    if "from" in chosen:
        return _day(chosen["from"])
    if "range" not in chosen:
        return None
    if chosen["range"] not in RANGES:
        raise InvalidRequest(
            "request.invalid", f"{chosen['range']!r} is not a time range.", f"Use {', '.join(RANGES)}."
        )
    now = datetime.now(UTC)
    return (now if chosen["range"] == "hour" else start_of_hour(now)) - RANGES[chosen["range"]][1]


def _day(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise InvalidRequest("request.invalid", f"{text!r} is not a date.", "Use YYYY-MM-DD.") from None


def _range(name: str, chosen: Mapping[str, str]) -> JsonObject:
    others = {key: value for key, value in chosen.items() if key not in ("range", "from", "to")}
    is_chosen = chosen.get("range") == name
    return {
        "label": RANGES[name][0],
        "chosen": is_chosen,
        "url": _url(others if is_chosen else {**others, "range": name}),
    }


def _csv_lines(rows: Iterable[Iterable[Json]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _cell(value: Json) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _row(record: JsonObject) -> JsonObject:
    """Return the row of a record; a damaged record has only the fields that survived."""
    principal: Json = record.get("principal")
    shape: JsonObject = principal if is_object(principal) else {}
    server, tool = record.get("server"), record.get("tool")
    return {
        "id": record["id"],
        "at": record.get("at"),
        "phase": record.get("phase"),
        "server": server,
        "tool": _tool(server, tool),
        "agent": shape.get("agent"),
        "name": shape.get("name"),
        "source": shape.get("source"),
        "mode": shape.get("mode"),
        "session": shape.get("session"),
        "door": record.get("door"),
        "decision": record.get("decision"),
        "durationMs": record.get("durationMs"),
        "isChange": _is_change(server, tool),
        "error": _ending(record),
    }


def _ending(record: JsonObject) -> str:
    """Return how a call ended, as a word that is also a filter value."""
    if record.get("damaged"):
        return "damaged"
    if record.get("phase") != "outcome":
        return "running"
    return "error" if record.get("isError") else "ok"


def _is_change(server: Json, tool: Json = None) -> bool:
    """Return whether a record is of a change of the crib's settings instead of a call."""
    return server == "toolcrib" and "." in str(tool)


def _tool(server: Json, tool: Json) -> Json:
    return f"{server}/{tool}" if server else tool


def _add(counts: _Counts, calls: Iterable[JsonObject], number: int = 1) -> None:
    """Count calls, each this many times, by the facets that they have a value of."""
    for call in calls:
        for name, counter in counts.items():
            if value := call.get(name):
                counter[value] += number


def _facet(name: str, counts: Counter[str], chosen: Mapping[str, str]) -> JsonObject:
    counts = +counts
    return {
        "name": name,
        "values": [
            {"value": value, "count": number, "url": _url({**chosen, name: value}), "chosen": chosen.get(name) == value}
            for value, number in counts.most_common(_MOST_VALUES)
        ],
        "more": max(0, len(counts) - _MOST_VALUES),
        "without": _url({key: value for key, value in chosen.items() if key != name}) if name in chosen else None,
    }


def _access_url(record: JsonObject) -> str | None:
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
