"""Writing configuration files: atomic, never over another change, and with undo."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib.base.files.lock import locked
from toolcrib.base.files.reading import content_digest
from toolcrib.base.files.undo import last_changed
from toolcrib.base.files.write import WriteContext, undo_change
from toolcrib.model.errors import ConfigError, Conflict, Denied, NotFound, Unavailable
from toolcrib.servers.edit.entries import add_server, apply_change, remove_server
from toolcrib.servers.readers.read import ConfigFile

ALL = bool(os.environ.get("TOOLCRIB_TEST_ALL"))
"""Whether `make test-all` runs these tests, so that they may take minutes."""
ROUNDS = 1000 if ALL else 60
KILLS = 300 if ALL else 8
CALLS = ("write", "fsync", "rename", "unlink", "fchmod") if ALL else ("rename",)

needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


@pytest.fixture
def writing(tmp_path: Path) -> WriteContext:
    """A user's home and the directory of backups."""
    (tmp_path / "home").mkdir()
    return WriteContext(tmp_path / "home", tmp_path / "crib" / "backups", tmp_path / "crib")


@pytest.fixture
def place(writing: WriteContext) -> ConfigFile:
    """A file of Cursor with one server, a comment and a byte order mark."""
    file = writing.home / "mcp.json"
    file.write_bytes(b'\xef\xbb\xbf{\r\n  // mine\r\n  "mcpServers": {"a": {"command": "x"}}\r\n}\r\n')
    file.chmod(0o640)
    return ConfigFile("cursor", "user", file)


def test_change_keeps_bom_line_ends_and_mode_and_is_undone_byte_for_byte(
    place: ConfigFile, writing: WriteContext
) -> None:
    """Makes two changes and undoes both."""
    before = place.file.read_bytes()
    change = apply_change(place, add_server(place, "b", {"command": "y"}), writing)
    middle = place.file.read_bytes()
    assert change.changed
    assert middle.startswith(b"\xef\xbb\xbf{\r\n  // mine\r\n")
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o640
    apply_change(place, remove_server(place, "a"), writing)
    undo_change(place.file, writing)
    assert place.file.read_bytes() == middle
    undo_change(place.file, writing)
    assert place.file.read_bytes() == before
    with pytest.raises(NotFound):
        undo_change(place.file, writing)


def test_new_file_is_private_and_undo_removes_it(writing: WriteContext) -> None:
    """It has mode 0600, also in new directories."""
    place = ConfigFile("cursor", "project", writing.home / "project" / ".cursor" / "mcp.json")
    apply_change(place, add_server(place, "a", {"command": "x"}), writing)
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
    undo_change(place.file, writing)
    assert not place.file.exists()


def test_own_file_is_always_private(writing: WriteContext) -> None:
    """A changed mode is corrected."""
    place = ConfigFile("toolcrib", "user", writing.home.parent / "crib" / "mcp.json")
    apply_change(place, add_server(place, "a", {"command": "x"}), writing)
    place.file.chmod(0o644)
    apply_change(place, add_server(place, "b", {"command": "x"}), writing)
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_backups_are_private_under_any_umask(place: ConfigFile, writing: WriteContext, umask: int) -> None:
    """The directories are private too, because file names can be revealing."""
    writing.backups.parent.mkdir()
    before = os.umask(umask)
    try:
        apply_change(place, add_server(place, "b", {"command": "y"}), writing)
    finally:
        os.umask(before)
    kept = [writing.backups, *writing.backups.rglob("*")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o700, 0o700, 0o600]


def test_last_changed_file_is_found_until_its_change_is_undone(place: ConfigFile, writing: WriteContext) -> None:
    """Unreadable records are skipped."""
    with pytest.raises(NotFound) as caught:
        last_changed(writing.backups)
    assert caught.value.code == "config.nothing_to_undo"
    other = ConfigFile("cursor", "user", writing.home / "other.json")
    for number, each in enumerate((place, other)):
        apply_change(each, add_server(each, "b", {"command": "y"}), writing)
        for record in writing.backups.rglob("*.undo"):
            if str(each.file).encode() in record.read_bytes():
                os.utime(record, ns=(number, number))
    damaged = writing.backups / "0" / "00000001.undo"
    damaged.parent.mkdir()
    damaged.write_bytes(b"not a record")
    assert last_changed(writing.backups) == other.file
    undo_change(other.file, writing)
    assert last_changed(writing.backups) == place.file


