"""A finding of the lint: a problem with its exact place in a definition and a severity.

`hold` keeps new text of a known server back until a person has reviewed it. `warn` is a note and holds nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolcrib.gate.pins.lint_signs import Severity
from toolcrib.gate.pins.lint_texts import Place, written
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.text import visible

_EXCERPT = 80


@dataclass(frozen=True, slots=True)
class LintFinding(Problem):
    """A problem in the text at `place`, a path in the definition, from character `start` to `end`."""

    place: str = ""
    start: int = 0
    end: int = 0
    severity: Severity = "hold"

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"place": self.place, "start": self.start, "end": self.end, "severity": self.severity}
        return Problem.to_json(self) | shape


def finding(
    code: str, place: Place, reason: str, shown: str, span: tuple[int, int], severity: Severity = "hold"
) -> LintFinding:
    """Return a finding. Its message has the place, the reason and an excerpt of `shown`."""
    path = _excerpt(written(place))
    return LintFinding(
        code,
        f"{path} {reason}: {_excerpt(shown)}".lstrip(),
        place=path,
        start=span[0],
        end=span[1],
        severity=severity,
    )


def holding(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the findings that hold new text back."""
    return tuple([each for each in problems if not isinstance(each, LintFinding) or each.severity == "hold"])


def one_of_each(findings: Iterable[LintFinding]) -> tuple[LintFinding, ...]:
    """Return one finding of each code: the first, or the first that holds."""
    chosen: dict[str, LintFinding] = {}
    for each in findings:
        before = chosen.get(each.code)
        if before is None or (before.severity == "warn" and each.severity == "hold"):
            chosen[each.code] = each
    return tuple(chosen.values())


def _excerpt(text: str) -> str:
    shown = visible(" ".join(text[: 4 * _EXCERPT].split()))
    return shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}…"
