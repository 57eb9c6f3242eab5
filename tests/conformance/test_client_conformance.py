"""The official suite for clients: the installed crib connects to the suite's servers and signs in to them."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

LIMIT = 240.0
SCENARIOS = {"2025-03-26": 2, "2025-11-25": 19, "2026-07-28": 33}
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address the suite expects where it asks for a client metadata document."""


@contextmanager
def running_crib(folder: Path, wheel: Path) -> Generator[dict[str, str]]:
    """Run `toolcrib serve` as a user would; yield the variables that the driver needs."""
    user = folder / "user"
    user.mkdir()
    environment = {
        "HOME": str(user),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(wheel),
        "TOOLCRIB_HOME": str(folder / "crib"),
        "TOOLCRIB_CLIENT_METADATA_URL": CLIENT_DOCUMENT,
    }
    command = [sys.executable, "-m", "toolcrib", "serve", "--port", "0", "--no-open", "--json"]
    with subprocess.Popen(command, cwd=user, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            token = (folder / "crib" / "token").read_text(encoding="utf-8").strip()
            yield {"CONFORMANCE_CRIB": ready["mcp"].removesuffix("/mcp"), "CONFORMANCE_TOKEN": token}
        finally:
            process.terminate()


@pytest.mark.parametrize("version", SCENARIOS)
def test_crib_passes_every_client_scenario(
    node_programs: Path, installed_wheel: Path, tmp_path: Path, version: str
) -> None:
    script = node_programs.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    driver = f"{sys.executable} {Path(__file__).with_name('client_driver.py')}"
    with running_crib(tmp_path, installed_wheel) as variables:
        done = subprocess.run(
            [
                node_programs / "node", script, "client", "--command", driver, "--suite", "all",
                "--spec-version", version, "--output-dir", tmp_path / "results",
            ],
            cwd=tmp_path,
            env={"PATH": f"{node_programs}{os.pathsep}/usr/bin:/bin", "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )  # fmt: skip
    summary = done.stdout.partition("=== SUITE SUMMARY ===")[2]
    assert (done.returncode, summary.count("✓")) == (0, SCENARIOS[version]), done.stdout + done.stderr
