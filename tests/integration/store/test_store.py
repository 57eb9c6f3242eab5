"""The store on both engines: order, atomic writes, and faults that reach only their own caller."""

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, Select, delete, func, insert, select, update

from integration.store.databases import fetch_rows, run
from toolcrib.model.errors import Unavailable
from toolcrib.store.batch import ConstraintError, Log, Many, Row
from toolcrib.store.engine import Store, open_store
from toolcrib.store.names import load_names, save_names
from toolcrib.store.schema import audit, names

pytestmark = pytest.mark.anyio


def named(name: str, form: str = "endpoint") -> dict[str, str]:
    return {"form": form, "name": name, "server": "s", "tool": name}


async def expect_concurrency(store: Store) -> None:
    """Make the store expect many requests at once, which it then commits together."""
    await asyncio.gather(*(store.write(delete(names).where(names.c.name == "missing")) for _ in range(5)))


async def stored_names(store: Store) -> set[str]:
    return set(await store.read(lambda connection: connection.scalars(select(names.c.name)).all()))


class WordLog(Log[str]):
    """A log of words; `bad` cannot be converted into a row."""

    table = audit
    head: int = 0

    def __init__(self) -> None:
        self.durable: list[int] = []

    def rows(self, items: Sequence[str]) -> list[Row]:
        made: list[Row] = []
        number = self.head
        for number, item in enumerate(items, self.head + 1):
            if item == "bad":
                raise ValueError("bad")
            made.append((number, item, "at", "intent", *[None] * 7, b"body"))
        self.head = number
        return made

    def tail(self) -> Select[Any]:
        return select(func.max(audit.c.id))

    def resume(self, rows: Sequence[Row]) -> None:
        self.head = rows[0][0] or 0

    def committed(self) -> None:
        self.durable.append(self.head)


async def test_write_returns_the_row_count_of_each_statement(database: str) -> None:
    async with open_store(database) as store:
        counts = await store.write(
            Many(insert(names), [named("a"), named("b"), named("c")]),
            update(names).where(names.c.name.in_(["a", "b"])).values(server="other"),
            delete(names).where(names.c.name == "nothing"),
        )
        assert counts == (3, 2, 0)
        assert await stored_names(store) == {"a", "b", "c"}


async def test_written_rows_survive_a_restart(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("a")))
    async with open_store(database) as store:
        assert await stored_names(store) == {"a"}


async def test_constraint_violation_fails_only_its_own_request(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("taken")))
        await expect_concurrency(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.write, insert(names).values(**named("before")))
            tasks.start_soon(_assert_refused, store, insert(names).values(**named("taken")))
            tasks.start_soon(store.write, insert(names).values(**named("after")))
        assert await stored_names(store) == {"taken", "before", "after"}


async def _assert_refused(store: Store, *statements: Any) -> None:
    with pytest.raises(ConstraintError):
        await store.write(*statements)


async def test_statements_of_one_write_are_atomic(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("taken")))
        await _assert_refused(store, insert(names).values(**named("first")), insert(names).values(**named("taken")))
        await _assert_refused(store, Many(insert(names), [named("second"), named("second")]))
        assert await stored_names(store) == {"taken"}


async def test_invalid_statement_fails_only_its_caller(database: str) -> None:
    async with open_store(database) as store:
        await expect_concurrency(store)
        run(database, "ALTER TABLE names RENAME COLUMN tool TO other")
        wrong = asyncio.ensure_future(store.write(insert(names).values(**named("a"))))
        numbers = WordLog()
        right = store.append(numbers, "word")
        assert await right == 1
        with pytest.raises(Exception, match="tool"):
            await wrong


async def test_concurrent_requests_run_in_order(database: str) -> None:
    async with open_store(database) as store:
        await expect_concurrency(store)
        results = await asyncio.gather(
            store.write(insert(names).values(**named("a"))),
            store.write(delete(names).where(names.c.name == "a")),
            store.write(insert(names).values(**named("a"))),
            store.write(update(names).where(names.c.name == "a").values(server="last")),
        )
        assert results == [(1,), (1,), (1,), (1,)]


async def test_cancelled_caller_does_not_affect_the_batch(database: str) -> None:
    async with open_store(database) as store:
        await expect_concurrency(store)
        numbers = WordLog()
        waiting = [store.append(numbers, f"word {number}") for number in range(5)]
        waiting[1].cancel()
        with anyio.move_on_after(0):
            await store.write(insert(names).values(**named("a")))
        assert [await waiting[index] for index in (0, 2, 3, 4)] == [1, 3, 4, 5]
        assert await stored_names(store) == {"a"}
    assert len(fetch_rows(database, "SELECT id FROM audit")) == 5


