"""Paths of calls on a real file system: every way into the crib's home is recognised."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolcrib.gate.policy.zones import NamedPath, TouchedPath, closed_paths, zone_of
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.tools import ToolRef

CODING = "claude_code"


@dataclass(frozen=True)
class Place:
    user: Path
    home: Path
    guard: HomeGuard

    def closed(self, tool: str, cwd: Path | None = None, **arguments: object) -> str | None:
        """Why a call of the coding agent in the person's home directory is refused."""
        where = str(cwd or self.user)
        touched = self.guard.touched(ToolRef(CODING, tool), dict(arguments), where)
        found = closed_paths(touched, (where,))
        return found[0].closed if found else None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    user = Path(os.path.realpath(tmp_path)) / "user"
    home = user / "data files" / "crib"
    for folder in (home / "tools", home / "work" / "1", home / "work" / "2", user / "project" / "src"):
        folder.mkdir(parents=True)
    for file in (home / "token", home / "toolcrib.toml", user / "project" / "a.py"):
        file.write_text("x", encoding="utf-8")
    return Place(user, home, HomeGuard(home, home / "work", user))


def test_files_of_the_home_are_closed_by_every_spelling(place: Place) -> None:
    crib, user = place.home, place.user
    for file in (
        f"{crib}/token", "data files/crib/token", "~/data files/crib/token", f"{user}/project/../data files/crib/token",
        f"{crib}//token", f"{crib}/./token", f" {crib}/token ", f"file://{crib}/token".replace(" ", "%20"),
        f"{crib}/tools/new/evil.py", f"{crib}", f"\ufeff{crib}/token",
    ):  # fmt: skip
        assert place.closed("Read", file_path=file) == "inside", file
        assert place.closed("Write", file_path=file) == "inside", file
        assert place.closed("NotebookEdit", notebook_path=file) == "inside", file
        assert place.closed("Grep", pattern="x", path=file) == "inside", file


def test_links_into_the_home_are_followed(place: Place) -> None:
    project = place.user / "project"
    (project / "to_home").symlink_to(place.home)
    (project / "to_link").symlink_to("to_home")
    (project / "to_file").symlink_to(place.home / "token")
    (project / "dangling").symlink_to(place.home / "tools" / "new.py")
    for name in ("to_home/token", "to_link/tools/evil.py", "to_file", "dangling", "to_home"):
        assert place.closed("Write", project, file_path=name) == "inside", name
        assert place.closed("Read", project, file_path=name) == "inside", name
    assert place.closed("Glob", project, pattern="to_home/*") == "inside"


def test_hard_links_to_files_of_the_home_are_closed(place: Place) -> None:
    project = place.user / "project"
    (project / "innocent").hardlink_to(place.home / "token")
    (project / "twin").hardlink_to(project / "a.py")
    assert place.closed("Read", project, file_path="innocent") == "inside"
    assert place.closed("Read", project, file_path="twin") is None
    assert place.guard.look(NamedPath(str(project / "twin"))).is_linked


@pytest.mark.skipif(not os.path.lexists("/proc/self/cwd"), reason="There is no /proc here.")
@pytest.mark.parametrize("link", ["self/cwd", "self/root", "thread-self/cwd", "1/root", "self/fd/3", "self/task/1/cwd"])
def test_paths_through_a_process_are_closed(place: Place, link: str) -> None:
    assert place.closed("Read", file_path=f"/proc/{link}/token") == "indirect"
    (place.user / "project" / "self").symlink_to("/proc/self")
    name = link.partition("/")[2]
    assert place.closed("Read", place.user / "project", file_path=f"self/{name}/token") == "indirect"
    assert place.closed("Read", file_path="/dev/fd/0") == "indirect"
    assert place.closed("Read", file_path="/proc/cpuinfo") is None
    assert place.closed("Read", file_path="/proc/self/status") is None


