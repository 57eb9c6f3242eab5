"""docs/extensions.md: every test it names exists, and every requirement without a test is marked."""

import re

from docs.pages import PAGES

PAGE = PAGES / "extensions.md"
TESTS = PAGES.parent / "tests"


def test_tests_named_by_requirements_exist() -> None:
    known = {
        name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
    }
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    shown = [row for row in rows if row[0] != "| requirement"]
    assert len(shown) > 30
    for row in shown:
        named = re.findall(r"`(test_\w+)`", row[-1])
        assert set(named) <= known, row
        assert named or "conformance: " in row[-1] or "**no**" in row[1], row
