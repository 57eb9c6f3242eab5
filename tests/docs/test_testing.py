"""The files of docs/testing.md, run with pytest in an empty folder without other settings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from long_tests import takes_long

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = [name for name in FILES if name != "conftest.py"]


def test_every_block_of_the_page_is_a_tested_file() -> None:
    assert PAGE.count("```") == 2 * len(FILES)
    assert len(TESTS) == 5


@takes_long
@pytest.mark.parametrize("name", TESTS)
def test_tests_of_the_page_pass(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for each in ("conftest.py", name):
        (folder / each).write_text(FILES[each], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", name],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
    assert "failed" not in done.stdout
