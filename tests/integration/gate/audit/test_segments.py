"""Export and sealing of audit records: exported lines can be verified, and sealing loses nothing."""

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


class Chain:
    """A chain with its segments."""

    def __init__(self, store: Store, audit: Audit, home: Path, database: str) -> None:
        self.store = store
        self.audit = audit
        self.head = home / "audit.head"
        self.folder = home / "audit"
        self.database = database
        self.segments = Segments(store, self.record, self.folder)
        self.is_refusing = False
        self.refused = 0

    async def record(self, body: JsonObject) -> int:
        if self.is_refusing:
            self.refused += 1
            raise Unavailable("audit.unavailable", "Nothing can be recorded now.")
        return await self.audit.record(body)

    async def lines(self, after: int = 0, upto: int | None = None) -> list[bytes]:
        return [line async for line in export(self.store, after=after, upto=upto)]

    def numbers(self) -> list[int]:
        return [number for (number,) in fetch_rows(self.database, "SELECT id FROM audit ORDER BY id")]

    async def findings(self) -> list[str]:
        """Return the findings of the chain, in the database and in the segments."""
        newest = fetch_rows(self.database, "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1")
        found = await verify(self.store, self.head, ChainHead(*newest[0]), await self.segments.check())
        return [finding.message for finding in found.findings]


@pytest.fixture
async def chain(database: str, tmp_path: Path) -> AsyncGenerator[Chain]:
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        await make_calls(audit, 10)
        yield Chain(store, audit, tmp_path, database)


async def test_exported_lines_are_the_records_and_verify(chain: Chain) -> None:
    lines = await chain.lines()
    shown = await chain.audit.find(Filters())
    assert [orjson.loads(line) for line in lines] == list(reversed(shown))
    assert follow(lines, ChainHead()).number == 20
    assert follow(lines[5:9]) == follow(lines[:9], ChainHead())
    assert [orjson.loads(line)["id"] for line in await chain.lines(after=5, upto=8)] == [6, 7, 8]


async def test_edited_cut_and_reordered_lines_are_found(chain: Chain) -> None:
    lines = await chain.lines()
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


async def test_damaged_record_is_exported_as_damaged_on_one_line(chain: Chain) -> None:
    forged = (await chain.lines())[7].decode()
    with engine_of(chain.database).begin() as connection:
        connection.execute(table.update().where(table.c.id == 4).values(body=b'{"x":1}\n' + forged.encode()))
    lines = await chain.lines()
    assert len(lines) == 20
    assert all(line.count(b"\n") == 1 for line in lines)
    assert orjson.loads(lines[3])["damaged"] is True
    assert read_line(lines[3]) is None


async def test_old_records_are_sealed_and_the_chain_stays_valid(chain: Chain) -> None:
    before = await chain.lines()
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert (segment.first, segment.last) == (1, 16)
    assert chain.numbers() == [17, 18, 19, 20, 21]
    with gzip.open(chain.folder / segment.file) as file:
        assert file.readlines() == before[:16]
    assert await chain.findings() == []
    (record, *_) = await chain.audit.find(Filters(limit=1))
    assert (record["tool"], record["arguments"]) == ("audit.seal", segment.to_json())
    assert (chain.folder / segment.file).stat().st_mode & 0o777 == 0o600
    assert (chain.folder / LIST).stat().st_mode & 0o777 == 0o600


async def test_chain_continues_after_sealing_and_a_restart(chain: Chain, tmp_path: Path, database: str) -> None:
    await chain.segments.seal(LATER, by=OWNER, keep=1)
    await make_calls(chain.audit, 3)
    await chain.segments.seal(LATER, by=OWNER, keep=2)
    assert [(each.first, each.last) for each in await chain.segments.list()] == [(1, 19), (20, 25)]
    assert await chain.findings() == []
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        await make_calls(audit, 1)
        assert await Chain(store, audit, tmp_path, database).findings() == []


async def test_recent_and_newest_records_are_not_sealed(chain: Chain) -> None:
    assert await chain.segments.seal(datetime.now(UTC) - timedelta(days=1), by=OWNER, keep=1) == ()
    assert await chain.segments.seal(LATER, by=OWNER) == ()
    assert chain.numbers() == list(range(1, 21))


