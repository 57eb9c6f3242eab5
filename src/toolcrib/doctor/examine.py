"""Runs the checks that need no crib, and the repairs.

Invariant: a check that fails never hides the results of the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from toolcrib.doctor import database, definitions, machine, runtimes
from toolcrib.doctor.finding import Finding
from toolcrib.doctor.surroundings import Surroundings

Check = Callable[[Surroundings], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "python": machine.check_python,
    "settings": machine.check_settings,
    "home": machine.check_home,
    "modes": machine.check_modes,  # before any check opens a file, which resets its mode
    "holder": machine.check_holder,
    "processes": machine.check_orphans,
    "port": machine.check_port,
    "files": machine.check_files,
    "disk": machine.check_disk,
    "clock": machine.check_clock,
    "database": database.check_database,
    "definitions": definitions.check_definitions,
    "sandbox": definitions.check_sandbox,
    "claude": runtimes.check_claude,
    "agents": runtimes.check_agents,
    "search": runtimes.check_search,
    "extras": runtimes.check_extras,
}
"""The checks in the order they run. If the home is unusable, later checks inspect what they can."""


def examine(surroundings: Surroundings) -> list[Finding]:
    """Run every check that needs no crib and return the findings."""
    return [finding for name, check in CHECKS.items() for finding in _run_check(name, check, surroundings)]


def _run_check(name: str, check: Check, surroundings: Surroundings) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += check(surroundings)
    except Exception as error:  # noqa: BLE001 boundary: a check that fails is itself a finding
        message = f"The check failed ({type(error).__name__}: {error})."
        found.append(
            Finding(name, "error", message, fix="Report this as a bug, with the output of `toolcrib doctor --json`.")
        )
    return found


def repaired(findings: Iterable[Finding]) -> list[Finding]:
    """Run every available repair and return the updated findings; a failed repair is added to the evidence."""
    return [_repair(finding) if finding.repair is not None else finding for finding in findings]


def _repair(finding: Finding) -> Finding:
    assert finding.repair is not None
    try:
        return replace(finding, repaired=finding.repair())
    except OSError as error:
        return replace(finding, evidence=f"{finding.evidence}; the repair failed: {error.strerror or error}")
