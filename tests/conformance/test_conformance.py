"""The official conformance suite against the crib, as a server and as a client, and its published counts."""

import re
from pathlib import Path

import pytest

from conformance.page import versions
from conformance.runs import (
    EXTENSIONS,
    PAGE,
    RUNS,
    Run,
    conform,
    conform_extension,
    everything,
    extension_row,
    judge_server,
    row,
)
from conformance.suite import SpecVersion
from long_tests import takes_long


def _when(run: Run) -> tuple[pytest.MarkDecorator, ...]:
    """Runs of the newest version are short, and so is the server of 2025-11-25 over HTTP."""
    return () if run.version == "2026-07-28" or run == ("server", "2025-11-25", "http") else (takes_long,)


@takes_long
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_everything_server_alone_passes_every_scenario(
    node_programs: Path, tmp_path: Path, version: SpecVersion
) -> None:
    with everything() as url:
        verdict = judge_server(node_programs, url, version, tmp_path)
    assert verdict.is_clean, str(verdict)


@pytest.mark.parametrize("run", [pytest.param(run, id="-".join(run), marks=_when(run)) for run in RUNS])
def test_crib_passes_every_scenario_without_a_warning(
    node_programs: Path, installed_wheel: Path, tmp_path: Path, run: Run
) -> None:
    verdict = conform(run, node_programs, installed_wheel, tmp_path)
    assert verdict.is_clean, str(verdict)
    assert row(run, verdict.tally) in PAGE.read_text(encoding="utf-8"), "Run `make conformance`."


@takes_long
@pytest.mark.parametrize("name", EXTENSIONS)
def test_crib_passes_the_scenarios_of_extensions(
    node_programs: Path, installed_wheel: Path, tmp_path: Path, name: str
) -> None:
    verdict = conform_extension(name, node_programs, installed_wheel, tmp_path)
    assert verdict.is_clean, str(verdict)
    assert extension_row(name, verdict.tally) in PAGE.read_text(encoding="utf-8"), "Run `make conformance`."


def test_published_versions_match_the_locked_ones() -> None:
    published = dict(re.findall(r"^- (.+): `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert published == versions()
