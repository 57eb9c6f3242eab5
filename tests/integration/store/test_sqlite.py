"""The SQLite file of the store: private, one transaction per turn of the loop, and no lasting faults."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from sqlalchemy import insert, select

from integration.store.databases import fetch_rows, run
from integration.store.files import commits_in_log, file_size_limit, mode, sibling, size
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.store.engine import open_store
from toolcrib.store.schema import names

pytestmark = pytest.mark.anyio


def make(path: Path, *, mode: int = 0o600, owner: int | None = None, content: bytes = b"") -> None:
    path.write_bytes(content)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)


def make_directory(path: Path) -> None:
    path.mkdir()


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def damage(path: Path) -> None:
    """Overwrite all pages but the first."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolcrib.db"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_all_files_are_private_under_any_umask(path: Path, sqlite_url: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with open_store(sqlite_url) as store:
            await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
            assert [mode(sibling(path, suffix)) for suffix in ("", "-wal", "-shm")] == [0o600] * 3
    finally:
        os.umask(before)


async def test_readable_file_is_made_private(path: Path, sqlite_url: str) -> None:
    make(path, mode=0o644)
    async with open_store(sqlite_url):
        assert mode(path) == 0o600


async def refusal_code(url: str) -> str:
    """Return the code of the error with which the store refuses to open."""
    with pytest.raises(ConfigError) as raised:
        async with open_store(url):
            pass
    return raised.value.code


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_symlink_instead_of_a_file_is_refused(path: Path, sqlite_url: str, suffix: str) -> None:
    target = sibling(path, ".target")
    make(target)
    link(sibling(path, suffix), target)
    assert await refusal_code(sqlite_url) == "file.unsafe"
    assert size(target) == 0


async def test_directory_instead_of_the_file_is_refused(path: Path, sqlite_url: str) -> None:
    make_directory(path)
    assert await refusal_code(sqlite_url) == "file.unsafe"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_file_of_another_user_is_refused(path: Path, sqlite_url: str) -> None:
    make(path, owner=12345)
    assert await refusal_code(sqlite_url) == "file.unsafe"


async def test_missing_directory_and_invalid_file_have_different_errors(path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        async with open_store(f"sqlite:///{path.parent}/nowhere/toolcrib.db"):
            pass
    make(path, content=b"Dear reader, this is not a database. " * 100)
    with pytest.raises(Unavailable, match="not a database"):
        async with open_store(f"sqlite:///{path}"):
            pass


@pytest.mark.parametrize("url", ["mysql://localhost/x", "sqlite://", "nonsense"])
async def test_unknown_kind_of_address_is_a_setting_error(url: str) -> None:
    assert await refusal_code(url) == "settings.invalid"


async def test_concurrent_writes_share_one_transaction(path: Path, sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        for turn in range(3):
            before = commits_in_log(path)
            rows = [{"form": "f", "name": f"{turn}-{n}", "server": "s", "tool": f"{turn}-{n}"} for n in range(20)]
            await asyncio.gather(*(store.write(insert(names).values(**row)) for row in rows))
            assert commits_in_log(path) == before + 1 or turn == 0


async def test_writes_fail_on_a_full_disk_and_work_again_without_a_restart(path: Path, sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        await store.write(insert(names).values(form="f", name="before", server="s", tool="before"))
        with file_size_limit(size(sibling(path, "-wal")) + 100):
            for number in range(3):
                row = {"form": "f", "name": f"lost {number}", "server": "s", "tool": "x" * 10_000}
                with pytest.raises(Unavailable) as raised:
                    await store.write(insert(names).values(**row))
                assert raised.value.code == "database.unavailable"
            found = await store.read(lambda connection: connection.scalars(select(names.c.name)).all())
            assert found == ["before"]
        await store.write(insert(names).values(form="f", name="after", server="s", tool="after"))
    assert fetch_rows(sqlite_url, "SELECT name FROM names ORDER BY name") == [("after",), ("before",)]


async def test_waiting_for_a_lock_does_not_block_the_loop(path: Path, sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        turns = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.write, insert(names).values(form="f", name="n", server="s", tool="t"))
            with anyio.fail_after(5):
                for turns in range(1, 11):  # noqa: B007
                    await anyio.sleep(0.01)
            other.execute("COMMIT")
        other.close()
        assert turns == 10
    assert fetch_rows(sqlite_url, "SELECT name FROM names") == [("n",)]


async def test_writes_fail_while_a_lock_is_held_and_work_again_afterwards(
    path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._PATIENCE", 0.1)
    async with open_store(sqlite_url) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(Unavailable, match="locked"), anyio.fail_after(5):
                await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
        other.execute("COMMIT")
        other.close()
        assert await store.write(insert(names).values(form="f", name="n", server="s", tool="t")) == (1,)


async def test_damaged_file_is_reported_as_damaged(path: Path, sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
    damage(path)
    with pytest.raises(Unavailable) as raised:
        async with open_store(sqlite_url) as store:
            await store.read(lambda connection: connection.scalars(select(names.c.name)).all())
    assert raised.value.code == "database.damaged"


async def test_write_ahead_log_is_checkpointed_during_operation(path: Path, sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        before = size(path)
        for number in range(10_000):
            row = {"form": "f", "name": f"n{number}", "server": "s", "tool": f"t{number}"}
            await store.write(insert(names).values(**row))
            if size(path) > before + 40_000:
                return
    pytest.fail("The log was never moved.")


async def test_power_durability_stores_writes(sqlite_url: str) -> None:
    async with open_store(sqlite_url, durability="power") as store:
        assert await store.write(insert(names).values(form="f", name="n", server="s", tool="t")) == (1,)
    assert fetch_rows(sqlite_url, "SELECT name FROM names") == [("n",)]


async def test_postgresql_without_its_extra_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "toolcrib.store.postgres", raising=False)
    with pytest.raises(Unavailable) as raised:
        async with open_store("postgresql://localhost/x"):
            pass
    assert raised.value.hint == "pip install 'toolcrib[postgres]'"


def test_opening_a_current_database_imports_neither_alembic_nor_psycopg(sqlite_url: str) -> None:
    program = f"""
import asyncio, sys
from toolcrib.store.engine import open_store
async def main():
    for _ in range(2):
        async with open_store({sqlite_url!r}):
            pass
asyncio.run(main())
print([name for name in ("alembic", "psycopg") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"


async def test_row_written_without_the_store_is_read(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        run(sqlite_url, "INSERT INTO names VALUES ('f', 'n', 's', 't')")
        found = await store.read(lambda connection: connection.scalars(select(names.c.name)).all())
    assert found == ["n"]
