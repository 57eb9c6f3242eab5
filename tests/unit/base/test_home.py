"""The home: private with any umask, refused where other users have access, held by one process at a time."""

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.base.home import (
    Home,
    HomeLock,
    RunInfo,
    clear_run,
    find_holder,
    owner_token,
    prepare_home,
    read_run,
    write_run,
)
from toolcrib.model.errors import ConfigError

INFO = RunInfo(os.getpid(), "http://127.0.0.1:4242", "serve", "0.1.0", "2026-01-01T00:00:00+00:00")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return prepare_home(tmp_path / "home")


@pytest.mark.usefixtures("umask")
def test_all_files_of_a_new_home_are_private(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "a" / "b" / "home")
    owner_token(home)
    write_run(home, INFO)
    assert HomeLock(home).try_acquire()
    assert all(mode(path) == 0o700 for path in (home.root, home.root.parent, home.tools, home.logs))
    assert all(mode(path) == 0o600 for path in home.root.iterdir() if path.is_file())
    assert {path.name for path in home.root.iterdir()} == {"token", "run.json", "lock", "tools", "logs"}


@pytest.mark.usefixtures("umask")
def test_loosened_modes_are_restored(home: Home) -> None:
    owner_token(home)
    files = [home.token_file, home.database, home.root / "toolcrib.db-wal", home.mcp_json, home.logs / "toolcrib.log"]
    for path in files:
        path.touch()
        path.chmod(0o666)
    for path in (home.root, home.tools, home.logs):
        path.chmod(0o777)
    prepare_home(home.root)
    assert all(mode(path) == 0o600 for path in files)
    assert all(mode(path) == 0o700 for path in (home.root, home.tools, home.logs))


def test_owners_files_in_the_tools_folder_keep_their_mode(home: Home) -> None:
    script = home.tools / "helper.sh"
    script.touch()
    script.chmod(0o755)
    prepare_home(home.root)
    assert mode(script) == 0o755


def test_file_in_place_of_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(ConfigError) as caught:
        prepare_home(tmp_path / "home")
    assert caught.value.code == "home.unsafe"


def test_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="cannot be used"):
        prepare_home(tmp_path / "home")