@pytest.mark.parametrize("tamper", ["UPDATE audit SET hash = 'x' WHERE id = 3", "DELETE FROM audit WHERE id = 3"])
async def test_broken_chain_is_not_sealed_and_nothing_is_deleted(chain: Chain, tamper: str) -> None:
    run(chain.database, tamper)
    left = chain.numbers()
    with pytest.raises(Conflict) as raised:
        await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert raised.value.code == "audit.broken"
    assert chain.numbers() == left
    assert await chain.segments.list() == ()
    assert [path.name for path in chain.folder.iterdir()] == []


async def test_nothing_is_deleted_when_sealing_cannot_be_recorded(chain: Chain) -> None:
    chain.is_refusing = True
    with pytest.raises(Unavailable):
        await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert chain.numbers() == list(range(1, 21))
    chain.is_refusing = False
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert await chain.findings() == []


async def test_nothing_is_deleted_when_the_segment_cannot_be_listed(chain: Chain) -> None:
    chain.folder.mkdir()
    (chain.folder / LIST).mkdir()
    with pytest.raises((ConfigError, OSError)):
        await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert chain.numbers()[:20] == list(range(1, 21))
    (chain.folder / LIST).rmdir()
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert await chain.findings() == []


async def test_next_sealing_deletes_sealed_records_that_a_kill_left(chain: Chain) -> None:
    with engine_of(chain.database).connect() as connection:
        rows = [dict(zip(table.columns.keys(), row, strict=True)) for row in connection.execute(table.select())]
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    with engine_of(chain.database).begin() as connection:
        connection.execute(insert(table), rows[: segment.last])
    assert await chain.findings() == []
    await chain.segments.seal(LATER, by=OWNER, keep=100)
    assert chain.numbers()[0] == segment.last + 1


async def test_torn_line_of_the_segment_list_is_overwritten(chain: Chain) -> None:
    await chain.segments.seal(LATER, by=OWNER, keep=10)
    with (chain.folder / LIST).open("ab") as file:
        file.write(b'{"first":11,"la')
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert [(each.first, each.last) for each in await chain.segments.list()] == [(1, 10), (11, 17)]
    assert await chain.findings() == []


async def test_changed_missing_or_unlisted_segment_is_found(chain: Chain) -> None:
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    path, listed = chain.folder / segment.file, chain.folder / LIST
    content, lines = path.read_bytes(), listed.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    assert await chain.findings() == [f"{segment.file} was changed."]
    path.unlink()
    assert await chain.findings() == [f"{segment.file} cannot be read: No such file or directory."]
    path.write_bytes(content)
    listed.unlink()
    assert await chain.findings() == ["Records 1 to 16 are missing."]
    listed.write_bytes(lines.replace(segment.hash.encode(), b"0" * 64))
    assert len(await chain.findings()) == 2
    listed.write_bytes(b"nonsense\n")
    with pytest.raises(Conflict):
        await chain.segments.base()
    assert (await chain.segments.check()).findings == (f"Line 1 of {LIST} is invalid.",)


async def test_erased_segment_stays_in_the_list_and_the_chain(chain: Chain) -> None:
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert await chain.segments.erase(datetime.now(UTC) - timedelta(days=1), by=OWNER) == ()
    (erased,) = await chain.segments.erase(LATER, by=OWNER)
    assert not (chain.folder / segment.file).exists()
    (listed,) = await chain.segments.list()
    assert listed == erased
    assert listed.erased_at is not None
    (record, *_) = await chain.audit.find(Filters(limit=1))
    assert (record["tool"], record["arguments"]["erasedAt"]) == ("audit.erase", listed.erased_at)
    assert await chain.findings() == []
    assert await chain.segments.erase(LATER, by=OWNER) == ()


async def test_segment_listed_as_erased_without_a_record_is_found(chain: Chain) -> None:
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    (chain.folder / segment.file).unlink()
    erased = segment.to_json() | {"erasedAt": segment.sealed_at}
    (chain.folder / LIST).write_bytes(orjson.dumps(erased, option=orjson.OPT_APPEND_NEWLINE))
    assert await chain.findings() == [f"{segment.file} is listed as erased, but no record confirms it."]


