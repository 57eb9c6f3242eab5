"""Simulation: how recorded calls would be decided under other rules.

Each call in the audit is decided twice, with the current and with the changed rules, for its recorded principal and the
current definition of its tool. Differences are reported. Records contain arguments without secrets and truncated, so a
difference that depends on such arguments is marked as uncertain.

Must never call or record anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.json import Json, JsonObject, digest, is_object
from toolcrib.model.marks import NO_MARKS, HeldMarks, Mark, MarkingCall
from toolcrib.model.policy import Decision, DecisionStep, Verdict
from toolcrib.model.principals import MODES, SOURCES, Principal
from toolcrib.model.tools import Tool, ToolRef

FindTool = Callable[[ToolRef], Tool | None]
FindGrants = Callable[[Principal], Grants]
_Side: TypeAlias = tuple[Rules, Grants]
FindMarks = Callable[[Principal, Tool], tuple[str, tuple[Mark, ...]]]
FindPaths = Callable[[Principal, ToolRef, JsonObject], tuple[TouchedPath, ...] | None]


@dataclass(frozen=True, slots=True)
class SimulatedDifference:
    """A call that would be decided differently. `recorded` is the original decision."""

    record: int
    at: str
    ref: ToolRef
    principal: Principal
    recorded: str
    before: Verdict
    after: Verdict
    decided_by: DecisionStep
    uncertain: bool

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {
            "auditId": self.record,
            "at": self.at,
            "ref": str(self.ref),
            "principal": self.principal.to_json(),
            "recorded": self.recorded,
            "before": self.before,
            "after": self.after,
            "decidedBy": self.decided_by.to_json(),
            "uncertain": self.uncertain,
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """The number of compared calls, their differences, and the number of skipped ones, whose tool or record is gone."""

    compared: int
    skipped: int
    differences: tuple[SimulatedDifference, ...]

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        differences = [difference.to_json() for difference in self.differences]
        return {"compared": self.compared, "skipped": self.skipped, "differences": differences}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call. `whole` means that its arguments are complete."""

    record: int
    at: str
    ref: ToolRef
    principal: Principal
    arguments: JsonObject
    whole: bool
    recorded: str
    approved: bool
    ran: bool = True

    def caller(self, verdict: Verdict) -> Principal:
        """Return the principal of the call, given its current decision.

        Records do not contain whether a call was made by hand. A call of the owner was if it ran without an approval;
        any other call was if it would need an approval now and had none.
        """
        unasked = self.recorded == "allow" and not self.approved
        by_hand = unasked and (verdict == "ask" or _in_own_name(self.principal))
        return replace(self.principal, by_hand=True) if by_hand else self.principal


def simulate(
    records: Iterable[Mapping[str, Json]],
    before: Rules,
    after: Rules,
    *,
    tool: FindTool,
    grants: FindGrants,
    paths: FindPaths | None = None,
    grants_after: FindGrants | None = None,
    sets: FindMarks | None = None,
) -> Simulation:
    """Decide the calls of these audit records (as returned by `/api/audit`) again, before and after a change of rules.

    `paths` returns the paths that a call touches, see `zones`. `grants_after` returns the grants after the change, if
    they differ. `sets` returns the conversation of a call and the marks it set, which later calls are decided with.
    """
    compared = skipped = 0
    differences: list[SimulatedDifference] = []
    calls = [*_calls(records)]
    tests_marks = sets is not None and (before.test_marks or after.test_marks)
    marks = marks_before(calls, tool, sets) if sets is not None and tests_marks else {}
    for call in calls:
        found = tool(call.ref) if call is not None else None
        if call is None or found is None:
            skipped += 1
            continue
        compared += 1
        own = grants(call.principal)
        sides = (before, own), (after, own if grants_after is None else grants_after(call.principal))
        difference = _compare(call, found, *sides, paths, marks.get(call.record, NO_MARKS))
        if difference is not None:
            differences.append(difference)
    return Simulation(compared, skipped, tuple(differences))


def _compare(
    call: RecordedCall, tool: Tool, before: _Side, after: _Side, paths: FindPaths | None, marks: HeldMarks
) -> SimulatedDifference | None:
    real = paths(call.principal, call.ref, call.arguments) if paths is not None else None

    def decide_with(principal: Principal, side: _Side) -> Decision:
        rules, grants = side
        return decide(call.ref, tool, principal, grants, rules, call.arguments, real, marks=marks)

    principal = call.caller(decide_with(call.principal, before).verdict)
    old = decide_with(principal, before)
    new = decide_with(principal, after)
    if old.verdict == new.verdict:
        return None
    uncertain = not call.whole and (old.needs_arguments or new.needs_arguments)
    return SimulatedDifference(
        call.record, call.at, call.ref, principal, call.recorded, old.verdict, new.verdict, new.decided_by, uncertain
    )


def marks_before(calls: Iterable[RecordedCall | None], tool: FindTool, sets: FindMarks) -> dict[int, HeldMarks]:
    """Return the marks of the conversation before each call, by its record. Refused calls set none."""
    held: dict[str, HeldMarks] = {}
    found: dict[int, HeldMarks] = {}
    for call in sorted((each for each in calls if each is not None), key=lambda each: each.record):
        known = tool(call.ref)
        conversation, marks = sets(call.principal, known) if known is not None else ("", ())
        found[call.record] = before = held.get(conversation, NO_MARKS)
        if call.ran and marks:
            at = datetime.fromisoformat(call.at)
            first = (MarkingCall(call.record, call.ref, at),)
            held[conversation] = HeldMarks({**dict.fromkeys(marks, first), **before.calls})
    return found


def _calls(records: Iterable[Mapping[str, Json]]) -> Iterator[RecordedCall | None]:
    """Yield one item per recorded call, from the first of its records, None for an unreadable one."""
    seen: set[str] = set()
    for record in records:
        call = record.get("call")
        if not isinstance(call, str):
            yield None
        elif call not in seen:
            seen.add(call)
            yield recorded_call(record)


def recorded_call(record: Mapping[str, Json]) -> RecordedCall | None:
    """Return the call of a record, or None if it describes no valid call."""
    principal = recorded_principal(record.get("principal"))
    server, name, number = record.get("server"), record.get("tool"), record.get("id")
    if server == "toolcrib" and isinstance(name, str) and "." in name:  # a change of permissions, not a call
        return None
    if principal is None or not (isinstance(server, str) and isinstance(name, str) and isinstance(number, int)):
        return None
    raw = record.get("arguments")
    arguments: JsonObject = raw if is_object(raw) else {}
    whole = is_object(raw) and digest(raw) == record.get("argumentsDigest")
    approved = record.get("approvalId") is not None
    recorded = str(record.get("decision", ""))
    return RecordedCall(
        number, str(record.get("at", "")), ToolRef(server, name), principal, arguments, whole, recorded, approved,
        "refused" not in record,
    )  # fmt: skip


def _in_own_name(principal: Principal) -> bool:
    own = principal.is_owner and principal.agent is None and principal.session is None
    return own and principal.mode == "default" and principal.source in ("web", "cli", "api")


def recorded_principal(shape: Json) -> Principal | None:
    """Return the principal in a record, or None if it is invalid."""
    if not is_object(shape):
        return None
    kind, source, mode = shape.get("kind"), shape.get("source"), shape.get("mode")
    if kind not in ("owner", "token", "session") or source not in SOURCES or mode not in MODES:
        return None
    return Principal.of_json({**shape, "name": str(shape.get("name", ""))})
