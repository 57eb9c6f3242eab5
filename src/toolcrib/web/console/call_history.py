"""The calls of the last month, counted from the audit log as far as it was read.

The log is read from its end, a bounded number of records per page view, so that the first view of a long log is quick;
later views read on. `is_complete` tells whether all of the month was counted.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import anyio
from markupsafe import Markup

from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.statistics import CallFilter, CallStatistics, Tally, start_of_hour
from toolcrib.model.json import JsonObject
from toolcrib.store.audit import Filters
from toolcrib.store.audit_lanes import lane_of
from toolcrib.web.console.plots import sparkline

DAYS: Final = 31
_USAGE_DAYS: Final = 7
_PAGE: Final = 250
"""Records per query: a few milliseconds of the event loop."""
_READ_AT_ONCE: Final = 10_000
"""Older records that one page view reads."""


class Usage(NamedTuple):
    """The calls of a server, tool or agent in the last week, with a sparkline of their number per day."""

    total: Tally
    spark: Markup

    def to_json(self) -> JsonObject:
        """Return the numbers for the JSON form of a page."""
        return {"days": _USAGE_DAYS, **self.total.to_json()}


class CallHistory:
    """Counts calls of the audit log once each."""

    def __init__(self, audit: Audit) -> None:
        self.statistics = CallStatistics()
        self.is_complete = False
        self._audit = audit
        self._newest: dict[int, int] = {}
        self._oldest: int | None = None
        self._lock = anyio.Lock()

    async def read_on(self) -> CallStatistics:
        """Count the calls that are new, then a bounded number of older ones."""
        async with self._lock:
            since = datetime.now(UTC) - timedelta(days=DAYS)
            self.statistics.forget(since)
            if self._oldest is not None:
                await self._read_new(since)
            if not self.is_complete:
                await self._read_older(since)
            return self.statistics

    async def usage(self, wanted: CallFilter) -> Usage:
        """Return the selected calls of the last week."""
        counted = await self.read_on()
        until = datetime.now(UTC)
        since = start_of_hour(until).replace(hour=0) - timedelta(days=_USAGE_DAYS - 1)
        days = [float(tally.calls) for _, tally in counted.series(since, until, 24, wanted)]
        return Usage(counted.total(since, wanted), sparkline(days, f"calls in each of {_USAGE_DAYS} days"))

    async def _read_new(self, since: datetime) -> None:
        known, after = dict(self._newest), None
        while True:
            records = await self._audit.find(Filters(phase="outcome", since=since, after=after, limit=_PAGE))
            fresh = [record for record in records if record["id"] > known.get(lane_of(record["id"]), 0)]
            self._add(fresh)
            if len(fresh) < _PAGE:
                return
            after = fresh[-1]["id"]

    async def _read_older(self, since: datetime) -> None:
        for _ in range(_READ_AT_ONCE // _PAGE):
            filters = Filters(phase="outcome", since=since, after=self._oldest, limit=_PAGE)
            records = await self._audit.find(filters)
            self._add(records)
            self._oldest = records[-1]["id"] if records else self._oldest or 0
            if len(records) < _PAGE:
                self.is_complete = True
                return

    def _add(self, records: list[JsonObject]) -> None:
        """Count records, and remember the newest of each lane: numbers of different lanes have no order in time."""
        for record in records:
            self.statistics.add(record)
            lane = lane_of(record["id"])
            self._newest[lane] = max(self._newest.get(lane, 0), record["id"])
