"""One result of a check, good or bad, as a value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from toolcrib.model.errors import CODES
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem

Severity = Literal["ok", "note", "warning", "error"]
_WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: severity, message, evidence and fix.

    `repair` fixes the problem safely and returns what it did; None if a person has to decide. `repaired` is its result.
    """

    check: str
    severity: Severity
    message: str
    evidence: str | None = None
    fix: str | None = None
    repair: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    repaired: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape without absent fields."""
        shape: JsonObject = {
            "check": self.check,
            "severity": self.severity,
            "message": self.message,
            "evidence": self.evidence,
            "fix": self.fix,
            "fixable": self.repair is not None,
            "fixed": self.repaired,
        }
        return {key: value for key, value in shape.items() if value is not None}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 server`, `2 servers`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def of_problem(check: str, severity: Severity, problem: Problem) -> Finding:
    """Return a finding for an existing problem. A missing hint is taken from the table of error codes."""
    place = f"{problem.file}:{problem.line}" if problem.file and problem.line else problem.file
    hint = problem.hint or (CODES[problem.code].hint if problem.code in CODES else None)
    return Finding(check, severity, problem.message, place, hint)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity that is left; repaired findings do not count."""
    left = {each.severity for each in findings if each.repaired is None}
    for severity in _WORST_FIRST:
        if severity in left:
            return severity
    return "ok"
