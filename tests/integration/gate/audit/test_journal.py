"""Who is alone with its database records ahead of it: durable at once, in the database soon, and never lost between."""

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


class Place:
    """A folder with a database, its journal and the head of its chain, as in a home."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.database = folder / "toolcrib.db"
        self.url = f"sqlite:///{self.database}"
        self.journal = sibling(self.database, "-pending")
        self.head = folder / "audit.head"

    def as_after_a_crash(self, name: str) -> "Place":
        """A copy of all files as they are now, which is what a process leaves that is killed now."""
        copy = self.folder.with_name(name)
        shutil.copytree(self.folder, copy)
        return Place(copy)

    async def records(self, *, durability: Durability = "process", more: int = 0) -> list[int]:
        """Open it, find the chain whole, and give the numbers of the records."""
        async with open_store(self.url, durability=durability, alone=True) as store, Audit(store, self.head) as audit:
            await make_calls(audit, more)
            verification = await audit.verify()
            assert verification.findings == ()
        found = [number for number, _ in fetch_rows(self.url, HASHES)]
        assert verification.records == len(found)
        return found

    async def unsettled(self) -> list[str]:
        """The calls that have an intent and no outcome."""
        async with open_store(self.url, alone=True) as store, Audit(store, self.head) as audit:
            found = await audit.find(Filters())
        ended = {record["call"] for record in found if record["phase"] == "outcome"}
        return [record["call"] for record in found if record["call"] not in ended]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


async def until(fits: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not fits():  # noqa: ASYNC110 there is nothing to wait for: the looker is a stranger
            await anyio.sleep(0.005)


def count(place: Place) -> int:
    """How many records a stranger finds in the database."""
    return len(fetch_rows(place.url, HASHES))


async def test_calls_one_after_the_other_share_commits_and_all_come_into_the_database(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        before = commits_in_log(place.database)
        await make_calls(audit, 200)
        assert commits_in_log(place.database) - before < 200
        await until(lambda: count(place) == 400)
    assert size(place.journal) == 0
    assert await place.records() == list(range(1, 401))


async def test_a_call_after_a_pause_is_in_the_database_in_the_next_turn_of_the_loop(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        for number in range(1, 4):
            await anyio.sleep(0.05)
            await make_calls(audit, 1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert count(place) == 2 * number


async def test_questions_through_the_audit_see_what_was_just_recorded(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        for number in range(1, 50):
            assert await call(audit, number).intent() == number
            found = await audit.find(Filters())
            assert [record["call"] for record in found[:2]] == [f"call-{n}" for n in (number, number - 1) if n]
            assert (await audit.verify()).records == number


async def test_a_call_that_lasts_is_visible_to_strangers_meanwhile(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 3)
        await call(audit, 4).intent()
        await until(lambda: count(place) == 7)


async def test_killed_at_any_moment_nothing_acknowledged_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[tuple[Place, set[int]]] = []
    acknowledged: set[int] = set()
    write = os.pwrite

    def moment() -> None:
        moments.append((place.as_after_a_crash(f"killed{len(moments)}"), set(acknowledged)))

    def torn(descriptor: int, data: bytes, offset: int) -> int:
        moment()
        if os.path.samestat(os.fstat(descriptor), place.journal.stat()):
            for part in (1, 70, len(data) // 2, len(data) - 1):
                write(descriptor, data[:part], offset)
                moment()
        written = write(descriptor, data, offset)
        moment()
        return written

    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        monkeypatch.setattr(os, "pwrite", torn)
        for number in range(5):
            record = call(audit, number, arguments={"text": "x" * 97 * number})
            acknowledged.add(await record.intent())
            moment()
            if number == 2:
                await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
            acknowledged.add(await record.outcome(is_error=False, duration_ms=1.0))
            moment()
            if number in (1, 3):
                await store.caught_up()
        monkeypatch.undo()
    assert len(moments) > 50
    for killed, known in moments:
        found = await killed.records(more=1)
        assert found == list(range(1, len(found) + 1))
        assert len(known) <= len(found) - 2 <= len(known) + 2, "one call may have been in flight, and is settled"
        assert await killed.unsettled() == []


async def test_killed_while_it_takes_up_the_journal_it_takes_it_up_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 2)
        await call(audit, 3).intent()
        killed = place.as_after_a_crash("killed")
    again: list[Place] = []
    write = os.pwrite

    def copying(descriptor: int, data: bytes, offset: int) -> int:
        again.append(killed.as_after_a_crash(f"again{len(again)}"))
        return write(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", copying)
        assert await killed.records() == [1, 2, 3, 4, 5, 6]
    assert again
    for left in again:
        assert await left.records() == [1, 2, 3, 4, 5, 6]
        assert await left.unsettled() == []
    assert fetch_rows(place.url, HASHES) == fetch_rows(killed.url, HASHES)[:5]


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_what_a_journal_was_left_with_is_taken_up_with_the_same_numbers(
    place: Place, durability: Durability
) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 5)
        killed = place.as_after_a_crash("killed")
        assert count(killed) < 10
    assert await killed.records(durability=durability) == list(range(1, 11))
    assert fetch_rows(killed.url, HASHES) == fetch_rows(place.url, HASHES)
    assert size(killed.journal) == 0


async def test_a_journal_that_was_not_taken_up_is_kept(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 5)
        killed = place.as_after_a_crash("killed")
    async with open_store(killed.url, alone=True):
        pass
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        assert (await audit.verify()).records < 10
    assert await killed.records() == list(range(1, 11))


async def test_records_whose_numbers_were_taken_meanwhile_are_added_at_the_end(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 5)
        killed = place.as_after_a_crash("killed")
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        await audit.record({"phase": "intent", "call": "of another"})
    await killed.records()
    async with open_store(killed.url) as store, Audit(store, killed.head) as audit:
        found = {(record["call"], record["phase"]) for record in await audit.find(Filters())}
    assert {(f"call-{number}", phase) for number in range(5) for phase in ("intent", "outcome")} <= found


async def one_ahead(place: Place, calls: int) -> Place:
    """What is left of so many calls in the database and an intent in the journal."""
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, calls)
        await store.caught_up()
        await call(audit, calls + 1).intent()
        return place.as_after_a_crash(f"{place.folder.name}-killed")


async def test_the_journal_of_another_database_is_not_used(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = await one_ahead(place, 5)
    other = await one_ahead(Place(tmp_path / "other"), 3)
    shutil.copyfile(killed.journal, other.journal)
    async with open_store(other.url, alone=True) as store, Audit(store, other.head) as audit:
        verification = await audit.verify()
    assert verification.records == 6
    assert "another database" in caplog.text
    assert "removed or replaced" in verification.findings[0].message


async def test_a_journal_that_was_removed_after_a_kill_is_noticed_for_good(place: Place) -> None:
    killed = await one_ahead(place, 5)
    killed.journal.unlink()
    for _ in range(2):
        async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
            verification = await audit.verify()
        assert "removed or replaced" in verification.findings[0].message
        assert verification.records == 10, "the call that only the journal had is gone"


async def test_a_journal_that_was_emptied_after_a_kill_is_noticed(place: Place) -> None:
    killed = await one_ahead(place, 5)
    killed.journal.write_bytes(b"")
    async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
        assert not (await audit.verify()).ok


async def test_a_journal_may_be_removed_after_a_run_that_ended_in_good_order(place: Place) -> None:
    await place.records(more=2)
    place.journal.unlink()
    assert len(await place.records()) == 4


async def test_a_call_in_flight_at_a_kill_gets_the_outcome_unknown(place: Place) -> None:
    killed = await one_ahead(place, 2)
    assert await killed.records() == [1, 2, 3, 4, 5, 6]
    async with open_store(killed.url, alone=True) as store, Audit(store, killed.head) as audit:
        outcome, intent, *_ = await audit.find(Filters())
    assert (intent["phase"], outcome["phase"], outcome["outcome"]) == ("intent", "outcome", "unknown")
    same = ("call", "door", "principal", "server", "tool", "argumentsDigest", "arguments", "decision")
    assert [outcome[key] for key in same] == [intent[key] for key in same]
    assert outcome["isError"] is True
    assert len(await killed.records()) == 6, "it is settled once"


async def test_a_call_that_lasts_over_a_clean_end_is_left_alone(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await call(audit, 1).intent()
    assert await place.records() == [1]


async def test_a_scribbled_journal_stops_nobody(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 2)
    for scribble in (b"\n\n", b"\xff" * 5000, b"x" * 64 + b' {"id":5,"a":1,"prev":"' + b"0" * 64 + b'"}\n'):
        place.journal.write_bytes(scribble)
        assert await place.records() == [1, 2, 3, 4]


async def test_the_journal_is_private_and_a_link_in_its_place_is_refused(place: Place) -> None:
    before = os.umask(0)
    try:
        async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
            await make_calls(audit, 1)
            assert mode(place.journal) == 0o600
    finally:
        os.umask(before)
    place.journal.rename(place.folder / "elsewhere")
    place.journal.symlink_to(place.folder / "elsewhere")
    with pytest.raises(ConfigError) as raised:
        async with open_store(place.url, alone=True):
            pass
    assert raised.value.code == "file.unsafe"


async def test_power_does_not_get_ahead_of_the_disk(place: Place) -> None:
    async with open_store(place.url, durability="power", alone=True) as store, Audit(store, place.head) as audit:
        for number in range(1, 6):
            await make_calls(audit, 1)
            assert count(place) == 2 * number
        assert b"prev" not in place.journal.read_bytes(), "no record is in it"


async def test_a_locked_database_takes_no_records_ahead_of_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._PATIENCE", 0.1)
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 1)
        await store.caught_up()
        with closing(sqlite3.connect(place.database, isolation_level=None)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(Unavailable, match="not made"), anyio.fail_after(10):
                    await call(audit).intent()
        await make_calls(audit, 1)
        assert (await audit.verify()).records == 4


async def test_nobody_takes_the_numbers_of_records_that_are_ahead(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 2)
        with closing(sqlite3.connect(place.database, isolation_level=None, timeout=0)) as stranger:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                stranger.execute("BEGIN IMMEDIATE")
            await store.caught_up()
            stranger.execute("BEGIN IMMEDIATE")


async def test_a_full_disk_lets_nothing_run_after_what_is_ahead_and_loses_nothing(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        with file_size_limit(size(sibling(place.database, "-wal")) + 100):
            with pytest.raises(Unavailable):
                await store.caught_up()
            for _ in range(3):
                with pytest.raises(Unavailable, match="not made"):
                    await call(audit).intent()
            with pytest.raises(Unavailable):
                await audit.verify()
            assert len(await audit.find(Filters(limit=1000))) == 40
        killed = place.as_after_a_crash("killed")
        await make_calls(audit, 1)
        assert (await audit.verify()).records == 44
    assert await place.records() == list(range(1, 45))
    assert await killed.records() == list(range(1, 43))


async def test_what_is_ahead_of_a_full_disk_comes_into_the_database_by_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._RETRY", 0.05)
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        with file_size_limit(size(sibling(place.database, "-wal")) + 100):
            await anyio.sleep(0.1)
            assert count(place) == 40
        await until(lambda: count(place) == 42)


async def test_a_store_that_closes_on_a_full_disk_leaves_its_journal(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 20)
        await store.caught_up()
        await make_calls(audit, 1)
        before = resource_limit(size(sibling(place.database, "-wal")) + 100)
    resource_limit(before)
    assert await place.records() == list(range(1, 43))


def resource_limit(size: int) -> int:
    """Set how large files may grow; gives the limit there was."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return before[0]


