"""Rows with targets and results: a table for people, JSON for programs."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One thing measured; `value` is None where it could not be, because what it takes is not installed.

    `reference` is the value of something else in the same run, named by `beside`. What is judged against `limit` is
    the ratio to it where that decides, else the value itself; rows without a limit inform only.
    """

    what: str
    unit: str
    value: float | None
    reference: float | None = None
    limit: float | None = None
    judged_by_ratio: bool = False
    beside: str = "SDK"
    at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """Value over reference."""
        return self.value / self.reference if self.value is not None and self.reference else None

    @property
    def verdict(self) -> str:
        """`OK`, `MISS`, or nothing for a row without a target."""
        judged = self.ratio if self.judged_by_ratio else self.value
        if self.limit is None or judged is None:
            return ""
        good = judged >= self.limit if self.at_least else judged <= self.limit
        return "OK" if good else "MISS"

    @property
    def target(self) -> str:
        """The limit in words."""
        if self.limit is None:
            return ""
        sign = "≥" if self.at_least else "≤"
        return (
            f"{sign} {self.limit:g} × {self.beside}" if self.judged_by_ratio else f"{sign} {self.limit:g} {self.unit}"
        )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def table(rows: Sequence[Row]) -> str:
    """The rows in columns."""
    cells = [("what", "unit", "result", "reference", "ratio", "target", "")]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        result = "not installed" if row.value is None else _number(row.value)
        cells.append(
            (row.what, row.unit, result, _number(row.reference), ratio, row.target, row.verdict),
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    rule = tuple("─" * width for width in widths)
    lines: list[str] = []
    for line in [cells[0], rule, *cells[1:]]:
        texts = [
            text.rjust(width) if 2 <= column <= 4 else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(texts).rstrip())
    return "\n".join(lines)


def write(path: Path, rows: Sequence[Row], seconds: float) -> None:
    """All of it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load": [round(value, 2) for value in os.getloadavg()],
        },
        "rows": [
            {**asdict(row), "ratio": row.ratio, "target": row.target or None, "verdict": row.verdict or None}
            for row in rows
        ],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