async def test_invalid_row_leaves_no_gap_and_fails_only_its_caller(database: str) -> None:
    async with open_store(database) as store:
        numbers = WordLog()
        assert await store.append(numbers, "one") == 1
        await expect_concurrency(store)
        bad = store.append(numbers, "bad")
        other = asyncio.ensure_future(store.write(insert(names).values(**named("a"))))
        good = store.append(numbers, "two")
        with pytest.raises(ValueError, match="bad"):
            await bad
        assert (await good, await other) == (2, (1,))
        assert numbers.durable[-1] == 2


async def test_log_continues_after_rows_of_another_process(database: str) -> None:
    async with open_store(database) as store:
        numbers = WordLog()
        assert await store.append(numbers, "own") == 1
        await expect_concurrency(store)
        run(database, "INSERT INTO audit (id, hash, at, phase, body) VALUES (2, 'other', 'at', 'intent', '')")
        first, second = store.append(numbers, "three"), store.append(numbers, "four")
        assert (await first, await second) == (3, 4)
        assert fetch_rows(database, "SELECT hash FROM audit ORDER BY id") == [
            ("own",),
            ("other",),
            ("three",),
            ("four",),
        ]


async def test_read_cannot_write(database: str) -> None:
    async with open_store(database) as store:
        with pytest.raises(Unavailable) as raised:
            await store.read(lambda connection: connection.execute(insert(names).values(**named("a"))).rowcount)
        assert raised.value.code == "database.unavailable"
        assert await stored_names(store) == set()


async def test_exception_in_a_read_function_is_raised_unchanged(database: str) -> None:
    def broken(_: Connection) -> None:
        raise ValueError("mine")

    async with open_store(database) as store:
        with pytest.raises(ValueError, match="mine"):
            await store.read(broken)
        assert await stored_names(store) == set()


async def test_pending_rows_are_stored_on_close_and_later_ones_refused(database: str) -> None:
    async with open_store(database) as store:
        await expect_concurrency(store)
        numbers = WordLog()
        waiting = store.append(numbers, "last")
    assert await waiting == 1
    with pytest.raises(Unavailable) as raised:
        await store.append(numbers, "too late")
    assert raised.value.code == "crib.closed"
    assert fetch_rows(database, "SELECT hash FROM audit") == [("last",)]


async def test_concurrent_reads_and_writes_finish(database: str) -> None:
    async with open_store(database) as store:
        numbers = WordLog()

        async def work(number: int) -> None:
            await store.append(numbers, str(number))
            await stored_names(store)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(work, number)
        assert len(fetch_rows(database, "SELECT id FROM audit")) == 50


STRANGE = (
    "plain",
    "",
    "ünïcödé 🛠",
    "a\0b",
    "back\\slash",
    "\\u0000",
    "lone \ud800 surrogate",
    "'; DROP TABLE names; --",
)


async def test_names_with_any_characters_are_loaded_unchanged(database: str) -> None:
    rows = [("endpoint", f"name_{number}", text, text) for number, text in enumerate(STRANGE)]
    async with open_store(database) as store:
        await save_names(store, rows)
        assert sorted(await load_names(store)) == sorted(rows)


async def test_conflicting_names_are_reported_and_unchanged(database: str) -> None:
    async with open_store(database) as store:
        assert await save_names(store, [("endpoint", "a", "s", "t")])
        for number, clash in enumerate((("endpoint", "a", "s", "other"), ("endpoint", "other", "s", "t"))):
            assert not await save_names(store, [("endpoint", f"new{number}", "s", f"new{number}"), clash])
        assert await save_names(store, [("bridge", "a", "s", "t")])
        assert await save_names(store, [])
        assert sorted(name for _, name, _, _ in await load_names(store)) == ["a", "a", "new0", "new1"]


async def test_thousands_of_names_are_saved_at_once(database: str) -> None:
    rows = [(form, f"name_{number}", "s", f"t{number}") for form in ("claude", "endpoint") for number in range(1000)]
    async with open_store(database) as store:
        await save_names(store, rows)
        assert len(await load_names(store)) == 2000


async def test_several_stores_open_a_new_database_concurrently(database: str) -> None:
    opened: list[set[str]] = []

    async def open_it() -> None:
        async with open_store(database) as store:
            opened.append(await stored_names(store))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(open_it)
    assert opened == [set()] * 6
