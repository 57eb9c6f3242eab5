"""Exported lines prove themselves; old records leave in sealed segments, and nothing is lost on the way."""

import gzip
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest
from sqlalchemy import insert

from integration.gate.audit.calls import OWNER, make_calls
from integration.store.databases import engine_of, fetch_rows, run
from lab import eventually
from toolcrib.gate.audit import segments
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.export import export, follow, read_line
from toolcrib.gate.audit.head import ChainHead
from toolcrib.gate.audit.segments import KEPT, LIST, Segments
from toolcrib.gate.audit.verify import Verification, verify
from toolcrib.model.errors import ConfigError, Conflict, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.store.audit import Filters
from toolcrib.store.engine import Store, open_store
from toolcrib.store.schema import audit as table

pytestmark = pytest.mark.anyio

LATER = datetime.now(UTC) + timedelta(days=1)


class World:
    """A chain with its segments."""

    def __init__(self, store: Store, audit: Audit, place: Path, database: str) -> None:
        self.store = store
        self.audit = audit
        self.head = place / "audit.head"
        self.folder = place / "audit"
        self.database = database
        self.segments = Segments(store, self.record, self.folder)
        self.refuses = False
        self.refused = 0

    async def record(self, body: JsonObject) -> int:
        if self.refuses:
            self.refused += 1
            raise Unavailable("audit.unavailable", "Nothing can be recorded now.")
        return await self.audit.record(body)

    async def lines(self, after: int = 0, upto: int | None = None) -> list[bytes]:
        return [line async for line in export(self.store, after=after, upto=upto)]

    def numbers(self) -> list[int]:
        return [number for (number,) in fetch_rows(self.database, "SELECT id FROM audit ORDER BY id")]

    async def findings(self) -> list[str]:
        """What is wrong with the chain, in the database and in the segments."""
        newest = fetch_rows(self.database, "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1")
        found = await verify(self.store, self.head, ChainHead(*newest[0]), await self.segments.check())
        return [finding.message for finding in found.findings]


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncGenerator[World]:
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        await make_calls(audit, 10)
        yield World(store, audit, tmp_path, database)


async def test_exported_lines_are_the_records_and_prove_themselves(world: World) -> None:
    lines = await world.lines()
    shown = await world.audit.find(Filters())
    assert [orjson.loads(line) for line in lines] == list(reversed(shown))
    assert follow(lines, ChainHead()).number == 20
    assert follow(lines[5:9]) == follow(lines[:9], ChainHead())
    assert [orjson.loads(line)["id"] for line in await world.lines(after=5, upto=8)] == [6, 7, 8]


async def test_edited_cut_and_reordered_lines_are_found(world: World) -> None:
    lines = await world.lines()
    for broken in (
        [*lines[:3], lines[3].replace(b"forecast", b"forecasd"), *lines[4:]],
        [*lines[:3], *lines[4:]],
        [lines[1], lines[0], *lines[2:]],
        [*lines[:3], lines[3][:-20]],
        lines[1:],
        [*lines[:3], lines[2], *lines[3:]],
    ):
        with pytest.raises(Conflict) as raised:
            follow(broken, ChainHead())
        assert raised.value.code == "audit.broken"


async def test_a_damaged_record_is_exported_as_damaged_and_forges_no_line(world: World) -> None:
    forged = (await world.lines())[7].decode()
    with engine_of(world.database).begin() as connection:
        connection.execute(table.update().where(table.c.id == 4).values(body=b'{"x":1}\n' + forged.encode()))
    lines = await world.lines()
    assert len(lines) == 20
    assert all(line.count(b"\n") == 1 for line in lines)
    assert orjson.loads(lines[3])["damaged"] is True
    assert read_line(lines[3]) is None


async def test_old_records_leave_for_a_segment_and_the_chain_stays_whole(world: World) -> None:
    before = await world.lines()
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    assert (segment.first, segment.last) == (1, 16)
    assert world.numbers() == [17, 18, 19, 20, 21]
    with gzip.open(world.folder / segment.file) as file:
        assert file.readlines() == before[:16]
    assert await world.findings() == []
    (told, *_) = await world.audit.find(Filters(limit=1))
    assert (told["tool"], told["arguments"]) == ("audit.seal", segment.to_json())
    assert (world.folder / segment.file).stat().st_mode & 0o777 == 0o600
    assert (world.folder / LIST).stat().st_mode & 0o777 == 0o600


