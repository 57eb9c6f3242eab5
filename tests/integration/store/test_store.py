"""What the store promises on either engine: order, all or nothing, and a fault that reaches only its own caller."""

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


async def crowd(store: Store) -> None:
    """Make the store expect many requests at once, which it then commits together."""
    await asyncio.gather(*(store.write(delete(names).where(names.c.name == "nobody")) for _ in range(5)))


async def kept(store: Store) -> set[str]:
    return set(await store.read(lambda connection: connection.scalars(select(names.c.name)).all()))


class Numbers(Log[str]):
    """A log that counts and keeps a word; `bad` cannot be made into a row."""

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


async def test_a_write_tells_how_many_rows_each_statement_touched(database: str) -> None:
    async with open_store(database) as store:
        counts = await store.write(
            Many(insert(names), [named("a"), named("b"), named("c")]),
            update(names).where(names.c.name.in_(["a", "b"])).values(server="other"),
            delete(names).where(names.c.name == "nothing"),
        )
        assert counts == (3, 2, 0)
        assert await kept(store) == {"a", "b", "c"}


async def test_what_was_written_is_there_after_opening_again(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("a")))
    async with open_store(database) as store:
        assert await kept(store) == {"a"}


async def test_a_broken_constraint_fails_only_the_request_that_broke_it(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("taken")))
        await crowd(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.write, insert(names).values(**named("before")))
            tasks.start_soon(_refused, store, insert(names).values(**named("taken")))
            tasks.start_soon(store.write, insert(names).values(**named("after")))
        assert await kept(store) == {"taken", "before", "after"}


async def _refused(store: Store, *statements: Any) -> None:
    with pytest.raises(ConstraintError):
        await store.write(*statements)


async def test_the_statements_of_one_write_are_kept_all_or_none(database: str) -> None:
    async with open_store(database) as store:
        await store.write(insert(names).values(**named("taken")))
        await _refused(store, insert(names).values(**named("first")), insert(names).values(**named("taken")))
        await _refused(store, Many(insert(names), [named("second"), named("second")]))
        assert await kept(store) == {"taken"}


async def test_a_statement_the_database_cannot_understand_fails_only_its_caller(database: str) -> None:
    async with open_store(database) as store:
        await crowd(store)
        run(database, "ALTER TABLE names RENAME COLUMN tool TO other")
        wrong = asyncio.ensure_future(store.write(insert(names).values(**named("a"))))
        numbers = Numbers()
        right = store.append(numbers, "word")
        assert await right == 1
        with pytest.raises(Exception, match="tool"):
            await wrong


async def test_requests_of_one_turn_run_in_the_order_they_came_in(database: str) -> None:
    async with open_store(database) as store:
        await crowd(store)
        results = await asyncio.gather(
            store.write(insert(names).values(**named("a"))),
            store.write(delete(names).where(names.c.name == "a")),
            store.write(insert(names).values(**named("a"))),
            store.write(update(names).where(names.c.name == "a").values(server="last")),
        )
        assert results == [(1,), (1,), (1,), (1,)]


async def test_a_cancelled_caller_leaves_its_request_and_the_batch_alone(database: str) -> None:
    async with open_store(database) as store:
        await crowd(store)
        numbers = Numbers()
        waiting = [store.append(numbers, f"word {number}") for number in range(5)]
        waiting[1].cancel()
        with anyio.move_on_after(0):
            await store.write(insert(names).values(**named("a")))
        assert [await waiting[index] for index in (0, 2, 3, 4)] == [1, 3, 4, 5]
        assert await kept(store) == {"a"}
    assert len(fetch_rows(database, "SELECT id FROM audit")) == 5


async def test_a_row_that_cannot_be_made_leaves_no_gap_and_stops_nobody_else(database: str) -> None:
    async with open_store(database) as store:
        numbers = Numbers()
        assert await store.append(numbers, "one") == 1
        await crowd(store)
        bad = store.append(numbers, "bad")
        other = asyncio.ensure_future(store.write(insert(names).values(**named("a"))))
        good = store.append(numbers, "two")
        with pytest.raises(ValueError, match="bad"):
            await bad
        assert (await good, await other) == (2, (1,))
        assert numbers.durable[-1] == 2


async def test_a_log_goes_on_where_another_process_left_it(database: str) -> None:
    async with open_store(database) as store:
        numbers = Numbers()
        assert await store.append(numbers, "ours") == 1
        await crowd(store)
        run(database, "INSERT INTO audit (id, hash, at, phase, body) VALUES (2, 'theirs', 'at', 'intent', '')")
        first, second = store.append(numbers, "three"), store.append(numbers, "four")
        assert (await first, await second) == (3, 4)
        assert fetch_rows(database, "SELECT hash FROM audit ORDER BY id") == [
            ("ours",),
            ("theirs",),
            ("three",),
            ("four",),
        ]


async def test_a_read_cannot_write(database: str) -> None:
    async with open_store(database) as store:
        with pytest.raises(Unavailable) as raised:
            await store.read(lambda connection: connection.execute(insert(names).values(**named("a"))).rowcount)
        assert raised.value.code == "database.unavailable"
        assert await kept(store) == set()


async def test_a_fault_in_a_query_is_not_blamed_on_the_database(database: str) -> None:
    def broken(_: Connection) -> None:
        raise ValueError("mine")

    async with open_store(database) as store:
        with pytest.raises(ValueError, match="mine"):
            await store.read(broken)
        assert await kept(store) == set()


async def test_what_waits_when_the_store_closes_is_kept_and_what_comes_later_is_refused(database: str) -> None:
    async with open_store(database) as store:
        await crowd(store)
        numbers = Numbers()
        waiting = store.append(numbers, "last")
    assert await waiting == 1
    with pytest.raises(Unavailable) as raised:
        await store.append(numbers, "too late")
    assert raised.value.code == "crib.closed"
    assert fetch_rows(database, "SELECT hash FROM audit") == [("last",)]


async def test_many_reads_and_writes_at_once_all_finish(database: str) -> None:
    async with open_store(database) as store:
        numbers = Numbers()

        async def work(number: int) -> None:
            await store.append(numbers, str(number))
            await kept(store)

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


async def test_names_of_any_characters_come_back_as_they_were(database: str) -> None:
    rows = [("endpoint", f"name_{number}", text, text) for number, text in enumerate(STRANGE)]
    async with open_store(database) as store:
        await save_names(store, rows)
        assert sorted(await load_names(store)) == sorted(rows)


async def test_taken_names_are_left_as_they_are_and_reported(database: str) -> None:
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


async def test_two_stores_may_open_a_new_database_at_the_same_time(database: str) -> None:
    opened: list[set[str]] = []

    async def open_it() -> None:
        async with open_store(database) as store:
            opened.append(await kept(store))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(open_it)
    assert opened == [set()] * 6