async def test_a_refused_write_leaves_the_numbers_of_records_that_are_ahead(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
        for number in (1, 2, 3):
            assert await call(audit, number).intent() == number
            with pytest.raises(ConstraintError):
                await store.write(insert(names).values(form="f", name="n", server="s", tool="t"))
        assert [record["call"] for record in await audit.find(Filters())] == ["call-3", "call-2", "call-1"]
        assert (await audit.verify()).ok


async def test_more_than_the_journal_holds_is_recorded_too(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        for text in ("x" * 3_000_000, "y", "z" * 400_000, "z" * 400_000, "z" * 400_000):
            await audit.record({"phase": "intent", "text": text})
        killed = place.as_after_a_crash("killed")
    assert await place.records() == await killed.records() == [1, 2, 3, 4, 5]


async def test_a_crowd_gets_numbers_without_gaps(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        for _ in range(3):
            await asyncio.gather(*(make_calls(audit, 3) for _ in range(20)))
        assert (await audit.verify()).records == 3 * 20 * 3 * 2


async def test_a_cut_tail_is_found_although_the_head_is_written_only_with_commits(place: Place) -> None:
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        await make_calls(audit, 5)
        await store.caught_up()
        run(place.url, "DELETE FROM audit WHERE id > 7")
        assert not (await audit.verify()).ok
    async with open_store(place.url, alone=True) as store, Audit(store, place.head) as audit:
        assert not (await audit.verify()).ok
