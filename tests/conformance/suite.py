"""The official conformance suite: how it is run against an address, and what it found."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from toolcrib.model.json import JsonObject

SpecVersion = Literal["2025-11-25", "2026-07-28"]
SCENARIOS: dict[SpecVersion, int] = {"2025-11-25": 33, "2026-07-28": 40}
CHECKS: dict[SpecVersion, int] = {"2025-11-25": 80, "2026-07-28": 150}
"""How many checks have to pass at least: one that finds nothing to look at is left out, and would not fail."""
EXPECTED_FAILURES = Path(__file__).with_name("expected-failures.yml")
LIMIT = 240.0


@dataclass(frozen=True)
class Verdict:
    """What the suite says: its exit decides; `summary` has a line for each scenario, `failures` all that went wrong."""

    exit_code: int
    summary: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def passed(self) -> int:
        """How many scenarios passed in every check."""
        return sum(line.startswith("✓") for line in self.summary)

    @property
    def checks(self) -> int:
        """How many checks passed."""
        found = re.search(r"^Total: (\d+) passed", "\n".join(self.summary), re.MULTILINE)
        return int(found[1]) if found else 0

    def meets(self, version: SpecVersion) -> bool:
        """Whether every scenario of this version passed, and was not empty."""
        return (self.exit_code, self.passed) == (0, SCENARIOS[version]) and self.checks >= CHECKS[version]

    def __str__(self) -> str:
        return "\n".join((f"exit {self.exit_code}", *self.summary, *self.failures))


async def judge(
    programs: Path, url: str, version: SpecVersion, folder: Path, *, expected_failures: Path | None = None
) -> Verdict:
    """Run all scenarios of a version of the specification, with an environment and a home of their own."""
    results = folder / "results"
    script = programs.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [
        str(programs / "node"), str(script), "server", "--url", url.replace("127.0.0.1", "localhost"),
        "--suite", "all", "--spec-version", version, "--output-dir", str(results),
        *(["--expected-failures", str(expected_failures)] if expected_failures else []),
    ]  # fmt: skip
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process(
            command, cwd=folder, env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}, check=False
        )
    said = (done.stdout + done.stderr).decode()
    _, found, summary = said.partition("=== SUMMARY ===")
    lines = summary.splitlines() if found else said.splitlines()
    return Verdict(done.returncode, tuple(line for line in lines if line), tuple(_failures(results)))


def _failures(results: Path) -> Iterator[str]:
    """Every check that is not fine, with what was seen."""
    for file in sorted(results.glob("*/checks.json")):
        checks: list[JsonObject] = json.loads(file.read_text(encoding="utf-8"))
        for check in checks:
            if check["status"] not in ("SUCCESS", "INFO"):
                seen = json.dumps(check.get("details"), indent=1)
                yield f"{check['status']} {file.parent.name}: {check['id']}: {check.get('errorMessage')}\n{seen}"
