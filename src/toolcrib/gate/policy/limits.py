"""Limits: how often, how fast and at what cost a session may use tools.

A limit counts calls or cost per tool, per server or per session, since the session began or within the last seconds.
Counters are in memory: code that resumes a session after a restart counts its recorded calls again. On a database that
nodes share, calls are counted there instead. The gate calls `take` before the call starts. Costs are counted once
known. Must never drop the counters of a running session while there is room for them, nor count a refused call.
"""

import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Literal, TypeAlias, get_args

from toolcrib.gate.policy.conditions import is_number
from toolcrib.gate.policy.fields import FieldFault, Members, lines_of_tables, list_of, one_of
from toolcrib.gate.policy.patterns import names, parts
from toolcrib.model.json import Json, dumps, is_array, is_object
from toolcrib.model.principals import SOURCES, Principal, Source
from toolcrib.model.problems import Problem
from toolcrib.model.servers import NO_NAMES, ServerNames
from toolcrib.model.tools import ToolRef
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.servers.syntax.document import SyntaxProblem
from toolcrib.servers.syntax.toml import parse

Each: TypeAlias = Literal["tool", "server", "session"]
MOST_SESSIONS = 10_000
"""Maximum number of sessions with counters. The longest idle one is evicted."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `calls` calls of tools matching `pattern`, counted per `each`.

    With `seconds` it is a rate: within any such span. `sources` are the sources it applies to; empty means all.
    """

    pattern: str = "*"
    each: Each = "tool"
    calls: int = 0
    seconds: float | None = None
    sources: tuple[Source, ...] = ()

    def binds(self, principal: Principal, ref: ToolRef, known: ServerNames = NO_NAMES) -> bool:
        """Return whether a call counts, under any name of its server."""
        if self.sources and principal.source not in self.sources:
            return False
        return names(self.pattern, ref) or any(
            names(self.pattern, ToolRef(other.name, ref.tool)) for other in known.others
        )

    def subject(self, ref: ToolRef) -> str:
        """Return what is counted, in words."""
        return {"tool": str(ref), "server": f"server {ref.server}", "session": "this session"}[self.each]

    def counted_as(self, ref: ToolRef, known: ServerNames = NO_NAMES) -> str:
        """Return the counter's key, which is the same under every name of a server's definition."""
        return self.subject(ToolRef(known.identity or ref.server, ref.tool))


_Key: TypeAlias = tuple[Limit, str]


class _Counter:
    """The usage of one limit by one session. Only uses within the span of a rate are stored."""

    __slots__ = ("_total", "_used")

    def __init__(self) -> None:
        self._used: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def add(self, at: float, amount: float, *, keep: bool) -> None:
        self._total += amount
        if keep:
            self._used.append((at, amount))

    def used(self, since: float) -> float:
        while self._used and self._used[0][0] <= since:
            self._total -= self._used.popleft()[1]
        return self._total

    def free_at(self, seconds: float) -> float:
        """Return when the oldest counted use expires."""
        return self._used[0][0] + seconds if self._used else 0.0


