"""Lanes of the audit log: one chain per node, and checkpoints over all of them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from integration.store.databases import fetch_rows, run
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.export import follow
from toolcrib.gate.audit.head import HeadFile
from toolcrib.model.principals import Principal
from toolcrib.store.audit import Filters
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, LANE_SIZE, lane_of
from toolcrib.store.engine import open_store
from toolcrib.web.console.call_history import CallHistory

pytestmark = pytest.mark.anyio

OWNER = Principal("owner", "owner", "api")


@asynccontextmanager
async def node(url: str, folder: Path, name: str) -> AsyncGenerator[Audit]:
    """Open the audit of a node with a home of its own."""
    (folder / name).mkdir(exist_ok=True)
    async with open_store(url) as store, Audit(store, folder / name / "audit.head", crib=name) as audit:
        yield audit


async def write(audit: Audit, *tools: str) -> list[int]:
    return [await audit.record({"phase": "outcome", "server": "s", "tool": tool}) for tool in tools]


async def checkpoint(audit: Audit, folder: Path, name: str) -> int | None:
    file = HeadFile(folder / name / "audit.checkpoint")
    try:
        return await audit.checkpoints.write(file)
    finally:
        file.close()


async def test_every_node_writes_its_own_chain_and_verifies_all(postgres_url: str, tmp_path: Path) -> None:
    async with node(postgres_url, tmp_path, "a") as a, node(postgres_url, tmp_path, "b") as b:
        first = [*await write(a, "one"), *await write(b, "two"), *await write(a, "three")]
        assert [(lane_of(number), number % LANE_SIZE) for number in first] == [(2, 1), (3, 1), (2, 2)]
        made = await checkpoint(a, tmp_path, "a")
        assert made is not None
        assert lane_of(made) == CHECKPOINT_LANE
        assert await checkpoint(a, tmp_path, "a") is None, "nothing was written since the last checkpoint"
        await write(b, "four")
        assert await checkpoint(b, tmp_path, "b") == made + 1
        for audit in (a, b):
            checked = await audit.verify()
            assert checked.ok, checked.findings
            assert checked.records == 6
        found = [record["tool"] for record in await a.find(Filters())]
        assert found == ["four", "three", "two", "one"]
        newest = (await a.find(Filters(limit=2)))[-1]
        assert [record["tool"] for record in await b.find(Filters(after=newest["id"]))] == ["two", "one"]
        assert await a.count(Filters()) == 4
        follow([line async for line in b.export()])
    async with node(postgres_url, tmp_path, "a") as a:
        assert await write(a, "five") == [first[-1] + 1], "a node keeps its lane"


@pytest.mark.parametrize(
    ("tampering", "kind"),
    [
        (f"DELETE FROM audit WHERE id = {3 * LANE_SIZE + 2}", "checkpoint"),
        (f"DELETE FROM audit WHERE id > {3 * LANE_SIZE}", "checkpoint"),
        (f"DELETE FROM audit WHERE id = {3 * LANE_SIZE + 1}", "missing"),
        (f"UPDATE audit SET tool = 'x' WHERE id = {3 * LANE_SIZE + 1}", "columns"),
        (f"DELETE FROM audit WHERE id = {CHECKPOINT_LANE * LANE_SIZE + 1}", "cut"),
    ],
)
async def test_tampering_with_another_lane_or_a_checkpoint_is_found(
    postgres_url: str, tmp_path: Path, tampering: str, kind: str
) -> None:
    async with node(postgres_url, tmp_path, "a") as a, node(postgres_url, tmp_path, "b") as b:
        await write(a, "one")
        await write(b, "two", "three")
        await checkpoint(a, tmp_path, "a")
        run(postgres_url, tampering)
        assert kind in {finding.kind for finding in (await a.verify()).findings}


async def test_node_seals_its_own_lane_and_others_accept_the_recorded_sealing(
    postgres_url: str, tmp_path: Path
) -> None:
    async with node(postgres_url, tmp_path, "a") as a, node(postgres_url, tmp_path, "b") as b:
        await write(a, *(f"tool{number}" for number in range(5)))
        await write(b, "other")
        await checkpoint(b, tmp_path, "b")
        [segment] = await a.segments.seal(datetime.now(UTC) + timedelta(days=1), by=OWNER, keep=1)
        assert (segment.first, segment.last) == (2 * LANE_SIZE + 1, 2 * LANE_SIZE + 4)
        for audit in (a, b):
            checked = await audit.verify()
            assert checked.ok, checked.findings
        run(postgres_url, f"DELETE FROM audit WHERE id = {2 * LANE_SIZE + 5}")
        assert not (await b.verify()).ok


async def test_records_from_before_lanes_stay_valid(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    async with open_store(postgres_url) as store, Audit(store, tmp_path / "a" / "audit.head") as shared:
        await write(shared, "old", "older")
    async with node(postgres_url, tmp_path, "a") as a:
        await write(a, "new")
        checked = await a.verify()
        assert checked.ok, checked.findings
        assert checked.records == 3
    assert sorted(id for (id,) in fetch_rows(postgres_url, "SELECT id FROM audit")) == [1, 2, 2 * LANE_SIZE + 1]
    run(postgres_url, "DELETE FROM audit WHERE id = 1")
    async with node(postgres_url, tmp_path, "a") as a:
        assert [finding.kind for finding in (await a.verify()).findings] == ["missing"]


LATER = datetime.now(UTC) + timedelta(days=1)


async def test_lane_of_a_lost_node_and_checkpoints_are_sealed_and_exported(postgres_url: str, tmp_path: Path) -> None:
    async with node(postgres_url, tmp_path, "gone") as gone:
        await write(gone, *(f"tool{number}" for number in range(6)))
    async with node(postgres_url, tmp_path, "a") as a, node(postgres_url, tmp_path, "b") as b:
        for number in range(5):
            await write(b, f"other{number}")
            await checkpoint(a, tmp_path, "a")
        exported_before = [line async for line in a.export()]
        a.segments.left_lanes = left_lanes
        sealed = await a.segments.seal(LATER, by=OWNER, keep=1)
        assert [(lane_of(each.first), each.last - each.first + 1) for each in sealed] == [(2, 5)], (
            "the newest checkpoint that names every lane stays, and nothing before it"
        )
        await checkpoint(b, tmp_path, "b")  # its turn begins: it names every lane
        sealed = await a.segments.seal(LATER, by=OWNER, keep=1)
        assert CHECKPOINT_LANE in {lane_of(each.first) for each in sealed}
        for audit in (a, b):
            checked = await audit.verify()
            assert checked.ok, checked.findings
        exported = [line async for line in a.export()]
        assert set(exported_before) <= set(exported), "the node that sealed has all records"
        follow(exported)
        run(postgres_url, f"DELETE FROM audit WHERE id = {2 * LANE_SIZE + 6}")
        for audit in (a, b):
            kinds = {finding.kind for finding in (await audit.verify()).findings}
            assert "checkpoint" in kinds, "the end of the lane was cut off"


async def test_returning_node_continues_the_lane_that_was_sealed_without_it(postgres_url: str, tmp_path: Path) -> None:
    async with node(postgres_url, tmp_path, "gone") as gone:
        await write(gone, *(f"tool{number}" for number in range(6)))
    async with node(postgres_url, tmp_path, "a") as a:
        a.segments.left_lanes = left_lanes
        assert len(await a.segments.seal(LATER, by=OWNER, keep=1)) == 1
        a.segments.left_lanes = checkpoints_only
        async with node(postgres_url, tmp_path, "gone") as back:
            assert await write(back, *(f"more{number}" for number in range(4))) == [
                2 * LANE_SIZE + number for number in range(7, 11)
            ]
            assert len(await back.segments.seal(LATER, by=OWNER, keep=1)) == 1
            for _ in range(2):  # sealing its own lane must not lose the record of what it sealed for another
                await write(a, *(f"own{number}" for number in range(3)))
                await a.segments.seal(LATER, by=OWNER, keep=1)
            for audit in (a, back):
                checked = await audit.verify()
                assert checked.ok, checked.findings
            run(postgres_url, f"DELETE FROM audit WHERE id = {2 * LANE_SIZE + 10}")
            assert "missing" in {finding.kind for finding in (await a.verify()).findings}


async def checkpoints_only() -> list[int]:
    return [0, CHECKPOINT_LANE]


async def left_lanes() -> list[int]:
    return [0, CHECKPOINT_LANE, 2]


async def test_new_calls_of_every_node_are_counted_once(postgres_url: str, tmp_path: Path) -> None:
    async with node(postgres_url, tmp_path, "a") as a, node(postgres_url, tmp_path, "b") as b:
        history = CallHistory(a)
        for audit, calls in ((b, 1), (a, 2), (b, 3)):
            await write(audit, "one")
            for _ in range(2):
                assert (await history.read_on()).total(datetime.now(UTC)).calls == calls
