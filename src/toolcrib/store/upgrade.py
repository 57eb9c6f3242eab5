"""Migrates a database to the newest schema: created directly if new, migrated by Alembic if older.

Everything happens in one transaction under a lock, so a killed process leaves the old schema, and concurrent starts are
serialised. Alembic is imported only for a migration: it costs a second and 11 MB.

Must never touch a database written by a newer Toolcrib.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from toolcrib.model.errors import ConfigError
from toolcrib.store import job_queue as job_queue  # its tables are created with the others
from toolcrib.store.node_schema import metadata
from toolcrib.store.schema import HEAD, REVISIONS

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_version.primary_key.name = "alembic_version_pkc"  # as Alembic itself creates the table


_BASE = ""
"""The revision before the first: a database that was downgraded to its beginning."""


def prepare_schema(connection: Connection, lock: str, before_migrating: Callable[[str], None] = lambda _: None) -> None:
    """Bring the schema to the expected revision; `lock` is the statement that keeps other processes out.

    `before_migrating` is called with the revision of a database that is about to be migrated.
    """
    if _revision(connection) == HEAD:
        return
    connection.exec_driver_sql(lock)
    revision = _revision(connection)
    if revision is None:
        metadata.create_all(connection, checkfirst=False)
        _version.create(connection, checkfirst=False)
        connection.execute(insert(_version).values(version_num=HEAD))
    elif revision not in (_BASE, *REVISIONS):
        raise ConfigError(
            "database.newer", f"The database has revision {revision!r}; this version of Toolcrib supports {HEAD!r}."
        )
    elif revision != HEAD:
        before_migrating(revision)
        migrate(connection)
    connection.commit()


def _revision(connection: Connection) -> str | None:
    """Return the revision of the schema; None for a database that never had one."""
    if not inspect(connection).has_table(_version.name):
        return None
    return ", ".join(connection.scalars(select(_version.c.version_num)))


def migrate(connection: Connection) -> None:
    """Run all missing revisions in the transaction of this connection."""
    config = importlib.import_module("alembic.config").Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    importlib.import_module("alembic.command").upgrade(config, "head")
