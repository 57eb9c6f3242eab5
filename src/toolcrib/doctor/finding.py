"""One thing that was found, good or bad, as a value. Above: all checks. Below: `model`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from toolcrib.errors import CODES
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem

Severity = Literal["ok", "note", "warning", "error"]
_WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says: how bad it is, what is so, by what one can see it, and what to do.

    `repair` mends it without harm and says what it did; None where a person has to decide. `repaired` is what was said.
    """

    check: str
    severity: Severity
    message: str
    evidence: str | None = None
    fix: str | None = None
    repair: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    repaired: str | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
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
    """A number of things: `1 server`, `2 servers`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def of_problem(check: str, severity: Severity, problem: Problem) -> Finding:
    """A problem that some part already put into words; what to do is in the table of codes, where it does not say."""
    place = f"{problem.file}:{problem.line}" if problem.file and problem.line else problem.file
    hint = problem.hint or (CODES[problem.code].hint if problem.code in CODES else None)
    return Finding(check, severity, problem.message, place, hint)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst that is left; what was repaired counts no more."""
    left = {each.severity for each in findings if each.repaired is None}
    for severity in _WORST_FIRST:
        if severity in left:
            return severity
    return "ok"
