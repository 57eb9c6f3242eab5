"""Check that the changelog and the version agree.

`## [Unreleased]` comes first, then one `## [X.Y.Z] - YYYY-MM-DD` per release, newest first. A version in
`version.py` that is not released yet needs entries under Unreleased. Run by `make check`.

"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "(?P<version>\d+\.\d+\.\d+)"$', re.MULTILINE)
Release = tuple[int, ...]


def number(version: str) -> Release:
    """Return `1.2.3` as a value that can be compared."""
    return tuple(int(part) for part in version.split("."))


def complaints(changelog: str, version: str) -> list[str]:
    """Return a sentence for each problem."""
    headings = list(HEADING.finditer(changelog))
    if len(headings) != len(re.findall(r"^## ", changelog, re.MULTILINE)):
        return ["CHANGELOG.md: a heading is neither `## [Unreleased]` nor `## [X.Y.Z] - YYYY-MM-DD`"]
    if not headings or headings[0]["name"] != "Unreleased":
        return ["CHANGELOG.md: the first section must be `## [Unreleased]`"]
    found: list[str] = []
    if undated := [heading["name"] for heading in headings[1:] if heading["date"] is None]:
        found.append(f"CHANGELOG.md: no date at {', '.join(undated)}")
    released = [number(heading["name"]) for heading in headings[1:]]
    if released != sorted(set(released), reverse=True):
        found.append("CHANGELOG.md: the releases are not in order, newest first")
    if released and number(version) < released[0]:
        found.append(f"version.py says {version}, but a newer release stands in CHANGELOG.md")
    end = headings[1].start() if released else len(changelog)
    unreleased = changelog[headings[0].end() : end]
    if number(version) not in released and "\n- " not in unreleased:
        found.append(f"CHANGELOG.md: {version} is not released, and Unreleased is empty")
    return found


def main() -> int:
    """Check the files of this repository and print the problems. Return 1 if there are any."""
    version = VERSION.search((ROOT / "src/toolcrib/model/version.py").read_text(encoding="utf-8"))
    if version is None:
        lines = ['version.py: no line `__version__ = "X.Y.Z"`']
    else:
        lines = complaints((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version["version"])
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
