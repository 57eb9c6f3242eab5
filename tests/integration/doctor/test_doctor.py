"""`doctor` on a machine that is broken in one way at a time: it finds just that, and mends what it says it can."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from integration.doctor.faulty_machines import FAULTS, REPAIRED, Patient, patient_at
from long_tests import takes_long
from toolcrib.doctor.finding import Finding, worst

pytestmark = takes_long


@pytest.fixture
def patient(tmp_path: Path) -> Generator[Patient]:
    """A sound machine."""
    with patient_at(tmp_path) as sound:
        yield sound


def test_a_sound_machine_has_nothing_wrong(patient: Patient) -> None:
    assert patient.findings() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_with_its_evidence_and_its_fix(patient: Patient, fault: Callable[[Patient], None]) -> None:
    fault(patient)
    check, severity, words = FAULTS[fault]
    findings = patient.findings()
    found = [each for each in findings if each.check == check and words in each.message]
    assert found, findings
    assert found[0].severity == severity
    assert found[0].fix
    assert {each.check for each in findings} == {check}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_said_to_be_mendable_is_mended_and_nothing_else(
    patient: Patient, fault: Callable[[Patient], None]
) -> None:
    fault(patient)
    is_mendable = any(each.repair is not None for each in patient.findings())
    assert is_mendable == (fault in REPAIRED)
    assert (patient.heal() == []) == is_mendable


def test_twenty_faults_and_more_are_tried() -> None:
    assert len(FAULTS) >= 20


def test_a_machine_without_a_home_is_sound_and_stays_without_one(patient: Patient) -> None:
    missing = patient.root / "nowhere"
    patient.variables["TOOLCRIB_HOME"] = str(missing)
    assert patient.findings() == []
    assert not missing.exists()


def test_looking_changes_nothing(patient: Patient) -> None:
    patient.home.token_file.chmod(0o644)
    before = {path: path.lstat().st_mode for path in patient.root.rglob("*")}
    patient.findings()
    assert {path: path.lstat().st_mode for path in patient.root.rglob("*")} == before


def test_what_was_repaired_counts_no_more() -> None:
    bad = Finding("a", "error", "x", repaired="mended")
    assert (worst([bad]), worst([bad, Finding("b", "note", "y")])) == ("ok", "note")
    assert worst([Finding("a", "warning", "x"), Finding("b", "error", "y")]) == "error"
