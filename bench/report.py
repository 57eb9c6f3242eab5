"""Rows with target and result: a table for people, JSON for programs."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One thing measured. `reference` is the SDK server's value in the same run, `limit` the highest good `judged`.

    What is judged is the ratio where a reference decides, else the value itself; rows without a limit inform only.
    """

    what: str
    unit: str
    value: float
    reference: float | None = None
    limit: float | None = None
    judged_by_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        """Value over reference."""
        return self.value / self.reference if self.reference else None

    @property
    def verdict(self) -> str:
        """`OK`, `MISS`, or nothing for a row without a target."""
        judged = self.ratio if self.judged_by_ratio else self.value
        if self.limit is None or judged is None:
            return ""
        return "OK" if judged <= self.limit else "MISS"

    @property
    def target(self) -> str:
        """The limit in words."""
        if self.limit is None:
            return ""
        return f"≤ {self.limit:g} × SDK" if self.judged_by_ratio else f"≤ {self.limit:g} {self.unit}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def table(rows: Sequence[Row]) -> str:
    """The rows in columns."""
    cells = [("what", "unit", "result", "SDK server", "ratio", "target", "")]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        cells.append(
            (row.what, row.unit, _number(row.value), _number(row.reference), ratio, row.target, row.verdict),
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
