"""Guardrails: how often, how fast and at what cost a session may use tools.

A limit counts calls or cost, apart for each tool, for each server or for the session as a whole, since the session
began or within the last seconds. Counters live in memory: whoever resumes a session after a restart counts its recorded
calls again. Above: the gate asks `check` and, in the same breath and before the call starts, tells `count`; what a
session costs is told as it becomes known. Below: `members`, `patterns`. It must never forget a running session's
counters while there is room for them, nor let a refused call count.
"""

import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from toolcrib.config.syntax.document import SyntaxProblem
from toolcrib.config.syntax.toml import parse
from toolcrib.model.json import Json, is_array, is_object
from toolcrib.model.principals import SOURCES, Principal, Source
from toolcrib.model.problems import Problem
from toolcrib.model.tools import ToolRef
from toolcrib.policy.conditions import is_number
from toolcrib.policy.members import Fault, Members, lines_of_tables, list_of, one_of
from toolcrib.policy.patterns import names, parts

Each: TypeAlias = Literal["tool", "server", "session"]
MOST_SESSIONS = 10_000
"""So many sessions are counted; the one that was idle longest gives way."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `calls` calls, or a cost of `budget` in US dollars, of what `pattern` names, apart for `each`.

    With `seconds` that is a rate: within any such span. `sources` are those it binds; none means all.
    """

    pattern: str = "*"
    each: Each = "tool"
    calls: int | None = None
    budget: float | None = None
    seconds: float | None = None
    sources: tuple[Source, ...] = ()

    def binds(self, principal: Principal, ref: ToolRef) -> bool:
        """Whether a call is one of those that are counted."""
        return (not self.sources or principal.source in self.sources) and names(self.pattern, ref)

    def subject(self, ref: ToolRef) -> str:
        """What is counted apart, in words."""
        return {"tool": str(ref), "server": f"server {ref.server}", "session": "this session"}[self.each]


_Key: TypeAlias = tuple[Limit, str]


class _Counter:
    """What one session has used of one limit: when, and how much. The span of a rate bounds what is kept."""

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
        """When the oldest use that counts will no longer do."""
        return self._used[0][0] + seconds if self._used else 0.0


class Limits:
    """Counts what sessions use. `clock` gives seconds that never go back."""

    def __init__(self, limits: Sequence[Limit] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = tuple(limits)
        self._clock = clock
        self._sessions: OrderedDict[str, defaultdict[_Key, _Counter]] = OrderedDict()

    def set(self, limits: Sequence[Limit]) -> None:
        """These count from now on; what was used of those that stay is remembered."""
        self._limits = tuple(limits)

    def check(self, principal: Principal, ref: ToolRef) -> str | None:
        """Why this call must not be made now, in words the model can act on; None if it may."""
        if not self._limits:
            return None
        now = self._clock()
        counters = self._of(principal)
        for limit in self._limits:
            if limit.binds(principal, ref):
                refusal = _refusal(limit, ref, counters[limit, limit.subject(ref)], now)
                if refusal is not None:
                    return refusal
        return None

    def count(self, principal: Principal, ref: ToolRef, *, calls: int = 1, cost: float = 0.0) -> None:
        """This call is being made; or, with no calls, it turned out to cost this much."""
        if not self._limits:
            return
        now = self._clock()
        counters = self._of(principal)
        for limit in self._limits:
            if limit.binds(principal, ref):
                amount = float(calls) if limit.calls is not None else cost
                counters[limit, limit.subject(ref)].add(now, amount, keep=limit.seconds is not None)

    def forget(self, session: str) -> None:
        """The session is over for good."""
        self._sessions.pop(f"session {session}", None)

    def _of(self, principal: Principal) -> "defaultdict[_Key, _Counter]":
        name = f"session {principal.session}" if principal.session else f"{principal.kind} {principal.name}"
        counters = self._sessions.setdefault(name, defaultdict(_Counter))
        self._sessions.move_to_end(name)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return counters


@dataclass(frozen=True, slots=True)
class LimitsRead:
    """The limits of a file, and what is wrong in it."""

    limits: tuple[Limit, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_limits_file(text: str, file: str) -> LimitsRead:
    """The `[[limits]]` of a TOML file."""
    try:
        raw = parse(text).value.get("limits", [])
    except SyntaxProblem as problem:
        message = f"The limits cannot be read: {problem.reason}."
        return LimitsRead(problems=(Problem("limit.invalid", message, file=file, line=problem.line),))
    lines = lines_of_tables(text, "limits")
    limits: list[Limit] = []
    problems: list[Problem] = []
    for number, entry in enumerate(raw if is_array(raw) else [raw]):
        faults: list[Fault] = []
        limit = _read(entry, faults)
        if limit is not None and not faults:
            limits.append(limit)
            continue
        message = " ".join(fault.message for fault in faults)
        problems.append(Problem("limit.invalid", f"This limit is not used: {message}", file=file, line=lines(number)))
    return LimitsRead(tuple(limits), tuple(problems))


def _read(raw: Json, faults: list[Fault]) -> Limit | None:
    if not is_object(raw):
        faults.append(Fault("", "A limit must be a table, written `[[limits]]`."))
        return None
    members = Members(raw, [each.name for each in fields(Limit)], faults)
    pattern = members.take("pattern", _pattern, "`server/tool` with `*` for any")
    each = members.take("each", _EACH, "tool, server or session")
    calls = members.take("calls", _whole, "a whole number")
    budget = members.take("budget", _amount, "an amount of US dollars")
    seconds = members.take("seconds", _amount, "a number of seconds above 0")
    sources = members.take("sources", list_of(_SOURCE), f"a list of {', '.join(SOURCES)}")
    if (calls is None) is (budget is None):
        members.wrong("calls", "or `budget` must be given, and not both.")
    return Limit(pattern or "*", each or "tool", calls, budget, seconds, sources or ())


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
    if limit.calls is not None:
        if used < limit.calls:
            return None
        said = f"{limit.subject(ref)} may be called {_times(limit.calls)} {span} and was called {_times(int(used))}."
    elif limit.budget is not None and used >= limit.budget:
        said = f"{limit.subject(ref)} may cost {limit.budget:g} USD {span} and has cost {used:.2f} USD."
    else:
        return None
    wait = max(0.0, counter.free_at(limit.seconds) - now) if limit.seconds is not None else None
    then = "Do without it, or ask the owner for more." if wait is None else f"Try again in {wait:.0f} s."
    return f"Limit reached: {said} {then}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
