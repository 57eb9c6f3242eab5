"""Simulation: what recorded calls would have come to under other rules.

Each call of the audit is decided twice, with the rules as they are and with the changed ones, for the asker it was
recorded for and the tool as it is defined today; where the answers differ, that is told. Records hold arguments without
their secrets and cut where they are long, so a difference that hangs on such arguments is marked as uncertain.

Above: `toolcrib rules simulate`, `/api/policy/simulate`. Below: `decide`. It must never call or record
anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from toolcrib.model.json import Json, JsonObject, digest, is_object
from toolcrib.model.policy import Decision, Step, Verdict
from toolcrib.model.principals import MODES, SOURCES, Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.policy.decide import Grants, decide
from toolcrib.policy.rules import Rules

FindTool = Callable[[ToolRef], Tool | None]
FindGrants = Callable[[Principal], Grants]
FindPaths = Callable[[Principal, ToolRef, JsonObject], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A call that would be decided otherwise. `recorded` is what was decided then."""

    record: int
    at: str
    ref: ToolRef
    principal: Principal
    recorded: str
    before: Verdict
    after: Verdict
    decided_by: Step
    uncertain: bool

    def to_json(self) -> JsonObject:
        """The public shape."""
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
    """How many calls were compared, which differ, and how many could not be: their tool or record is gone."""

    compared: int
    skipped: int
    differences: tuple[Difference, ...]

    def to_json(self) -> JsonObject:
        """The public shape."""
        differences = [difference.to_json() for difference in self.differences]
        return {"compared": self.compared, "skipped": self.skipped, "differences": differences}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What a record says about one call. `whole`: its arguments are there as they were, with nothing left out."""

    record: int
    at: str
    ref: ToolRef
    principal: Principal
    arguments: JsonObject
    whole: bool
    recorded: str
    approved: bool

    def asker(self, verdict: Verdict) -> Principal:
        """Who asked, given what is decided for them now.

        Records do not say whether a call was made by hand. The owner's are where they ran without anybody being asked;
        others must have been where a person has to be asked now and was not.
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
) -> Simulation:
    """Decide the calls of these audit records (as `/api/audit` gives them) again, before and after a change of rules.

    `paths` gives the real paths that a call of the coding agent's own tools touches, see `coding`.
    """
    compared = skipped = 0
    differences: list[Difference] = []
    for call in _calls(records):
        found = tool(call.ref) if call is not None else None
        if call is None or found is None:
            skipped += 1
            continue
        compared += 1
        difference = _compare(call, found, before, after, grants(call.principal), paths)
        if difference is not None:
            differences.append(difference)
    return Simulation(compared, skipped, tuple(differences))


def _compare(
    call: RecordedCall, tool: Tool, before: Rules, after: Rules, grants: Grants, paths: FindPaths | None
) -> Difference | None:
    real = paths(call.principal, call.ref, call.arguments) if paths is not None else None

    def decided(principal: Principal, rules: Rules) -> Decision:
        return decide(call.ref, tool, principal, grants, rules, call.arguments, real)

    principal = call.asker(decided(call.principal, before).verdict)
    old = decided(principal, before)
    new = decided(principal, after)
    if old.verdict == new.verdict:
        return None
    uncertain = not call.whole and (old.needs_arguments or new.needs_arguments)
    return Difference(
        call.record, call.at, call.ref, principal, call.recorded, old.verdict, new.verdict, new.decided_by, uncertain
    )


def _calls(records: Iterable[Mapping[str, Json]]) -> Iterator[RecordedCall | None]:
    """One for each recorded call, whichever of its records comes first; None for what cannot be read."""
    seen: set[str] = set()
    for record in records:
        call = record.get("call")
        if not isinstance(call, str):
            yield None
        elif call not in seen:
            seen.add(call)
            yield recorded_call(record)


def recorded_call(record: Mapping[str, Json]) -> RecordedCall | None:
    """The call that a record is about; None where it tells of none that can be."""
    principal = recorded_principal(record.get("principal"))
    server, name, number = record.get("server"), record.get("tool"), record.get("id")
    if server == "toolcrib" and isinstance(name, str) and "." in name:  # a change of what is allowed, no call
        return None
    if principal is None or not (isinstance(server, str) and isinstance(name, str) and isinstance(number, int)):
        return None
    raw = record.get("arguments")
    arguments: JsonObject = raw if is_object(raw) else {}
    whole = is_object(raw) and digest(raw) == record.get("argumentsDigest")
    approved = record.get("approvalId") is not None
    recorded = str(record.get("decision", ""))
    return RecordedCall(
        number, str(record.get("at", "")), ToolRef(server, name), principal, arguments, whole, recorded, approved
    )


def _in_own_name(principal: Principal) -> bool:
    own = principal.is_owner and principal.agent is None and principal.session is None
    return own and principal.mode == "default" and principal.source in ("web", "cli", "api")


def recorded_principal(shape: Json) -> Principal | None:
    """The asker as a record holds it; None where it holds none that can be."""
    if not is_object(shape):
        return None
    kind, source, mode = shape.get("kind"), shape.get("source"), shape.get("mode")
    if kind not in ("owner", "token", "session") or source not in SOURCES or mode not in MODES:
        return None
    return Principal.of_json({**shape, "name": str(shape.get("name", ""))})