def test_unchanged_content_is_not_written(place: ConfigFile, writing: WriteContext) -> None:
    """It also adds no step to undo."""
    before = place.file.stat()
    change = apply_change(place, lambda text: text, writing)
    assert not change.changed
    assert place.file.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(NotFound):
        undo_change(place.file, writing)


def test_change_of_a_stale_version_is_a_conflict(place: ConfigFile, writing: WriteContext) -> None:

    seen = content_digest(place.file.read_bytes())
    apply_change(place, add_server(place, "b", {"command": "y"}), writing, expected=seen)
    with pytest.raises(Conflict) as caught:
        apply_change(place, remove_server(place, "a"), writing, expected=seen)
    assert caught.value.code == "config.changed"


def test_file_saved_by_an_editor_during_a_change_is_not_overwritten(place: ConfigFile, writing: WriteContext) -> None:

    def meddle(text: str) -> str:
        place.file.write_text('{"mcpServers": {}}', "utf-8")
        return add_server(place, "b", {"command": "y"})(text)

    with pytest.raises(Conflict):
        apply_change(place, meddle, writing)
    assert place.file.read_text("utf-8") == '{"mcpServers": {}}'
    assert [path.name for path in writing.home.iterdir()] == ["mcp.json"]


def test_undo_refuses_to_overwrite_a_later_change(place: ConfigFile, writing: WriteContext) -> None:

    apply_change(place, add_server(place, "b", {"command": "y"}), writing)
    place.file.write_text('{"mcpServers": {"mine": {"command": "z"}}}', "utf-8")
    with pytest.raises(Conflict):
        undo_change(place.file, writing)


def test_symlink_inside_the_home_is_followed_and_kept(place: ConfigFile, writing: WriteContext) -> None:
    """Dotfile repositories keep the real file elsewhere in the home."""
    link = writing.home / ".cursor" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(place.file)
    linked = ConfigFile("cursor", "user", link)
    apply_change(linked, add_server(linked, "b", {"command": "y"}), writing)
    assert link.is_symlink()
    assert b'"b"' in place.file.read_bytes()


def test_symlink_out_of_the_home_or_to_a_missing_file_is_refused(writing: WriteContext, tmp_path: Path) -> None:

    outside = tmp_path / "outside.json"
    outside.write_text("{}", "utf-8")
    link = writing.home / "mcp.json"
    link.symlink_to(outside)
    place = ConfigFile("cursor", "user", link)
    with pytest.raises(Denied) as caught:
        apply_change(place, add_server(place, "a", {"command": "x"}), writing)
    assert caught.value.code == "config.link"
    assert outside.read_text("utf-8") == "{}"
    outside.unlink()
    with pytest.raises(Denied):
        apply_change(place, add_server(place, "a", {"command": "x"}), writing)


def test_read_only_file_is_refused_before_any_change(place: ConfigFile, writing: WriteContext) -> None:
    """This holds for root too, who could write it."""
    place.file.chmod(0o444)
    with pytest.raises(ConfigError) as caught:
        apply_change(place, add_server(place, "b", {"command": "y"}), writing)
    assert caught.value.code == "config.not_writable"
    assert str(place.file) in caught.value.message
    assert not writing.backups.exists()


@needs_user
def test_read_only_directory_is_refused_before_any_change(place: ConfigFile, writing: WriteContext) -> None:

    writing.home.chmod(0o555)
    try:
        with pytest.raises(ConfigError) as caught:
            apply_change(place, add_server(place, "b", {"command": "y"}), writing)
        assert caught.value.code == "config.not_writable"
    finally:
        writing.home.chmod(0o755)


def test_lock_held_too_long_is_an_error(place: ConfigFile, writing: WriteContext) -> None:

    hurried = WriteContext(writing.home, writing.backups, writing.crib, lock_seconds=0.05)
    with locked(writing.home), pytest.raises(Unavailable) as caught:
        apply_change(place, add_server(place, "b", {"command": "y"}), hurried)
    assert caught.value.code == "config.locked"


def test_leftovers_of_an_interrupted_write_are_removed_by_the_next(place: ConfigFile, writing: WriteContext) -> None:
    """Other temporary files stay."""
    left = writing.home / ".mcp.json.0123456789abcdef.toolcrib.tmp"
    other = writing.home / ".mcp.json.mine.tmp"
    left.write_text("half", "utf-8")
    other.write_text("keep", "utf-8")
    apply_change(place, add_server(place, "b", {"command": "y"}), writing)
    assert not left.exists()
    assert other.exists()