def test_own_link_leads_to_the_real_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    assert prepare_home(tmp_path / "home").root == (tmp_path / "real").resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("part", ["", "logs", "token"])
def test_part_that_belongs_to_another_user_is_refused(tmp_path: Path, part: str) -> None:
    home = prepare_home(tmp_path / "home")
    home.token_file.touch(mode=0o644)
    os.chown(home.root / part, 12_345, 12_345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        prepare_home(home.root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    os.chown(tmp_path / "home", 12_345, 12_345, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to another user"):
        prepare_home(tmp_path / "home")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_place_is_refused_with_the_reason(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        prepare_home(tmp_path / "home")
    tmp_path.chmod(0o700)


def test_only_old_temporary_files_are_removed(home: Home) -> None:
    old, fresh = home.root / ".run.json.0123.tmp", home.root / ".run.json.4567.tmp"
    old.touch()
    fresh.touch()
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    prepare_home(home.root)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_token_is_long_random_and_stable(tmp_path: Path) -> None:
    one, two = prepare_home(tmp_path / "one"), prepare_home(tmp_path / "two")
    assert owner_token(one) == owner_token(one) == one.token_file.read_text().strip()
    assert len(owner_token(one)) >= 43
    assert owner_token(one) != owner_token(two)


def test_concurrent_readers_get_the_same_token_and_leave_no_other_file(home: Home) -> None:
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(owner_token, [home] * 64))
    assert len(tokens) == 1
    assert [path.name for path in home.root.iterdir() if path.is_file()] == ["token"]


def test_readable_token_file_is_made_private(home: Home) -> None:
    token = owner_token(home)
    home.token_file.chmod(0o644)
    assert owner_token(home) == token
    assert mode(home.token_file) == 0o600


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 42 + b"\xff" * 10, b"a b " * 20])
def test_damaged_token_is_refused_and_not_replaced(home: Home, content: bytes) -> None:
    home.token_file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        owner_token(home)
    assert caught.value.code == "home.token"
    assert home.token_file.read_bytes() == content


@pytest.mark.usefixtures("alarm")
def test_token_that_is_a_link_pipe_or_directory_is_refused_without_blocking(home: Home, tmp_path: Path) -> None:
    def link(path: Path) -> None:
        path.symlink_to(tmp_path / "elsewhere")

    for plant, remove in ((link, os.unlink), (os.mkfifo, os.unlink), (os.mkdir, os.rmdir)):
        plant(home.token_file)
        with pytest.raises(ConfigError) as caught:
            owner_token(home)
        assert caught.value.code == "home.unsafe"
        remove(home.token_file)


def test_lock_has_one_holder_until_it_is_released(home: Home) -> None:
    first, second = HomeLock(home), HomeLock(home)
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert (first.held, second.held) == (True, False)
    first.release()
    first.release()
    assert second.try_acquire()
    assert second.holder_pid() == os.getpid()
    second.release()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_neither_blocks_the_lock_nor_fails_without_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = prepare_home(tmp_path / "home")
    lock = HomeLock(home, Path("/dev/full"))
    assert lock.try_acquire()
    lock.release()

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("toolcrib.base.home.write_beside", full)
    with pytest.raises(ConfigError, match=r"token cannot be written: No space left on device\.") as caught:
        owner_token(home)
    assert "disk space" in str(caught.value.hint)


def test_lock_file_that_is_a_link_is_refused(home: Home, tmp_path: Path) -> None:
    home.lock_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be opened"):
        HomeLock(home).try_acquire()
    assert not (tmp_path / "elsewhere").exists()


HOLD = """
import sys
from pathlib import Path
from toolcrib.base.home import *
home = prepare_home(Path(sys.argv[1]))
lock = HomeLock(home)
assert lock.try_acquire()
write_run(home, RunInfo(__import__("os").getpid(), "http://127.0.0.1:5", "serve", "0.1.0", "now"))
print("held", flush=True)
sys.stdin.read()
"""


def test_killed_holder_frees_the_home_and_is_not_reported_as_running(home: Home) -> None:
    command = [sys.executable, "-c", HOLD, str(home.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = HomeLock(home)
        assert not lock.try_acquire()
        assert lock.holder_pid() == holder.pid
        found = find_holder(home)
        assert found is not None
        assert found.pid == holder.pid
        holder.kill()
    assert find_holder(home) is None
    assert read_run(home) is None
    assert lock.try_acquire()
    lock.release()


def test_process_without_the_lock_is_not_the_holder(home: Home) -> None:
    write_run(home, INFO)
    assert read_run(home) == INFO
    assert find_holder(home) is None
    lock = HomeLock(home)
    assert lock.try_acquire()
    assert find_holder(home) == INFO
    lock.release()


def test_run_file_is_cleared_only_by_its_writer(home: Home) -> None:
    write_run(home, RunInfo(os.getppid(), INFO.url, "stdio", "0.1.0", INFO.started_at))
    clear_run(home)
    assert home.run_file.exists()
    write_run(home, INFO)
    clear_run(home)
    clear_run(home)
    assert not home.run_file.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://attacker.example:80"},
        {"url": "https://127.0.0.1:4242"},
        {"url": "http://127.0.0.1"},
        {"url": "http://127.0.0.1:99999"},
        {"url": "http://127.0.0.1:1@attacker.example:80"},
        {"kind": "something"},
        {"pid": 0},
        {"pid": -1},
        {"pid": "12"},
        {"pid": 2**40},
        {"version": None},
    ],
)
def test_run_file_with_an_invalid_value_is_ignored(home: Home, change: dict[str, object]) -> None:
    home.run_file.write_bytes(orjson.dumps(INFO.to_json() | change))
    assert read_run(home) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary() | st.recursive(st.none() | st.integers(-9, 9) | st.text(), st.lists).map(orjson.dumps))
def test_run_file_with_garbage_is_ignored(home: Home, content: bytes) -> None:
    home.run_file.write_bytes(content)
    assert read_run(home) is None


def test_reader_never_sees_a_partial_run_file(home: Home) -> None:
    write_run(home, INFO)

    def write_often() -> None:
        for _ in range(200):
            write_run(home, INFO)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_often)
        while not writing.done():
            assert read_run(home) == INFO
        writing.result()
