"""The journal of a store with exclusive use of its database: records are durable at once and written in batches."""

import asyncio
import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from sqlalchemy import insert

from integration.gate.audit.calls import call, make_calls
from integration.store.databases import fetch_rows, run
from integration.store.files import commits_in_log, file_size_limit, mode, sibling, size
from toolcrib.base.settings import Durability
from toolcrib.gate.audit.audit import Audit
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.store.audit import Filters
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import open_store
from toolcrib.store.schema import names

pytestmark = pytest.mark.anyio

HASHES = "SELECT id, hash FROM audit ORDER BY id"


class AuditFolder:
    """A folder with a database, its journal and the head of its chain, as in a home."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.database = folder / "toolcrib.db"
        self.url = f"sqlite:///{self.database}"
        self.journal = sibling(self.database, "-pending")
        self.head = folder / "audit.head"

    def crash_copy(self, name: str) -> "AuditFolder":
        """Copy all files as they are now, as a process killed now would leave them."""
        copy = self.folder.with_name(name)
        shutil.copytree(self.folder, copy)
        return AuditFolder(copy)

    async def records(self, *, durability: Durability = "process", more: int = 0) -> list[int]:
        """Open the chain, verify it, and return the numbers of its records."""
        async with open_store(self.url, durability=durability, alone=True) as store, Audit(store, self.head) as audit:
            await make_calls(audit, more)
            verification = await audit.verify()
            assert verification.findings == ()
        found = [number for number, _ in fetch_rows(self.url, HASHES)]
        assert verification.records == len(found)
        return found

    async def calls_without_outcome(self) -> list[str]:
        """Return the calls that have an intent and no outcome."""
        async with open_store(self.url, alone=True) as store, Audit(store, self.head) as audit:
            found = await audit.find(Filters())
        ended = {record["call"] for record in found if record["phase"] == "outcome"}
        return [record["call"] for record in found if record["call"] not in ended]


@pytest.fixture
def folder(tmp_path: Path) -> AuditFolder:
    return AuditFolder(tmp_path / "home")


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 nothing announces it
            await anyio.sleep(0.005)


def count(folder: AuditFolder) -> int:
    """Count the records that another connection finds in the database."""
    return len(fetch_rows(folder.url, HASHES))


async def test_sequential_calls_share_commits(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        before = commits_in_log(folder.database)
        await make_calls(audit, 200)
        assert commits_in_log(folder.database) - before < 200
        await until(lambda: count(folder) == 400)
    assert size(folder.journal) == 0
    assert await folder.records() == list(range(1, 401))


async def test_call_after_a_pause_is_committed_in_the_next_loop_turn(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        for number in range(1, 4):
            await anyio.sleep(0.05)
            await make_calls(audit, 1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert count(folder) == 2 * number


async def test_queries_include_records_that_are_only_in_the_journal(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        for number in range(1, 50):
            assert await call(audit, number).intent() == number
            found = await audit.find(Filters())
            assert [record["call"] for record in found[:2]] == [f"call-{n}" for n in (number, number - 1) if n]
            assert (await audit.verify()).records == number


async def test_intent_of_a_running_call_is_visible_to_other_connections(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 3)
        await call(audit, 4).intent()
        await until(lambda: count(folder) == 7)


async def test_kill_at_any_moment_loses_no_acknowledged_record(
    folder: AuditFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes: list[tuple[AuditFolder, set[int]]] = []
    acknowledged: set[int] = set()
    write = os.pwrite

    def save_crash() -> None:
        crashes.append((folder.crash_copy(f"killed{len(crashes)}"), set(acknowledged)))

    def torn_write(descriptor: int, data: bytes, offset: int) -> int:
        save_crash()
        if os.path.samestat(os.fstat(descriptor), folder.journal.stat()):
            for part in (1, 70, len(data) // 2, len(data) - 1):
                write(descriptor, data[:part], offset)
                save_crash()
        written = write(descriptor, data, offset)
        save_crash()
        return written

    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        monkeypatch.setattr(os, "pwrite", torn_write)
        for number in range(5):
            record = call(audit, number, arguments={"text": "x" * 97 * number})
            acknowledged.add(await record.intent())
            save_crash()
            if number == 2:
                await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
            acknowledged.add(await record.outcome(is_error=False, duration_ms=1.0))
            save_crash()
            if number in (1, 3):
                await store.caught_up()
        monkeypatch.undo()
    assert len(crashes) > 50
    for killed, known in crashes:
        found = await killed.records(more=1)
        assert found == list(range(1, len(found) + 1))
        assert len(known) <= len(found) - 2 <= len(known) + 2, "one call may have been in flight and gets an outcome"
        assert await killed.calls_without_outcome() == []


async def test_journal_recovery_can_be_repeated_after_a_kill(
    folder: AuditFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 2)
        await call(audit, 3).intent()
        killed = folder.crash_copy("killed")
    copies: list[AuditFolder] = []
    write = os.pwrite

    def copy_and_write(descriptor: int, data: bytes, offset: int) -> int:
        copies.append(killed.crash_copy(f"again{len(copies)}"))
        return write(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", copy_and_write)
        assert await killed.records() == [1, 2, 3, 4, 5, 6]
    assert copies
    for copy in copies:
        assert await copy.records() == [1, 2, 3, 4, 5, 6]
        assert await copy.calls_without_outcome() == []
    assert fetch_rows(folder.url, HASHES) == fetch_rows(killed.url, HASHES)[:5]


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_journal_recovery_keeps_the_record_numbers(folder: AuditFolder, durability: Durability) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 5)
        killed = folder.crash_copy("killed")
        assert count(killed) < 10
    assert await killed.records(durability=durability) == list(range(1, 11))
    assert fetch_rows(killed.url, HASHES) == fetch_rows(folder.url, HASHES)
    assert size(killed.journal) == 0


async def test_journal_that_was_not_recovered_is_kept(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 5)
        killed = folder.crash_copy("killed")
    async with open_store(killed.url, alone=True):
        pass
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        assert (await audit.verify()).records < 10
    assert await killed.records() == list(range(1, 11))


async def test_recovered_records_are_appended_when_their_numbers_are_taken(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 5)
        killed = folder.crash_copy("killed")
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        await audit.record({"phase": "intent", "call": "of another"})
    await killed.records()
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        found = {(record["call"], record["phase"]) for record in await audit.find(Filters())}
    assert {(f"call-{number}", phase) for number in range(5) for phase in ("intent", "outcome")} <= found


async def killed_with_pending_intent(folder: AuditFolder, calls: int) -> AuditFolder:
    """Return the files of a killed process: calls in the database and an intent in the journal."""
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, calls)
        await store.caught_up()
        await call(audit, calls + 1).intent()
        return folder.crash_copy(f"{folder.folder.name}-killed")


async def test_journal_of_another_database_is_ignored_and_reported(
    folder: AuditFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = await killed_with_pending_intent(folder, 5)
    other = await killed_with_pending_intent(AuditFolder(tmp_path / "other"), 3)
    shutil.copyfile(killed.journal, other.journal)
    async with open_store(other.url, alone=True) as store, Audit(store, other.head) as audit:
        verification = await audit.verify()
    assert verification.records == 6
    assert "another database" in caplog.text
    assert "removed or replaced" in verification.findings[0].message


async def test_removed_journal_is_a_lasting_finding(folder: AuditFolder) -> None:
    killed = await killed_with_pending_intent(folder, 5)
    killed.journal.unlink()
    for _ in range(2):
        async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
            verification = await audit.verify()
        assert "removed or replaced" in verification.findings[0].message
        assert verification.records == 10, "the call that only the journal had is lost"


async def test_emptied_journal_is_found(folder: AuditFolder) -> None:
    killed = await killed_with_pending_intent(folder, 5)
    killed.journal.write_bytes(b"")
    async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
        assert not (await audit.verify()).ok


async def test_journal_may_be_removed_after_a_clean_stop(folder: AuditFolder) -> None:
    await folder.records(more=2)
    folder.journal.unlink()
    assert len(await folder.records()) == 4


async def test_call_in_flight_at_a_kill_gets_an_unknown_outcome(folder: AuditFolder) -> None:
    killed = await killed_with_pending_intent(folder, 2)
    assert await killed.records() == [1, 2, 3, 4, 5, 6]
    async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
        outcome, intent, *_ = await audit.find(Filters())
    assert (intent["phase"], outcome["phase"], outcome["outcome"]) == ("intent", "outcome", "unknown")
    same = ("call", "door", "principal", "server", "tool", "argumentsDigest", "arguments", "decision")
    assert [outcome[key] for key in same] == [intent[key] for key in same]
    assert outcome["isError"] is True
    assert len(await killed.records()) == 6, "the outcome is added once"


async def test_call_in_flight_at_a_clean_stop_gets_no_outcome(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await call(audit, 1).intent()
    assert await folder.records() == [1]


async def test_invalid_journal_content_is_ignored(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 2)
    for content in (b"\n\n", b"\xff" * 5000, b"x" * 64 + b' {"id":5,"a":1,"prev":"' + b"0" * 64 + b'"}\n'):
        folder.journal.write_bytes(content)
        assert await folder.records() == [1, 2, 3, 4]


async def test_journal_is_private_and_a_symlink_is_refused(folder: AuditFolder) -> None:
    before = os.umask(0)
    try:
        async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
            await make_calls(audit, 1)
            assert mode(folder.journal) == 0o600
    finally:
        os.umask(before)
    folder.journal.rename(folder.folder / "elsewhere")
    folder.journal.symlink_to(folder.folder / "elsewhere")
    with pytest.raises(ConfigError) as raised:
        async with open_store(folder.url, alone=True):
            pass
    assert raised.value.code == "file.unsafe"


async def test_power_durability_does_not_use_the_journal(folder: AuditFolder) -> None:
    async with open_store(folder.url, durability="power", alone=True) as store, Audit(store, folder.head) as audit:
        for number in range(1, 6):
            await make_calls(audit, 1)
            assert count(folder) == 2 * number
        assert b"prev" not in folder.journal.read_bytes(), "the journal contains a record"


async def test_locked_database_refuses_calls(folder: AuditFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._PATIENCE", 0.1)
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 1)
        await store.caught_up()
        with closing(sqlite3.connect(folder.database, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(Unavailable, match="not made"), anyio.fail_after(10):
                    await call(audit).intent()
        await make_calls(audit, 1)
        assert (await audit.verify()).records == 4


async def test_database_is_locked_while_the_journal_has_records(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 2)
        with closing(sqlite3.connect(folder.database, isolation_level=None, timeout=0)) as other_connection:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other_connection.execute("BEGIN IMMEDIATE")
            await store.caught_up()
            other_connection.execute("BEGIN IMMEDIATE")


async def test_full_disk_refuses_calls_and_loses_no_record(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        with file_size_limit(size(sibling(folder.database, "-wal")) + 100):
            with pytest.raises(Unavailable):
                await store.caught_up()
            for _ in range(3):
                with pytest.raises(Unavailable, match="not made"):
                    await call(audit).intent()
            with pytest.raises(Unavailable):
                await audit.verify()
            assert len(await audit.find(Filters(limit=1000))) == 40
        killed = folder.crash_copy("killed")
        await make_calls(audit, 1)
        assert (await audit.verify()).records == 44
    assert await folder.records() == list(range(1, 45))
    assert await killed.records() == list(range(1, 43))


async def test_journal_is_committed_by_itself_when_the_disk_has_space(
    folder: AuditFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._RETRY", 0.05)
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        with file_size_limit(size(sibling(folder.database, "-wal")) + 100):
            await anyio.sleep(0.1)
            assert count(folder) == 40
        await until(lambda: count(folder) == 42)


async def test_store_closed_on_a_full_disk_keeps_its_journal(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        before = resource_limit(size(sibling(folder.database, "-wal")) + 100)
    resource_limit(before)
    assert await folder.records() == list(range(1, 43))


def resource_limit(size: int) -> int:
    """Set the maximum size of files and return the previous one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return before[0]


