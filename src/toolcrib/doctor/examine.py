"""Runs the checks that need no crib, and what may be repaired.

Above: the command line. Below: the modules with the checks. It must never let one check that breaks hide the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from toolcrib.doctor import database, definitions, place, runtimes
from toolcrib.doctor.finding import Finding
from toolcrib.doctor.ground import Ground

Check = Callable[[Ground], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "python": place.check_python,
    "settings": place.check_settings,
    "home": place.check_home,
    "modes": place.check_modes,  # before anybody opens a file, which sets its mode again
    "holder": place.check_holder,
    "processes": place.check_orphans,
    "port": place.check_port,
    "disk": place.check_disk,
    "clock": place.check_clock,
    "database": database.check_database,
    "definitions": definitions.check_definitions,
    "claude": runtimes.check_claude,
    "agents": runtimes.check_agents,
    "extras": runtimes.check_extras,
}
"""In their order. Where the home is not sound, the later ones look at what they can."""


def examine(ground: Ground) -> list[Finding]:
    """Everything that is to be said of this machine without a crib."""
    return [finding for name, check in CHECKS.items() for finding in _checked(name, check, ground)]


def _checked(name: str, check: Check, ground: Ground) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += check(ground)
    except Exception as error:  # noqa: BLE001 boundary: what breaks one check is itself something that was found
        message = f"The check could not be finished ({type(error).__name__}: {error})."
        found.append(Finding(name, "error", message, fix="toolcrib doctor --json, and tell the makers of Toolcrib"))
    return found


def repaired(findings: Iterable[Finding]) -> list[Finding]:
    """The same after everything was repaired that may be; what could not be is told as evidence."""
    return [_repaired(finding) if finding.repair is not None else finding for finding in findings]


def _repaired(finding: Finding) -> Finding:
    assert finding.repair is not None
    try:
        return replace(finding, repaired=finding.repair())
    except OSError as error:
        return replace(finding, evidence=f"{finding.evidence}; the repair failed: {error.strerror or error}")
