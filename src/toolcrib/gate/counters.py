"""Counters of calls by server, tool and outcome, kept in memory since the start of the crib.

An update is one dictionary look-up at the end of a call. The number of series is bounded: names that no tool has, and
names beyond the bound, share one series.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from itertools import accumulate
from typing import Final, Generic, TypeAlias, TypeVar

from toolcrib.model.observing import CallEnd, CallEnding, Trace
from toolcrib.model.tools import ToolRef

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets in seconds, from the semantic conventions for MCP."""
MOST_SERIES: Final = 10_000
UNNAMED: Final = ToolRef("", "")
"""The reference under which unknown tools are counted: their names are unbounded."""

Key = TypeVar("Key", bound=Hashable)
CallKey: TypeAlias = tuple[ToolRef, CallEnding]


class Series:
    """Durations of the calls of one series."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        """Number of calls per bucket, not cumulative; the last one has no upper bound."""
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """The number of calls."""
        return sum(self.buckets)

    def add(self, seconds: float) -> None:
        """Count a call."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def merge(self, other: "Series") -> None:
        """Add the calls of another series."""
        self.buckets = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds

    def cumulative(self) -> list[int]:
        """Return the number of calls up to each bound, and of all calls."""
        return list(accumulate(self.buckets))


class SeriesTable(dict[Key, Series], Generic[Key]):
    """Series by key. Beyond `MOST_SERIES`, new keys share the series of `rest`."""

    def __init__(self, rest: Key) -> None:
        super().__init__()
        self._rest = rest

    def __missing__(self, key: Key) -> Series:
        if len(self) >= MOST_SERIES:
            key = self._rest
        return self.setdefault(key, Series())


def counted_ref(call: CallEnd) -> ToolRef:
    """Return the reference to count a call under. A refused call may name tools and servers that do not exist."""
    return call.ref if call.tool is not None or call.ending != "refused" else UNNAMED


class CallCounters:
    """Observer that counts calls."""

    def __init__(self) -> None:
        self.calls = SeriesTable[CallKey]((UNNAMED, "ok"))
        self.refused = Counter[str]()
        """Number of refused calls by error code."""

    def started(self, call_id: str, trace: Trace | None, *, to_upstream: bool) -> Trace | None:
        """Return the caller's trace unchanged: nothing is counted before the end."""
        return trace

    def ended(self, call: CallEnd) -> None:
        """Count a call."""
        if call.ending == "refused" and call.code is not None:
            self.refused[call.code] += 1
        self.calls[counted_ref(call), call.ending].add(call.duration_ms / 1000)
