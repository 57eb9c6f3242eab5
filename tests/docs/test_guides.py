"""The guides of docs, followed in an empty HOME, and the site built from all pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import PAGES, commands, follow, page, reader
from long_tests import takes_long

ROOT = PAGES.parent
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def program(name: str) -> str:
    """Return the only Python program of a page."""
    [found] = re.findall(r"^```python\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return found


def test_tutorial_works_in_order(tmp_path: Path) -> None:
    person = reader(tmp_path)
    person.run("settings")
    tools = tmp_path / "crib" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "notes.py").write_text(program("tutorial"), encoding="utf-8")
    lines = commands(page("tutorial"))
    with person.serving():
        printed = dict(zip(lines, follow(person, lines), strict=True))
    assert "Buy milk." in printed["toolcrib tools call notes/list_notes"]
    assert "(ask)" in printed["toolcrib why notes/delete_note --source ide"]
    assert "The first note stays." in printed["""toolcrib why notes/delete_note --source ide --args '{"number": 0}'"""]
    assert "(hidden)" in printed["toolcrib why notes/delete_note --agent librarian"]


@takes_long
@pytest.mark.parametrize("name", ["fewer-tokens", "projects", "approvals-in-code", "migrate", "service"])
def test_commands_of_guides_work_in_order(tmp_path: Path, name: str) -> None:
    person = reader(tmp_path)
    lines = commands(page(name))
    assert len(lines) >= 3
    with person.serving():
        follow(person, lines)


def test_approval_program_of_the_page_approves_a_call(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program("approvals-in-code")],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Sent to ada." in done.stdout, done.stderr


def test_site_lists_every_page() -> None:
    listed = set(re.findall(r": docs/(\S+\.md)$", SITE, re.MULTILINE))
    assert listed == {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_site_lists_the_pages_that_the_project_links(name: str) -> None:
    linked = re.findall(r"\]\(([^):#]+\.md)[#)]", (ROOT / name).read_text(encoding="utf-8"))
    assert set(linked) <= set(re.findall(r": (\S+\.md)$", SITE, re.MULTILINE))


@takes_long
def test_site_builds_without_broken_links() -> None:
    done = subprocess.run(["sh", "scripts/site.sh"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build" / "site" / "docs" / "tutorial.html").is_file()