def test_other_spellings_of_a_directory_are_recognised_by_its_identity(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a case-insensitive file system: every name is looked up in lower case."""
    real = os.stat

    def stat(path: str) -> os.stat_result:
        return real(path.replace("CRIB", "crib"))

    monkeypatch.setattr(os, "stat", stat)
    assert place.closed("Write", file_path=str(place.home.parent / "CRIB" / "tools" / "evil.py")) == "inside"
    assert place.closed("Write", file_path=str(place.home.parent / "CRAB" / "evil.py")) is None


def test_searches_around_the_home_are_closed(place: Place) -> None:
    for directory in ("/", str(place.user), str(place.home.parent), ".", "~", "data files"):
        assert place.closed("Grep", pattern="x", path=directory) == "around", directory
        assert place.closed("LS", path=directory) == "around", directory
        assert place.closed("Glob", pattern="**/*", path=directory) == "around", directory
    assert place.closed("Grep", pattern="x") == "around"
    assert place.closed("Glob", pattern="token") == "around"
    assert place.closed("Glob", pattern="{data files,x}/**") == "around"
    assert place.closed("Glob", pattern="project/*.py") is None
    assert place.closed("Grep", place.user / "project", pattern="x") is None


def test_a_worktree_is_open_to_its_task_and_nothing_else_of_the_home_is(place: Place) -> None:
    own, other = place.home / "work" / "1", place.home / "work" / "2"
    assert place.closed("Edit", own, file_path="a.py") is None
    assert place.closed("Grep", own, pattern="x") is None
    assert place.closed("Edit", own, file_path="../2/a.py") == "inside"
    assert place.closed("Edit", own, file_path="../../token") == "inside"
    assert place.closed("Read", place.home / "work", file_path="1/a.py") == "inside"
    assert place.closed("Edit", other, file_path=str(own / "a.py")) == "inside"
    (own / "token").hardlink_to(place.home / "token")
    assert place.closed("Read", own, file_path="token") == "inside"


def test_commands_that_name_the_home_are_closed(place: Place) -> None:
    home = place.home
    for command in (
        f"cat '{home}/token'", f"cat {str(home).replace(' ', chr(92) + ' ')}/token", "cat ~/'data files/crib/token'",
        'cat "$HOME/data files/crib/token"', "cat ${TOOLCRIB_HOME}/token", "ls $TOOLCRIB_HOME",
    ):  # fmt: skip
        assert place.closed("Bash", command=command) == "inside", command
    own = home / "work" / "1"
    assert place.closed("Bash", own, command=f"cd '{own}' && make test") is None
    assert place.closed("Bash", command=f"cat {place.user}/project/a.py") is None
    assert place.closed("Bash", command="echo $TOOLCRIB_HOMEWORK") is None


def test_arguments_of_other_tools_that_name_the_home_are_found(place: Place) -> None:
    ref = ToolRef("files", "write_file")
    token = str(place.home / "token")
    for arguments in (
        {"path": token},
        {"edits": [{"at": {"path": f"{place.home}/../crib/token"}}]},
        {"uri": f"file://{token}"},
    ):
        given: JsonObject = dict(arguments)
        assert place.guard.may_be_named(canonical(given))
        assert [each.closed for each in place.guard.touched(ref, given, "/")] == ["inside"], arguments
    harmless: JsonObject = {"text": f"The token is in {token}, do not read it.", "path": str(place.user)}
    assert place.guard.touched(ref, harmless, "/") == ()
    assert not place.guard.may_be_named(canonical({"path": "/etc/passwd"}))


def test_without_a_home_links_are_still_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    touched = HomeGuard().touched(ToolRef(CODING, "Read"), {"file_path": "link/x"}, str(tmp_path))
    assert touched == (TouchedPath(os.path.realpath("/etc") + "/x"),)


def test_the_crib_is_asked_before_its_own_program_is_changed(place: Place) -> None:
    program = place.user / "tools" / "crib"
    program.mkdir(parents=True)
    (place.user / "project" / "link").symlink_to(program)
    guard = HomeGuard(place.home, place.home / "work", place.user, (str(program),))
    for path, zone in (
        (program / "lib" / "evil.py", "decisive"),
        (place.user / "project" / "link" / "evil.py", "decisive"),
        (place.user / "tools" / "other.py", "project"),
    ):
        assert zone_of((guard.look(NamedPath(str(path))),), (str(place.user),)) == zone
