"""The locked requirements are complete, hashed, in step with pyproject.toml, and free of addresses."""

import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
BASE: list[str] = [*PROJECT["project"]["dependencies"], *GROUPS["build"]]


def written(name: str) -> list[str]:
    """Return the requirements in a `.in` file, whose set is not part of the project."""
    lines = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


SETS = {
    "base": BASE,
    "dev": [*BASE, *(requirement for extra in EXTRAS.values() for requirement in extra)],
    "tools": GROUPS["tools"],
    "servers": written("servers"),
    "peers": written("peers"),
    "fastmcp": written("fastmcp"),
}
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?P<rest>.*)$", re.MULTILINE)


def text_of(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def pins(name: str) -> dict[str, Version]:
    return {canonicalize_name(found["name"]): Version(found["version"]) for found in PIN.finditer(text_of(name))}


@pytest.mark.parametrize("name", SETS)
def test_direct_dependencies_are_pinned_within_their_ranges(name: str) -> None:
    pinned = pins(name)
    for written in SETS[name]:
        requirement = Requirement(written)
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{written} is not in requirements/{name}.txt: run `make lock`"
        assert requirement.specifier.contains(version), f"{version} is outside {written}: run `make lock`"


def test_tests_run_with_every_extra_installed() -> None:
    """Extras change the program: `claude` installs sniffio, which anyio then uses to detect the event loop."""
    wanted = [Requirement(written) for extra in EXTRAS.values() for written in extra]
    for requirement in wanted:
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(version(requirement.name)), (
                f"run `make test`, which installs {requirement}"
            )


def test_readme_names_every_extra() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.search(r"the extras are\s([^.]+)\.", readme)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named[1])) == set(EXTRAS) - {"dev"}


@pytest.mark.parametrize("name", SETS)
def test_locked_files_contain_no_address_and_no_path(name: str) -> None:
    for line in text_of(name).splitlines():
        assert "://" not in line, line
        assert not re.search(r"(^|\s)(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b", line), line
        assert not re.search(r"(^|\s)(/|~|[A-Za-z]:\\)", line), line


@pytest.mark.parametrize("name", SETS)
def test_every_pin_has_a_hash_and_every_requirement_is_pinned(name: str) -> None:
    joined = text_of(name).replace("\\\n", " ")
    requirements = [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]
    assert requirements
    for line in requirements:
        assert PIN.match(line), line
        assert "--hash=sha256:" in line, line


def test_development_set_contains_the_base_set_at_the_same_versions() -> None:
    development = pins("dev")
    assert {name: development.get(name) for name in pins("base")} == pins("base")


def test_npm_programs_are_pinned_and_their_lock_names_no_registry() -> None:
    folder = ROOT / "requirements" / "node"
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    for path, package in packages.items():
        assert "resolved" not in package, path
        assert not path or "integrity" in package, path


def test_uv_lock_is_ignored_and_absent() -> None:
    assert not (ROOT / "uv.lock").exists()
    assert "uv.lock" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
