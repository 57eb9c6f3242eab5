"""The programs of docs/library.md, and its table of names compared with the library."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolcrib

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
PROGRAMS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ["tools", "crib", "session", "bridge"]
EXPECTED = (
    "Hello, Ada.",
    "policy.denied disk/wipe is not available here: Not from a program.",
    "It looks fine to me.",
    "['mcp_time_get_current_time'] {}",
)


@pytest.mark.parametrize(("program", "expected"), list(zip(PROGRAMS, EXPECTED, strict=True)), ids=NAMES)
def test_programs_of_the_page_print_the_documented_output(tmp_path: Path, program: str, expected: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    clock = {"command": sys.executable, "args": ["-m", "upstreams.clock"], "env": {"PYTHONPATH": str(ROOT / "tests")}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"time": clock}}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLCRIB_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_table_lists_exactly_the_public_names() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(toolcrib.__all__)


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_of_a_page_lead_to_files(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (ROOT / "docs" / target).exists(), target


def test_index_links_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" in index} == pages