async def test_erasure_is_confirmed_by_a_sealed_record(chain: Chain) -> None:
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    await chain.segments.erase(LATER, by=OWNER)
    await make_calls(chain.audit, 5)
    await chain.segments.seal(LATER, by=OWNER, keep=1)
    assert 22 not in chain.numbers()
    assert await chain.findings() == []
    assert await chain.audit.verify() == Verification(17, ())


async def exported(chain: Chain, after: int = 0, upto: int | None = None) -> list[bytes]:
    return [line async for line in chain.segments.export(after, upto)]


async def test_export_includes_sealed_and_stored_records(chain: Chain) -> None:
    await chain.segments.seal(LATER, by=OWNER, keep=10)
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    lines = await exported(chain)
    assert follow(lines, ChainHead()).number == len(lines) == 22
    for after, upto in ((0, 5), (5, 8), (8, 15), (9, 19), (17, None), (21, 22), (22, None), (30, None), (3, 3)):
        numbers = [orjson.loads(line)["id"] for line in await exported(chain, after, upto)]
        assert numbers == list(range(after + 1, min(upto or 22, 22) + 1)), (after, upto)
    assert await chain.audit.verify() == Verification(22, ())


async def test_export_includes_records_sealed_meanwhile(chain: Chain) -> None:
    await make_calls(chain.audit, 600)
    lines: list[bytes] = []
    async for line in chain.segments.export():
        lines.append(line)
        if len(lines) == 10:
            await chain.segments.seal(LATER, by=OWNER, keep=4)
    assert follow(lines, ChainHead()).number == len(lines) == 1221


async def test_export_omits_erased_segments(chain: Chain) -> None:
    await chain.segments.seal(LATER, by=OWNER, keep=10)
    await chain.segments.erase(LATER, by=OWNER)
    await chain.segments.seal(LATER, by=OWNER, keep=4)
    numbers = [orjson.loads(line)["id"] for line in await exported(chain)]
    assert numbers == list(range(11, 24))


async def test_export_of_a_damaged_segment_fails(chain: Chain) -> None:
    (segment,) = await chain.segments.seal(LATER, by=OWNER, keep=4)
    path = chain.folder / segment.file
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Conflict) as raised:
        await exported(chain)
    assert (raised.value.code, segment.file in raised.value.message) == ("audit.broken", True)


async def test_old_journal_lines_of_sealed_records_are_not_recovered(tmp_path: Path) -> None:
    database, head = f"sqlite:///{tmp_path / 'toolcrib.db'}", tmp_path / "audit.head"
    journal = tmp_path / "toolcrib.db-pending"
    async with open_store(database, alone=True) as store, Audit(store, head) as audit:
        await make_calls(audit, 20)
        left = journal.read_bytes()
        assert left
        await audit.segments.seal(LATER, by=OWNER, keep=4)
        await store.caught_up()
        numbers = [number for (number,) in fetch_rows(database, "SELECT id FROM audit ORDER BY id")]
    journal.write_bytes(left)  # as after a kill before the next line was written
    async with open_store(database, alone=True) as store, Audit(store, head) as audit:
        assert [number for (number,) in fetch_rows(database, "SELECT id FROM audit ORDER BY id")] == numbers
        assert await audit.verify() == Verification(41, ())


async def test_follow_seals_old_records_and_retries_after_a_failure(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(segments, "LOOK_EVERY", 0.01)
    async with open_store(database) as store, Audit(store, tmp_path / "audit.head") as audit:
        chain = Chain(store, audit, tmp_path, database)
        old: JsonObject = {"at": "2001-01-01T00:00:00.000+00:00", "phase": "intent"}
        for _ in range(KEPT + 5):
            await audit.record(old)
        chain.is_refusing = True
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(chain.segments.follow, 30, by=OWNER))
                await eventually(lambda: chain.refused > 1)
                assert chain.numbers()[0] == 1, "records were sealed although this could not be recorded"
                chain.is_refusing = False
                await eventually(lambda: chain.numbers()[0] == 6)
                tasks.cancel_scope.cancel()
        assert await chain.findings() == []
