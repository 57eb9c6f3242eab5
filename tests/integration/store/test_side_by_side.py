"""Nodes of two versions on one database: what a migration may change, and which schemas are accepted."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect

from integration.store.databases import create_at, engine_of, fetch_rows, run
from toolcrib.model.errors import ConfigError
from toolcrib.store.engine import open_store
from toolcrib.store.names import load_names, save_names
from toolcrib.store.schema import HEAD
from toolcrib.store.upgrade import OLDEST

pytestmark = pytest.mark.anyio

Shape = dict[str, Any]


def shape(connection: Connection) -> Shape:
    """Return what statements of programs depend on: columns, keys and constraints of all tables."""
    look = inspect(connection)
    return {
        table: {
            "columns": {column["name"]: column for column in look.get_columns(table)},
            "key": look.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(each["column_names"] for each in look.get_unique_constraints(table)),
            "foreign": sorted(str(each["constrained_columns"]) for each in look.get_foreign_keys(table)),
        }
        for table in look.get_table_names()
    }  # fmt: skip


def breaks(before: Shape, after: Shape) -> list[str]:
    """Return the changes that would break a program that expects the earlier schema."""
    found = [f"table {table} was removed" for table in before if table not in after]
    for table, old in before.items():
        new = after.get(table)
        if new is None:
            continue
        found += [f"{table}: the {part} changed" for part in ("key", "unique", "foreign") if old[part] != new[part]]
        for name, column in new["columns"].items():
            known = old["columns"].get(name)
            if known is None and not column["nullable"] and column["default"] is None:
                found.append(f"{table}.{name} needs a value that older programs do not write")
            if known is not None and (str(known["type"]), known["nullable"]) != (
                str(column["type"]),
                column["nullable"],
            ):
                found.append(f"{table}.{name} changed its type")  # fmt: skip
        found += [f"{table}.{name} was removed" for name in old["columns"] if name not in new["columns"]]
    return found


def test_revisions_since_the_oldest_supported_one_only_add(sqlite_url: str) -> None:
    run(sqlite_url, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    shapes: list[Shape] = []
    for revision in (OLDEST, HEAD):
        create_at(sqlite_url, revision)
        with engine_of(sqlite_url).connect() as connection:
            shapes.append(shape(connection))
    assert breaks(*shapes) == [], "Programs of the revision OLDEST fail: add now, and remove one version later."


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("DROP TABLE names", "table names was removed"),
        ("ALTER TABLE rules RENAME COLUMN uses TO used", "rules.uses was removed"),
        ("ALTER TABLE offers ADD COLUMN size INTEGER NOT NULL DEFAULT 0", None),
        ("ALTER TABLE offers ADD COLUMN size INTEGER", None),
        ("CREATE TABLE more (id TEXT PRIMARY KEY)", None),
    ],
)
async def test_removal_is_seen_as_a_break_and_an_addition_is_not(
    sqlite_url: str, change: str, expected: str | None
) -> None:
    async with open_store(sqlite_url):
        pass
    with engine_of(sqlite_url).begin() as connection:
        before = shape(connection)
        connection.exec_driver_sql(change)
        assert breaks(before, shape(connection)) == ([] if expected is None else [expected])


async def test_restarted_node_accepts_a_newer_schema_that_supports_it(postgres_url: str) -> None:
    async with open_store(postgres_url):
        pass
    assert fetch_rows(postgres_url, "SELECT value FROM epochs WHERE name = 'oldest schema'") == [(int(OLDEST),)]
    run(postgres_url, "ALTER TABLE names ADD COLUMN note TEXT", "UPDATE alembic_version SET version_num = '9999'")
    async with open_store(postgres_url) as store:
        await save_names(store, [("f", "n", "s", "t")])
        assert await load_names(store) == [("f", "n", "s", "t")]
    assert fetch_rows(postgres_url, "SELECT version_num FROM alembic_version") == [("9999",)]
    run(postgres_url, f"UPDATE epochs SET value = {int(HEAD) + 1} WHERE name = 'oldest schema'")
    with pytest.raises(ConfigError) as raised:
        async with open_store(postgres_url):
            pass
    assert raised.value.code == "database.newer"


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense"])
async def test_url_of_another_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        async with open_store(url):
            pass
    assert raised.value.code == "settings.invalid"


async def test_url_with_several_hosts_reaches_the_one_that_accepts_writes(postgres_url: str, tmp_path: Path) -> None:
    host = str(fetch_rows(postgres_url, "SHOW unix_socket_directories")[0][0])
    query = f"host={tmp_path},{host}&target_session_attrs=read-write&options={postgres_url.partition('options=')[2]}"
    for hosts in ("", "127.0.0.1:1,[::1]:2"):  # the hosts in the query take precedence
        async with open_store(f"postgresql://postgres@{hosts}/postgres?{query}&port=5432") as store:
            assert await load_names(store) == []
