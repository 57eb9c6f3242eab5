"""Checks of a machine with one fault at a time: only that fault is found, and repaired if it can be."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from integration.doctor.faulty_machines import FAULTS, REPAIRED, Machine, machine_at
from long_tests import takes_long
from toolcrib.doctor.finding import Finding, worst

pytestmark = takes_long


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Machine]:
    """Return a sound machine."""
    with machine_at(tmp_path) as sound:
        yield sound


def test_sound_machine_has_no_findings(machine: Machine) -> None:
    assert machine.findings() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_has_one_finding_with_severity_and_fix(machine: Machine, fault: Callable[[Machine], None]) -> None:
    fault(machine)
    check, severity, words = FAULTS[fault]
    findings = machine.findings()
    found = [each for each in findings if each.check == check and words in each.message]
    assert found, findings
    assert found[0].severity == severity
    assert found[0].fix
    assert {each.check for each in findings} == {check}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_only_repairable_faults_are_repaired(machine: Machine, fault: Callable[[Machine], None]) -> None:
    fault(machine)
    is_repairable = any(each.repair is not None for each in machine.findings())
    assert is_repairable == (fault in REPAIRED)
    assert (machine.repair() == []) == is_repairable


def test_at_least_twenty_faults_are_tested() -> None:
    assert len(FAULTS) >= 20


def test_missing_home_is_no_finding_and_is_not_created(machine: Machine) -> None:
    missing = machine.root / "nowhere"
    machine.variables["TOOLCRIB_HOME"] = str(missing)
    assert machine.findings() == []
    assert not missing.exists()


def test_checks_change_no_file(machine: Machine) -> None:
    machine.home.token_file.chmod(0o644)
    before = {path: path.lstat().st_mode for path in machine.root.rglob("*")}
    machine.findings()
    assert {path: path.lstat().st_mode for path in machine.root.rglob("*")} == before


def test_worst_severity_ignores_repaired_findings() -> None:
    bad = Finding("a", "error", "x", repaired="repaired")
    assert (worst([bad]), worst([bad, Finding("b", "note", "y")])) == ("ok", "note")
    assert worst([Finding("a", "warning", "x"), Finding("b", "error", "y")]) == "error"
