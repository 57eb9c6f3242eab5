"""Counts of recorded calls by hour, tool and caller: totals, error rates, and latency as quantiles.

Durations are kept as a histogram whose classes grow by an eighth, so quantiles are exact to about 6 %.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from toolcrib.model.json import Json, JsonObject, is_object

HOUR: Final = 3_600
_GROWTH: Final = math.log(1.125)
_SMALLEST: Final = 0.01
"""Durations below this many milliseconds share one class."""
_UNKNOWN: Final = ""
"""Stands for all tools that do not exist: callers choose these names, so they are not counted one by one."""


class CallKey(NamedTuple):
    """What calls are counted by. `app` is the caller (all sessions are one), `project` its directory."""

    tool: str
    agent: str | None
    app: str
    project: str | None


@dataclass(slots=True)
class Tally:
    """Calls, those that failed, and their durations."""

    calls: int = 0
    errors: int = 0
    durations: Counter[int] = field(default_factory=Counter[int])

    def add(self, other: "Tally") -> None:
        """Add all calls of another tally."""
        self.calls += other.calls
        self.errors += other.errors
        self.durations.update(other.durations)

    def quantile(self, share: float) -> float | None:
        """Return the duration in milliseconds that this share of the calls did not exceed; None without calls."""
        wanted = share * self.durations.total()
        for position in sorted(self.durations):
            wanted -= self.durations[position]
            if wanted <= 0:
                return round(_SMALLEST * math.exp(position * _GROWTH), 3)
        return None

    def to_json(self) -> JsonObject:
        """Return the counts, the error rate and two quantiles."""
        rate = self.errors / self.calls if self.calls else 0.0
        p50, p95 = self.quantile(0.5), self.quantile(0.95)
        return {"calls": self.calls, "errors": self.errors, "errorRate": round(rate, 4), "p50": p50, "p95": p95}


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Selects the calls that match all set fields. `server` matches every tool of a server."""

    tool: str | None = None
    server: str | None = None
    agent: str | None = None
    app: str | None = None
    project: str | None = None

    def matches(self, key: CallKey) -> bool:
        """Return whether calls with this key are selected."""
        return (
            self.tool in (None, key.tool)
            and (self.server is None or key.tool.startswith(f"{self.server}/"))
            and self.agent in (None, key.agent)
            and self.app in (None, key.app)
            and self.project in (None, key.project)
        )


EVERY_CALL: Final = CallFilter()


def start_of_hour(moment: datetime) -> datetime:
    """Return the hour that a moment is in; calls are counted by whole hours."""
    return moment.replace(minute=0, second=0, microsecond=0)


class CallStatistics:
    """Adds records one by one, in any order, and sums up what was added."""

    def __init__(self) -> None:
        self._hours: dict[int, dict[CallKey, Tally]] = {}

    def add(self, record: JsonObject) -> None:
        """Count an outcome record. Changes of the crib's own settings, and damaged records, are not calls."""
        server, tool, at = record.get("server"), record.get("tool"), record.get("at")
        if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(at, str):
            return
        if record.get("phase") != "outcome" or (server == "toolcrib" and "." in tool):
            return
        try:
            hour = int(datetime.fromisoformat(at).timestamp()) // HOUR
        except ValueError:
            return
        is_unknown = "refused" in record and record.get("definitionHash") is None
        name = _UNKNOWN if is_unknown else f"{server}/{tool}"
        tally = self._hours.setdefault(hour, {}).setdefault(_key(name, record), Tally())
        tally.calls += 1
        tally.errors += record.get("isError") is True
        duration = record.get("durationMs")
        if isinstance(duration, int | float) and duration > 0:  # a call that did not run took no time
            tally.durations[_position(duration)] += 1

    def forget(self, before: datetime) -> None:
        """Drop the hours before a moment."""
        oldest = int(before.timestamp()) // HOUR
        for hour in [hour for hour in self._hours if hour < oldest]:
            del self._hours[hour]

    def series(
        self, since: datetime, until: datetime, step: int, wanted: CallFilter = EVERY_CALL
    ) -> list[tuple[datetime, Tally]]:
        """Return one tally per step of this many hours, also for steps without calls."""
        first, last = (int(moment.timestamp()) // HOUR // step for moment in (since, until))
        tallies = {position: Tally() for position in range(first, last + 1)}
        for hour, _, tally in self._select(since, wanted):
            if hour // step in tallies:
                tallies[hour // step].add(tally)
        return [(datetime.fromtimestamp(each * step * HOUR, UTC), tally) for each, tally in tallies.items()]

    def total(self, since: datetime, wanted: CallFilter = EVERY_CALL) -> Tally:
        """Return the tally of all selected calls since the hour of a moment."""
        total = Tally()
        for _, _, tally in self._select(since, wanted):
            total.add(tally)
        return total

    def by_tool(self, since: datetime, wanted: CallFilter = EVERY_CALL) -> list[tuple[str, Tally]]:
        """Return tools that exist with their tallies, the most called first."""
        return [group for group in self._group(since, wanted, "tool") if group[0] != _UNKNOWN]

    def by_caller(self, since: datetime, wanted: CallFilter = EVERY_CALL) -> list[tuple[str, Tally]]:
        """Return agents, and apps without an agent, with their tallies, the busiest first."""
        return self._group(since, wanted, "caller")

    def values(self, since: datetime, field: str) -> list[str]:
        """Return the values of a field of `CallKey` that occur, the most frequent first."""
        counts = Counter[str]()
        for _, key, tally in self._select(since, EVERY_CALL):
            value = getattr(key, field)
            if value:
                counts[value] += tally.calls
        return [value for value, _ in counts.most_common()]

    def _group(self, since: datetime, wanted: CallFilter, by: str) -> list[tuple[str, Tally]]:
        groups: dict[str, Tally] = {}
        for _, key, tally in self._select(since, wanted):
            name = key.tool if by == "tool" else key.agent or key.app
            groups.setdefault(name, Tally()).add(tally)
        return sorted(groups.items(), key=lambda group: (-group[1].calls, group[0]))

    def _select(self, since: datetime, wanted: CallFilter) -> Iterator[tuple[int, CallKey, Tally]]:
        oldest = int(since.timestamp()) // HOUR
        for hour, tallies in self._hours.items():
            if hour >= oldest:
                for key, tally in tallies.items():
                    if wanted.matches(key):
                        yield hour, key, tally


def _key(tool: str, record: JsonObject) -> CallKey:
    principal: Json = record.get("principal")
    shape: JsonObject = principal if is_object(principal) else {}
    agent, project = shape.get("agent"), shape.get("cwd")
    return CallKey(
        tool,
        agent if isinstance(agent, str) else None,
        "session" if shape.get("kind") == "session" else str(shape.get("name") or "unknown"),
        project if isinstance(project, str) else None,
    )


def _position(milliseconds: float) -> int:
    return max(0, round(math.log(max(milliseconds, _SMALLEST) / _SMALLEST) / _GROWTH))