class Limits:
    """Counts the usage of sessions. `clock` must be monotonic. Without `limits` there is nothing to check or count."""

    def __init__(self, limits: Sequence[Limit] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = tuple(limits)
        self._clock = clock
        self._sessions: OrderedDict[str, defaultdict[_Key, _Counter]] = OrderedDict()
        self._shared: SharedCounts | None = None

    def share(self, counts: SharedCounts) -> None:
        """Count across all nodes of a shared database from now on."""
        self._shared = counts

    async def take(self, principal: Principal, ref: ToolRef, known: ServerNames = NO_NAMES) -> str | None:
        """Count a call unless a limit is reached; then return why it must not be made now."""
        if self._shared is not None:
            return await self._take_shared(self._shared, principal, ref, known)
        refusal = self.check(principal, ref, known)
        if refusal is None:
            self.count(principal, ref, known)
        return refusal

    async def _take_shared(
        self, counts: SharedCounts, principal: Principal, ref: ToolRef, known: ServerNames
    ) -> str | None:
        """Count a call at every limit it is bound by, and take it back where one is exceeded."""
        taken: list[str] = []
        for limit in self.limits:
            if not limit.binds(principal, ref, known):
                continue
            id, used = await counts.add(_shared_key(principal, limit, ref, known), 1.0, limit.seconds)
            taken.append(id)
            counter, now = _Counter(), self._clock()
            counter.add(now - used.age, used.amount - 1.0, keep=True)
            refusal = _refusal(limit, ref, counter, now)
            if refusal is not None:
                await counts.take_back(taken)
                return refusal
        return None

    def set(self, limits: Sequence[Limit]) -> None:
        """Replace the limits. The usage of unchanged ones is kept."""
        self.limits = tuple(limits)

    def check(self, principal: Principal, ref: ToolRef, known: ServerNames = NO_NAMES) -> str | None:
        """Return why this call must not be made now, in words a model can act on, or None.

        `known` are all names of the tool's server.
        """
        if not self.limits:
            return None
        now = self._clock()
        counters = self._of(principal)
        for limit in self.limits:
            if limit.binds(principal, ref, known):
                refusal = _refusal(limit, ref, counters[limit, limit.counted_as(ref, known)], now)
                if refusal is not None:
                    return refusal
        return None

    def count(self, principal: Principal, ref: ToolRef, known: ServerNames = NO_NAMES) -> None:
        """Count a call."""
        if not self.limits:
            return
        now = self._clock()
        counters = self._of(principal)
        for limit in self.limits:
            if limit.binds(principal, ref, known):
                counters[limit, limit.counted_as(ref, known)].add(now, 1.0, keep=limit.seconds is not None)

    def forget(self, session: str) -> None:
        """Drop the counters of a session that has ended."""
        self._sessions.pop(f"session {session}", None)

    def _of(self, principal: Principal) -> "defaultdict[_Key, _Counter]":
        counters = self._sessions.setdefault(principal.scope, defaultdict(_Counter))
        self._sessions.move_to_end(principal.scope)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return counters


@dataclass(frozen=True, slots=True)
class LimitsRead:
    """The limits of a file, and the problems in it."""

    limits: tuple[Limit, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_limits_file(text: str, file: str) -> LimitsRead:
    """Parse the `[[limits]]` of a TOML file."""
    try:
        raw = parse(text).value.get("limits", [])
    except SyntaxProblem as problem:
        message = f"The limits cannot be read: {problem.reason}."
        return LimitsRead(problems=(Problem("limit.invalid", message, file=file, line=problem.line),))
    lines = lines_of_tables(text, "limits")
    limits: list[Limit] = []
    problems: list[Problem] = []
    for number, entry in enumerate(raw if is_array(raw) else [raw]):
        faults: list[FieldFault] = []
        limit = _read(entry, faults)
        if limit is not None and not faults:
            limits.append(limit)
            continue
        message = " ".join(fault.message for fault in faults)
        problems.append(Problem("limit.invalid", f"This limit is ignored: {message}", file=file, line=lines(number)))
    return LimitsRead(tuple(limits), tuple(problems))


def _read(raw: Json, faults: list[FieldFault]) -> Limit | None:
    if not is_object(raw):
        faults.append(FieldFault("", "A limit must be a table, written `[[limits]]`."))
        return None
    members = Members(raw, [each.name for each in fields(Limit)], faults)
    pattern = members.take("pattern", _pattern, "`server/tool` with `*` for any")
    each = members.take("each", _EACH, "tool, server or session")
    calls = members.take("calls", _whole, "a whole number", needed=True)
    seconds = members.take("seconds", _amount, "a number of seconds above 0")
    sources = members.take("sources", list_of(_SOURCE), f"a list of {', '.join(SOURCES)}")
    return Limit(pattern or "*", each or "tool", calls or 0, seconds, sources or ())


_EACH: Callable[[Json], Each | None] = one_of(get_args(Each))
_SOURCE: Callable[[Json], Source | None] = one_of(SOURCES)


def _pattern(value: Json) -> str | None:
    return value if isinstance(value, str) and parts(value) is not None else None


def _whole(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _amount(value: Json) -> float | None:
    return float(value) if is_number(value) and 0 < value < float("inf") else None


def _refusal(limit: Limit, ref: ToolRef, counter: _Counter, now: float) -> str | None:
    used = counter.used(now - limit.seconds if limit.seconds is not None else float("-inf"))
    span = f"within {limit.seconds:g} s" if limit.seconds is not None else "in a session"
    if used < limit.calls:
        return None
    usage = f"{limit.subject(ref)} may be called {_times(limit.calls)} {span} and was called {_times(int(used))}."
    wait = max(0.0, counter.free_at(limit.seconds) - now) if limit.seconds is not None else None
    next_step = (
        "Continue without it, or ask the owner to raise the limit." if wait is None else f"Try again in {wait:.0f} s."
    )
    return f"Limit reached: {usage} {next_step}"


def _shared_key(principal: Principal, limit: Limit, ref: ToolRef, known: ServerNames) -> str:
    """Return the key of a count that all nodes share: the scope of the principal, the limit and what it counts."""
    counted = dumps([limit.pattern, limit.each, limit.seconds, limit.counted_as(ref, known)])
    return f"limit {principal.scope} {sha256(counted).hexdigest()}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
