"""Migrates a database to the newest schema: created directly if new, migrated by Alembic if older.

Everything happens in one transaction under a lock, so a killed process leaves the old schema, and concurrent starts are
serialised. Alembic is imported only for a migration: it costs a second and 11 MB.

Nodes of one version and the next share a database during an upgrade, so a revision only adds: tables, and columns that
are nullable or have a default. What a version stops using is removed by the version after it, which raises `OLDEST`.
The database has this number, so that a node of the older version can restart meanwhile. A test checks every revision.

Must never touch a database whose schema this version does not support.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, insert, inspect, select

from toolcrib.model.errors import ConfigError
from toolcrib.store import job_queue as job_queue  # its tables are created with the others
from toolcrib.store.node_schema import epochs, metadata
from toolcrib.store.schema import HEAD, REVISIONS

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_version.primary_key.name = "alembic_version_pkc"  # as Alembic itself creates the table


OLDEST = "0022"
"""The oldest revision whose programs work with the newest schema."""
_OLDEST_NAME = "oldest schema"
_BASE = ""
"""The revision before the first: a database that was downgraded to its beginning."""


def prepare_schema(
    connection: Connection,
    lock: str,
    before_migrating: Callable[[str], None] = lambda _: None,
    *,
    shared: bool = False,
) -> None:
    """Bring the schema to the expected revision; `lock` is the statement that keeps other processes out.

    `before_migrating` is called with the revision of a database that is about to be migrated. In a database that is
    `shared` with other nodes, a newer schema that supports this version is left as it is. Raises `database.newer`.
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
        if shared and _supports_this_version(connection):
            return
        raise ConfigError(
            "database.newer", f"The database has revision {revision!r}; this version of Toolcrib supports {HEAD!r}."
        )
    elif revision != HEAD:
        before_migrating(revision)
        migrate(connection)
    if shared:
        connection.execute(delete(epochs).where(epochs.c.name == _OLDEST_NAME))
        connection.execute(insert(epochs).values(name=_OLDEST_NAME, value=int(OLDEST)))
    connection.commit()


def _supports_this_version(connection: Connection) -> bool:
    """Return whether the newer version that migrated the database states that this one still works with it."""
    oldest = connection.scalar(select(epochs.c.value).where(epochs.c.name == _OLDEST_NAME))
    return oldest is not None and oldest <= int(HEAD)


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
