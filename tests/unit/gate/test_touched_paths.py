"""Paths of calls on a real file system: every path into the crib's home is recognised."""

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
class Layout:
    user: Path
    home: Path
    guard: HomeGuard

    def closed(self, tool: str, cwd: Path | None = None, **arguments: object) -> str | None:
        """Return why a call of the coding agent is refused, None if it is not."""
        where = str(cwd or self.user)
        touched = self.guard.touched(ToolRef(CODING, tool), dict(arguments), where)
        found = closed_paths(touched, (where,))
        return found[0].closed if found else None


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    user = Path(os.path.realpath(tmp_path)) / "user"
    home = user / "data files" / "crib"
    for folder in (home / "tools", home / "work" / "1", home / "work" / "2", user / "project" / "src"):
        folder.mkdir(parents=True)
    for file in (home / "token", home / "toolcrib.toml", user / "project" / "a.py"):
        file.write_text("x", encoding="utf-8")
    return Layout(user, home, HomeGuard(home, home / "work", user))


def test_files_of_the_home_are_closed_in_every_spelling(layout: Layout) -> None:
    crib, user = layout.home, layout.user
    for file in (
        f"{crib}/token", "data files/crib/token", "~/data files/crib/token", f"{user}/project/../data files/crib/token",
        f"{crib}//token", f"{crib}/./token", f" {crib}/token ", f"file://{crib}/token".replace(" ", "%20"),
        f"{crib}/tools/new/evil.py", f"{crib}", f"\ufeff{crib}/token",
    ):  # fmt: skip
        assert layout.closed("Read", file_path=file) == "inside", file
        assert layout.closed("Write", file_path=file) == "inside", file
        assert layout.closed("NotebookEdit", notebook_path=file) == "inside", file
        assert layout.closed("Grep", pattern="x", path=file) == "inside", file


def test_links_into_the_home_are_followed(layout: Layout) -> None:
    project = layout.user / "project"
    (project / "to_home").symlink_to(layout.home)
    (project / "to_link").symlink_to("to_home")
    (project / "to_file").symlink_to(layout.home / "token")
    (project / "dangling").symlink_to(layout.home / "tools" / "new.py")
    for name in ("to_home/token", "to_link/tools/evil.py", "to_file", "dangling", "to_home"):
        assert layout.closed("Write", project, file_path=name) == "inside", name
        assert layout.closed("Read", project, file_path=name) == "inside", name
    assert layout.closed("Glob", project, pattern="to_home/*") == "inside"


def test_hard_links_to_files_of_the_home_are_closed(layout: Layout) -> None:
    project = layout.user / "project"
    (project / "innocent").hardlink_to(layout.home / "token")
    (project / "twin").hardlink_to(project / "a.py")
    assert layout.closed("Read", project, file_path="innocent") == "inside"
    assert layout.closed("Read", project, file_path="twin") is None
    assert layout.guard.look(NamedPath(str(project / "twin"))).is_linked


@pytest.mark.skipif(not os.path.lexists("/proc/self/cwd"), reason="There is no /proc here.")
@pytest.mark.parametrize("link", ["self/cwd", "self/root", "thread-self/cwd", "1/root", "self/fd/3", "self/task/1/cwd"])
def test_paths_through_a_process_are_closed(layout: Layout, link: str) -> None:
    assert layout.closed("Read", file_path=f"/proc/{link}/token") == "indirect"
    (layout.user / "project" / "self").symlink_to("/proc/self")
    name = link.partition("/")[2]
    assert layout.closed("Read", layout.user / "project", file_path=f"self/{name}/token") == "indirect"
    assert layout.closed("Read", file_path="/dev/fd/0") == "indirect"
    assert layout.closed("Read", file_path="/proc/cpuinfo") is None
    assert layout.closed("Read", file_path="/proc/self/status") is None


