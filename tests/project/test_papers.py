"""README, CONTRIBUTING, AGENTS and CHANGELOG match the repository."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "toolcrib"
PAPERS = ["README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))


def test_layout_in_contributing_lists_exactly_the_existing_modules() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", text_of("CONTRIBUTING.md"), re.MULTILINE)
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(listed) == modules | packages


def test_layout_in_contributing_follows_the_import_contract() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", text_of("CONTRIBUTING.md"), re.MULTILINE)
    layers = re.search(r"^layers = \[\n(.*?)^\]", text_of("pyproject.toml"), re.MULTILINE | re.DOTALL)
    assert layers
    ranks = {
        name: -rank
        for rank, row in enumerate(re.findall(r'"([^"]+)"', layers[1]))
        for name in row.replace(" ", "").split("|")
    }
    assert [ranks[name] for name in listed] == sorted(ranks[name] for name in listed)


@pytest.mark.parametrize("paper", PAPERS)
def test_make_targets_named_by_papers_exist(paper: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text_of(paper), re.MULTILINE))
    assert named <= make_targets()


@pytest.mark.parametrize("paper", PAPERS)
def test_relative_links_of_papers_lead_to_files(paper: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text_of(paper)):
        assert (ROOT / target).exists(), target


def test_files_named_by_contributing_exist() -> None:
    for cell in re.findall(r"^\| [^|]+ \| (`[^|]*\.(?:py|html)`[^|]*) \|$", text_of("CONTRIBUTING.md"), re.MULTILINE):
        folder = PACKAGE
        for named in re.findall(r"`([^`]+\.(?:py|html))`", cell):
            file = PACKAGE / named if "/" in named else folder / named
            assert file.is_file(), named
            folder = file.parent
    for named in re.findall(r"`((?:\w+/)+\w+\.py)`", text_of("CONTRIBUTING.md")):
        assert (PACKAGE / named).is_file() or (ROOT / named).is_file(), named


def test_make_alone_lists_every_target_with_a_sentence() -> None:
    shown = subprocess.run(["make", "-C", ROOT, "--no-print-directory"], capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0
    assert set(re.findall(r"^make ([a-z-]+) +\S", shown.stdout, re.MULTILINE)) == make_targets()


def test_guide_for_agents_is_short_and_links_contributing() -> None:
    guide = text_of("AGENTS.md")
    assert len(guide.splitlines()) <= 60
    assert "](CONTRIBUTING.md)" in guide


def test_licence_is_the_whole_apache_text() -> None:
    licence = text_of("LICENSE")
    assert licence.lstrip().startswith("Apache License\n")
    assert "END OF TERMS AND CONDITIONS" in licence
