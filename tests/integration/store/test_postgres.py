"""The store while the PostgreSQL server restarts or loses connections."""

import anyio
import psycopg
import pytest
from sqlalchemy import insert, select

from integration.store.databases import Server, fetch_rows
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.store.engine import Store, open_store
from toolcrib.store.schema import names

pytestmark = pytest.mark.anyio


def drop_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        clients = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
        other.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {clients}".encode())


async def write(store: Store, name: str) -> None:
    await store.write(insert(names).values(form="f", name=name, server="s", tool=name))


async def write_when_possible(store: Store, name: str) -> int:
    """Write until it succeeds; return the number of failures."""
    failures = 0
    with anyio.fail_after(10):
        while True:
            try:
                await write(store, name)
            except Unavailable:
                failures += 1
                await anyio.sleep(0.02)
            else:
                return failures


async def test_lost_connection_is_reopened(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await write(store, "before")
        drop_connections(postgres_url)
        assert await write_when_possible(store, "after") <= 1
        found = await store.read(lambda connection: connection.scalars(select(names.c.name)).all())
        assert sorted(found) == ["after", "before"]


@pytest.mark.parametrize("quiet", ["_QUIET", "_SILENT"])
async def test_connection_lost_while_idle_fails_no_write(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, quiet: str
) -> None:
    monkeypatch.setattr("toolcrib.store.postgres._QUIET", 0.0)
    monkeypatch.setattr(f"toolcrib.store.postgres.{quiet}", 0.0)
    async with open_store(postgres_url) as store:
        await write(store, "before")
        drop_connections(postgres_url)
        await write(store, "after")


async def test_writes_fail_while_the_server_is_down_and_work_after_its_restart(
    postgres: Server, postgres_url: str
) -> None:
    async with open_store(postgres_url) as store:
        await write(store, "before")
        await anyio.to_thread.run_sync(postgres.stop)
        for number in range(3):
            with pytest.raises(Unavailable) as raised, anyio.fail_after(10):
                await write(store, f"lost {number}")
            assert raised.value.code == "database.unavailable"
        with pytest.raises(Unavailable):
            await store.read(lambda connection: connection.scalars(select(names.c.name)).all())
        await anyio.to_thread.run_sync(postgres.ensure_postgres_running)
        await write_when_possible(store, "after")
    assert fetch_rows(postgres_url, "SELECT name FROM names ORDER BY name") == [("after",), ("before",)]


async def test_unreachable_server_error_hides_the_password() -> None:
    with pytest.raises(Unavailable) as raised:
        async with open_store("postgresql://user:pass-word-42@127.0.0.1:1/nothing"):
            pass
    assert raised.value.code == "database.unavailable"
    assert "pass-word-42" not in str(raised.value)


async def test_invalid_address_is_a_setting_error() -> None:
    with pytest.raises(ConfigError) as raised:
        async with open_store("postgresql://localhost/x?nonsense=1"):
            pass
    assert raised.value.code == "settings.invalid"


async def test_other_schemes_of_the_address_are_accepted(postgres_url: str) -> None:
    for scheme in ("postgres", "postgresql+psycopg"):
        async with open_store(postgres_url.replace("postgresql", scheme, 1), durability="power") as store:
            await write(store, scheme)
    assert fetch_rows(postgres_url, "SELECT count(*) FROM names") == [(2,)]