async def test_the_chain_goes_on_after_sealing_and_a_restart(world: World, tmp_path: Path, database: str) -> None:
    await world.segments.seal(LATER, by=OWNER, keep=1)
    await make_calls(world.audit, 3)
    await world.segments.seal(LATER, by=OWNER, keep=2)
    assert [(each.first, each.last) for each in await world.segments.list()] == [(1, 19), (20, 25)]
    assert await world.findings() == []
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        await make_calls(audit, 1)
        assert await World(store, audit, tmp_path, database).findings() == []


async def test_young_records_and_the_newest_stay(world: World) -> None:
    assert await world.segments.seal(datetime.now(UTC) - timedelta(days=1), by=OWNER, keep=1) == ()
    assert await world.segments.seal(LATER, by=OWNER) == ()
    assert world.numbers() == list(range(1, 21))


@pytest.mark.parametrize("tamper", ["UPDATE audit SET hash = 'x' WHERE id = 3", "DELETE FROM audit WHERE id = 3"])
async def test_a_broken_chain_is_not_sealed_and_nothing_is_deleted(world: World, tamper: str) -> None:
    run(world.database, tamper)
    left = world.numbers()
    with pytest.raises(Conflict) as raised:
        await world.segments.seal(LATER, by=OWNER, keep=4)
    assert raised.value.code == "audit.broken"
    assert world.numbers() == left
    assert await world.segments.list() == ()
    assert [path.name for path in world.folder.iterdir()] == []


async def test_nothing_is_deleted_that_the_chain_could_not_tell_of(world: World) -> None:
    world.refuses = True
    with pytest.raises(Unavailable):
        await world.segments.seal(LATER, by=OWNER, keep=4)
    assert world.numbers() == list(range(1, 21))
    world.refuses = False
    await world.segments.seal(LATER, by=OWNER, keep=4)
    assert await world.findings() == []


async def test_nothing_is_deleted_that_is_not_listed(world: World) -> None:
    world.folder.mkdir()
    (world.folder / LIST).mkdir()
    with pytest.raises((ConfigError, OSError)):
        await world.segments.seal(LATER, by=OWNER, keep=4)
    assert world.numbers()[:20] == list(range(1, 21))
    (world.folder / LIST).rmdir()
    await world.segments.seal(LATER, by=OWNER, keep=4)
    assert await world.findings() == []


async def test_what_a_killed_process_had_sealed_but_not_deleted_is_deleted_next_time(world: World) -> None:
    with engine_of(world.database).connect() as connection:
        rows = [dict(zip(table.columns.keys(), row, strict=True)) for row in connection.execute(table.select())]
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    with engine_of(world.database).begin() as connection:
        connection.execute(insert(table), rows[: segment.last])
    assert await world.findings() == []
    await world.segments.seal(LATER, by=OWNER, keep=100)
    assert world.numbers()[0] == segment.last + 1


async def test_a_torn_line_of_the_list_is_written_over(world: World) -> None:
    await world.segments.seal(LATER, by=OWNER, keep=10)
    with (world.folder / LIST).open("ab") as file:
        file.write(b'{"first":11,"la')
    await world.segments.seal(LATER, by=OWNER, keep=4)
    assert [(each.first, each.last) for each in await world.segments.list()] == [(1, 10), (11, 17)]
    assert await world.findings() == []


async def test_a_changed_missing_or_unlisted_segment_is_found(world: World) -> None:
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    path, listed = world.folder / segment.file, world.folder / LIST
    content, lines = path.read_bytes(), listed.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    assert await world.findings() == [f"{segment.file} was changed."]
    path.unlink()
    assert await world.findings() == [f"{segment.file} cannot be read: No such file or directory."]
    path.write_bytes(content)
    listed.unlink()
    assert await world.findings() == ["Records 1 to 16 are missing."]
    listed.write_bytes(lines.replace(segment.hash.encode(), b"0" * 64))
    assert len(await world.findings()) == 2
    listed.write_bytes(b"nonsense\n")
    with pytest.raises(Conflict):
        await world.segments.base()
    assert (await world.segments.check()).findings == (f"Line 1 of {LIST} is invalid.",)


async def test_an_erased_segment_leaves_its_trace_in_list_and_chain(world: World) -> None:
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    assert await world.segments.erase(datetime.now(UTC) - timedelta(days=1), by=OWNER) == ()
    (erased,) = await world.segments.erase(LATER, by=OWNER)
    assert not (world.folder / segment.file).exists()
    (listed,) = await world.segments.list()
    assert listed == erased
    assert listed.erased_at is not None
    (told, *_) = await world.audit.find(Filters(limit=1))
    assert (told["tool"], told["arguments"]["erasedAt"]) == ("audit.erase", listed.erased_at)
    assert await world.findings() == []
    assert await world.segments.erase(LATER, by=OWNER) == ()


