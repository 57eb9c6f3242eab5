"""The programs of docs/library.md, run as a reader would, and its table of names compared with the library."""

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
SAID = (
    "Hello, Ada.",
    "policy.denied disk/wipe is not available here: Not from a program.",
    "It looks fine to me.",
    "['mcp_time_get_current_time'] {}",
)


@pytest.mark.parametrize(("program", "said"), list(zip(PROGRAMS, SAID, strict=True)), ids=NAMES)
def test_a_program_of_the_page_says_what_it_promises(tmp_path: Path, program: str, said: str) -> None:
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
    assert said in done.stdout


def test_the_table_names_exactly_what_the_library_offers() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(toolcrib.__all__)


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (ROOT / "docs" / target).exists(), target


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" in index} == pages
