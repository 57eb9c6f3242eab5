"""Paths in conditions: each spelling of a file matches, and an undecidable path counts against the caller."""

import os
from pathlib import Path

import pytest

from toolcrib.gate.policy.paths import LEXICAL, REAL, is_path_name, names_path


@pytest.mark.parametrize(
    "spelling",
    [
        "/etc/passwd",
        "//etc/passwd",
        "/./etc/passwd",
        "/etc//passwd",
        "/var/../etc/passwd",
        "/proc/self/root/etc/passwd",
        "file:///etc/passwd",
        "file:///%65tc/passwd",
        "/etc",
        "/etc/",
        "../../../../../../../../etc/passwd",
        "/etc/ssl/../passwd",
        "/\uff45tc/passwd",
        "$HOME/../../etc/passwd",
        "~root/../etc/passwd",
        "/proc/1/root/etc/passwd",
        "/etc/passwd\0.txt",
        "x" * 5_000,
    ],
)
def test_any_spelling_of_a_denied_file_may_match(spelling: str, tmp_path: Path) -> None:
    assert names_path(spelling, "/etc", str(tmp_path), REAL) is not False


@pytest.mark.parametrize("spelling", ["/etcetera/x", "/tmp/etc", "notes.txt", "/", "/var/etc/../x"])
def test_other_files_do_not_match(spelling: str, tmp_path: Path) -> None:
    assert names_path(spelling, "/etc", str(tmp_path), REAL) is False


def test_relative_path_without_a_known_directory_is_undecided() -> None:
    assert names_path("passwd", "/etc", None) is None
    assert names_path("passwd", "/etc", "/etc") is True
    assert names_path("passwd", "/etc", "/srv") is False


def test_links_are_resolved_unless_the_result_is_ambiguous(tmp_path: Path) -> None:
    inside, outside = tmp_path / "project", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    (outside / "back").symlink_to(inside)
    wanted = str(inside)
    assert names_path(str(inside / "link" / "x"), wanted, None, REAL) is False
    assert names_path(str(inside / "link"), wanted, None, REAL) is None
    assert names_path(str(outside / "back" / "x"), wanted, None, REAL) is True
    assert names_path(str(inside / "link" / ".." / "x"), wanted, None, REAL) is None
    assert names_path(str(inside / "link" / "x"), wanted, None, LEXICAL) is True


def test_directory_that_the_file_system_considers_equal_matches(tmp_path: Path) -> None:
    class Folding:
        """A file system that ignores case."""

        def real(self, path: str) -> str:
            return path

        def same(self, one: str, other: str) -> bool:
            return one.casefold() == other.casefold()

    assert names_path("/Home/Me/.SSH/id", "/home/me/.ssh", None, Folding()) is True


def test_wildcards_match_path_parts() -> None:
    assert names_path("/etc", "/etc/*", None) is False
    assert names_path("/etc/a/b", "/etc/*", None) is True
    assert names_path("/srv/a/secret.txt", "/srv/*/secret.txt", None) is True
    assert names_path(os.path.expanduser("~/.ssh/id"), "~/.ssh", None) is True  # noqa: PTH111 as a user would write it


def test_path_arguments_are_recognised_by_name() -> None:
    assert all(map(is_path_name, ("path", "file_path", "notebookPath", "output-dir", "cwd")))
    assert not any(map(is_path_name, ("pathology", "profile_name", "query")))