async def test_a_segment_that_is_said_to_be_erased_and_was_not_is_found(world: World) -> None:
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    (world.folder / segment.file).unlink()
    erased = segment.to_json() | {"erasedAt": segment.sealed_at}
    (world.folder / LIST).write_bytes(orjson.dumps(erased, option=orjson.OPT_APPEND_NEWLINE))
    assert await world.findings() == [f"{segment.file} is listed as erased, but no record confirms it."]


async def test_an_erasing_is_also_told_by_a_record_that_was_sealed_itself(world: World) -> None:
    await world.segments.seal(LATER, by=OWNER, keep=4)
    await world.segments.erase(LATER, by=OWNER)
    await make_calls(world.audit, 5)
    await world.segments.seal(LATER, by=OWNER, keep=1)
    assert 22 not in world.numbers()
    assert await world.findings() == []
    assert await world.audit.verify() == Verification(17, ())


async def exported(world: World, after: int = 0, upto: int | None = None) -> list[bytes]:
    return [line async for line in world.segments.export(after, upto)]


async def test_what_is_exported_is_the_whole_chain_wherever_its_records_are(world: World) -> None:
    await world.segments.seal(LATER, by=OWNER, keep=10)
    await world.segments.seal(LATER, by=OWNER, keep=4)
    lines = await exported(world)
    assert follow(lines, ChainHead()).number == len(lines) == 22
    for after, upto in ((0, 5), (5, 8), (8, 15), (9, 19), (17, None), (21, 22), (22, None), (30, None), (3, 3)):
        numbers = [orjson.loads(line)["id"] for line in await exported(world, after, upto)]
        assert numbers == list(range(after + 1, min(upto or 22, 22) + 1)), (after, upto)
    assert await world.audit.verify() == Verification(22, ())


async def test_what_is_sealed_while_it_is_exported_is_exported_all_the_same(world: World) -> None:
    await make_calls(world.audit, 600)
    lines: list[bytes] = []
    async for line in world.segments.export():
        lines.append(line)
        if len(lines) == 10:
            await world.segments.seal(LATER, by=OWNER, keep=4)
    assert follow(lines, ChainHead()).number == len(lines) == 1221


async def test_what_was_erased_is_not_exported_and_the_rest_is(world: World) -> None:
    await world.segments.seal(LATER, by=OWNER, keep=10)
    await world.segments.erase(LATER, by=OWNER)
    await world.segments.seal(LATER, by=OWNER, keep=4)
    numbers = [orjson.loads(line)["id"] for line in await exported(world)]
    assert numbers == list(range(11, 24))


async def test_a_damaged_segment_is_not_exported_as_if_it_were_whole(world: World) -> None:
    (segment,) = await world.segments.seal(LATER, by=OWNER, keep=4)
    path = world.folder / segment.file
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Conflict) as raised:
        await exported(world)
    assert (raised.value.code, segment.file in raised.value.message) == ("audit.broken", True)


async def test_old_lines_of_a_journal_are_not_taken_for_records_after_their_records_were_sealed(tmp_path: Path) -> None:
    database, head = f"sqlite:///{tmp_path / 'toolcrib.db'}", tmp_path / "audit.head"
    journal = tmp_path / "toolcrib.db-pending"
    async with open_store(database, alone=True) as store, Audit(store, head) as audit:
        await make_calls(audit, 20)
        left = journal.read_bytes()
        assert left
        await audit.segments.seal(LATER, by=OWNER, keep=4)
        await store.caught_up()
        numbers = [number for (number,) in fetch_rows(database, "SELECT id FROM audit ORDER BY id")]
    journal.write_bytes(left)  # as a process leaves it that is killed before it writes the next line
    async with open_store(database, alone=True) as store, Audit(store, head) as audit:
        assert [number for (number,) in fetch_rows(database, "SELECT id FROM audit ORDER BY id")] == numbers
        assert await audit.verify() == Verification(41, ())


async def test_old_records_are_sealed_day_by_day_where_that_is_set(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(segments, "LOOK_EVERY", 0.01)
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        world = World(store, audit, tmp_path, database)
        old: JsonObject = {"at": "2001-01-01T00:00:00.000+00:00", "phase": "intent"}
        for _ in range(KEPT + 5):
            await audit.record(old)
        world.refuses = True
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(world.segments.follow, 30, by=OWNER))
                await eventually(lambda: world.refused > 1)
                assert world.numbers()[0] == 1, "what cannot be told is not sealed"
                world.refuses = False
                await eventually(lambda: world.numbers()[0] == 6)
                tasks.cancel_scope.cancel()
        assert await world.findings() == []