async def test_failed_write_does_not_change_pending_record_numbers(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
        for number in (1, 2, 3):
            assert await call(audit, number).intent() == number
            with pytest.raises(ConstraintError):
                await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
        assert [record["call"] for record in await audit.find(Filters())] == ["call-3", "call-2", "call-1"]
        assert (await audit.verify()).ok


async def test_records_larger_than_the_journal_are_stored(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        for text in ("x" * 3_000_000, "y", "z" * 400_000, "z" * 400_000, "z" * 400_000):
            await audit.record({"phase": "intent", "text": text})
        killed = folder.crash_copy("killed")
    assert await folder.records() == await killed.records() == [1, 2, 3, 4, 5]


async def test_concurrent_callers_get_numbers_without_gaps(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        for _ in range(3):
            await asyncio.gather(*(make_calls(audit, 3) for _ in range(20)))
        assert (await audit.verify()).records == 3 * 20 * 3 * 2


async def test_cut_tail_is_found_although_the_head_is_written_per_commit(folder: AuditFolder) -> None:
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        await make_calls(audit, 5)
        await store.caught_up()
        run(folder.url, "DELETE FROM audit WHERE id > 7")
        assert not (await audit.verify()).ok
    async with open_store(folder.url, alone=True) as store, Audit(store, folder.head) as audit:
        assert not (await audit.verify()).ok