WRITER = """
import sys
from pathlib import Path
from toolcrib.base.files.write import WriteContext
from toolcrib.servers.edit.entries import apply_change, put_server
from toolcrib.servers.readers.read import ConfigFile
home, who, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
place = ConfigFile("cursor", "user", home / "mcp.json")
writing = WriteContext(home, home / "backups", lock_seconds=60)
for number in range(rounds):
    print(number, flush=True)
    apply_change(place, put_server(place, f"{who}-{number}", {"command": "x", "args": [who] * 20}), writing)
"""


COUNTER = """
import json, sys
from pathlib import Path
from toolcrib.base.files.write import WriteContext
from toolcrib.servers.edit.entries import apply_change, put_server
from toolcrib.servers.readers.read import ConfigFile
home, who, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
place = ConfigFile("cursor", "user", home / "mcp.json")
writing = WriteContext(home, home / "backups", lock_seconds=60)
for number in range(rounds):
    def count(text):
        held = json.loads(text)["mcpServers"].get(who, {"args": ["0"]})
        assert held["args"] == [str(number)], (who, number, held)
        return put_server(place, who, {"command": "x", "args": [str(number + 1)]})(text)
    apply_change(place, count, writing)
"""


def _writer(home: Path, who: str, rounds: int, program: str = WRITER) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, str(home), who, str(rounds)], stdout=subprocess.PIPE)


def _run_both(home: Path, program: str, rounds: int) -> dict[str, Any]:
    """Return the servers after two processes edited one file concurrently."""
    file = home / "mcp.json"
    file.write_text('{"mcpServers": {}}', "utf-8")
    writers = [_writer(home, who, rounds, program) for who in ("one", "two")]
    for writer in writers:
        writer.communicate(timeout=300)
        assert writer.returncode == 0
    return json.loads(file.read_text("utf-8"))["mcpServers"]


def test_two_processes_adding_to_one_file_lose_nothing(tmp_path: Path) -> None:

    names = _run_both(tmp_path, WRITER, 60)
    assert set(names) == {f"{who}-{number}" for who in ("one", "two") for number in range(60)}


def test_two_processes_changing_one_file_keep_each_others_changes(tmp_path: Path) -> None:
    """Each process counts in its own entry and checks it at every step."""
    servers = _run_both(tmp_path, COUNTER, ROUNDS)
    assert {name: entry["args"] for name, entry in servers.items()} == {"one": [str(ROUNDS)], "two": [str(ROUNDS)]}


def test_killed_writer_leaves_a_whole_file_that_can_be_changed(tmp_path: Path) -> None:
    """The file is always the result of finished changes."""
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}', "utf-8")
    place, writing = ConfigFile("cursor", "user", file), WriteContext(tmp_path, tmp_path / "backups")
    for number in range(KILLS):
        writer = _writer(tmp_path, f"k{number}", 10_000)
        assert writer.stdout is not None
        # The writer announces each change and is killed somewhere in the last announced one.
        for _ in range(number % 5 + 1):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=10)
        servers = json.loads(file.read_text("utf-8"))["mcpServers"]
        assert all(entry["command"] == "x" for entry in servers.values())
        apply_change(place, lambda _: '{"mcpServers": {}}', writing)
        assert not list(tmp_path.glob(".mcp.json.*"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs strace")
def test_writer_killed_at_any_system_call_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """Sends SIGKILL at the n-th write, flush, rename or removal, for every n."""
    if subprocess.run(["sh", "-c", "command -v strace"], stdout=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("strace is not installed")
    old = '{"mcpServers": {}}'
    seen: set[str] = set()
    for call in CALLS:
        for nth in range(1, 40):
            home = tmp_path / f"{call}-{nth}"
            home.mkdir()
            file = home / "mcp.json"
            file.write_text(old, "utf-8")
            trace = [
                "strace",
                "-f",
                "-o",
                "/dev/null",
                "-e",
                f"trace={call}",
                "-e",
                f"inject={call}:signal=SIGKILL:when={nth}",
            ]
            done = subprocess.run(
                [*trace, sys.executable, "-c", WRITER, str(home), "w", "1"],
                check=False,
                capture_output=True,
                timeout=60,
            )
            content = file.read_text("utf-8")
            assert content == old or set(json.loads(content)["mcpServers"]) == {"w-0"}
            seen.add("old" if content == old else "new")
            if done.returncode == 0:
                break
    assert seen == {"old", "new"}