def test_other_spelling_of_a_directory_is_recognised_by_its_identity(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.stat` is replaced to imitate a file system that ignores case."""
    real = os.stat

    def stat(path: str) -> os.stat_result:
        return real(path.replace("CRIB", "crib"))

    monkeypatch.setattr(os, "stat", stat)
    assert layout.closed("Write", file_path=str(layout.home.parent / "CRIB" / "tools" / "evil.py")) == "inside"
    assert layout.closed("Write", file_path=str(layout.home.parent / "CRAB" / "evil.py")) is None


def test_searches_in_directories_that_contain_the_home_are_closed(layout: Layout) -> None:
    for directory in ("/", str(layout.user), str(layout.home.parent), ".", "~", "data files"):
        assert layout.closed("Grep", pattern="x", path=directory) == "around", directory
        assert layout.closed("LS", path=directory) == "around", directory
        assert layout.closed("Glob", pattern="**/*", path=directory) == "around", directory
    assert layout.closed("Grep", pattern="x") == "around"
    assert layout.closed("Glob", pattern="token") == "around"
    assert layout.closed("Glob", pattern="{data files,x}/**") == "around"
    assert layout.closed("Glob", pattern="project/*.py") is None
    assert layout.closed("Grep", layout.user / "project", pattern="x") is None


def test_worktree_is_open_to_its_task_but_the_rest_of_the_home_is_closed(layout: Layout) -> None:
    own, other = layout.home / "work" / "1", layout.home / "work" / "2"
    assert layout.closed("Edit", own, file_path="a.py") is None
    assert layout.closed("Grep", own, pattern="x") is None
    assert layout.closed("Edit", own, file_path="../2/a.py") == "inside"
    assert layout.closed("Edit", own, file_path="../../token") == "inside"
    assert layout.closed("Read", layout.home / "work", file_path="1/a.py") == "inside"
    assert layout.closed("Edit", other, file_path=str(own / "a.py")) == "inside"
    (own / "token").hardlink_to(layout.home / "token")
    assert layout.closed("Read", own, file_path="token") == "inside"


def test_commands_that_name_the_home_are_closed(layout: Layout) -> None:
    home = layout.home
    for command in (
        f"cat '{home}/token'", f"cat {str(home).replace(' ', chr(92) + ' ')}/token", "cat ~/'data files/crib/token'",
        'cat "$HOME/data files/crib/token"', "cat ${TOOLCRIB_HOME}/token", "ls $TOOLCRIB_HOME",
    ):  # fmt: skip
        assert layout.closed("Bash", command=command) == "inside", command
    own = home / "work" / "1"
    assert layout.closed("Bash", own, command=f"cd '{own}' && make test") is None
    assert layout.closed("Bash", command=f"cat {layout.user}/project/a.py") is None
    assert layout.closed("Bash", command="echo $TOOLCRIB_HOMEWORK") is None


def test_home_is_recognised_in_arguments_of_other_tools(layout: Layout) -> None:
    ref = ToolRef("files", "write_file")
    token = str(layout.home / "token")
    for arguments in (
        {"path": token},
        {"edits": [{"at": {"path": f"{layout.home}/../crib/token"}}]},
        {"uri": f"file://{token}"},
    ):
        given: JsonObject = dict(arguments)
        assert layout.guard.may_be_named(canonical(given))
        assert [each.closed for each in layout.guard.touched(ref, given, "/")] == ["inside"], arguments
    harmless: JsonObject = {"text": f"The token is in {token}, do not read it.", "path": str(layout.user)}
    assert layout.guard.touched(ref, harmless, "/") == ()
    assert not layout.guard.may_be_named(canonical({"path": "/etc/passwd"}))


def test_links_are_followed_without_a_home(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    touched = HomeGuard().touched(ToolRef(CODING, "Read"), {"file_path": "link/x"}, str(tmp_path))
    assert touched == (TouchedPath(os.path.realpath("/etc") + "/x"),)


def test_programs_own_directory_is_decisive(layout: Layout) -> None:
    program = layout.user / "tools" / "crib"
    program.mkdir(parents=True)
    (layout.user / "project" / "link").symlink_to(program)
    guard = HomeGuard(layout.home, layout.home / "work", layout.user, (str(program),))
    for path, zone in (
        (program / "lib" / "evil.py", "decisive"),
        (layout.user / "project" / "link" / "evil.py", "decisive"),
        (layout.user / "tools" / "other.py", "project"),
    ):
        assert zone_of((guard.look(NamedPath(str(path))),), (str(layout.user),)) == zone
