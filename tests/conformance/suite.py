"""Runs the official conformance suite and reads its results."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.model.json import JsonObject

SpecVersion = Literal["2025-03-26", "2025-11-25", "2026-07-28"]
Side = Literal["server", "client"]
LIMIT = 240.0
FINE = ("SUCCESS", "INFO", "SKIPPED")


@dataclass(frozen=True)
class Tally:
    """The numbers of a run: scenarios, and checks that passed, failed or warned.

    A check that the suite repeats for several requests counts once, because their number depends on timing.

    """

    scenarios: int
    passed: int
    failed: int
    warnings: int


@dataclass(frozen=True)
class Verdict:
    """The result of the suite. `output` is all its output, `findings` every check that did not pass."""

    exit_code: int
    tally: Tally
    output: str
    findings: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Return whether no check failed or warned."""
        return (self.exit_code, self.tally.failed, self.tally.warnings) == (0, 0, 0) and self.tally.passed > 0

    def __str__(self) -> str:
        return "\n".join((f"exit {self.exit_code}", self.output, *self.findings))


def run_suite(
    programs: Path, side: Side, options: list[str], folder: Path, variables: Mapping[str, str] | None = None
) -> Verdict:
    """Run the suite with an empty environment and its own home."""
    results = folder / "results"
    script = programs.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [str(programs / "node"), str(script), side, *options, "--output-dir", str(results)]
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), **(variables or {})}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    found = list(_checks(results))
    count = Counter(status for _, _, status in {(scenario, each["id"], each["status"]) for scenario, each in found})
    scenarios = len({scenario for scenario, _ in found})
    tally = Tally(scenarios, count["SUCCESS"], count["FAILURE"], count["WARNING"])
    findings = tuple(_finding(scenario, check) for scenario, check in found if check["status"] not in FINE)
    return Verdict(done.returncode, tally, done.stdout + done.stderr, findings)


def _checks(results: Path) -> Iterator[tuple[str, JsonObject]]:
    """Return every check with the directory of its scenario."""
    for file in sorted(results.rglob("checks.json")):
        checks: list[JsonObject] = json.loads(file.read_text(encoding="utf-8"))
        yield from ((str(file.parent.relative_to(results)), check) for check in checks)


def _finding(scenario: str, check: JsonObject) -> str:
    seen = json.dumps(check.get("details"), indent=1)
    return f"{check['status']} {scenario}: {check['id']}: {check.get('errorMessage')}\n{seen}"
