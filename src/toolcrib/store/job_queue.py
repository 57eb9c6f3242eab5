"""The tables and functions of Procrastinate, the job queue of several cribs on one PostgreSQL database.

They are created as the installed Procrastinate defines them, in the transaction that creates or migrates the schema.
The version range in `pyproject.toml` keeps them fitting; a wider range needs a revision that migrates them.
"""

import importlib
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, column, event, inspect, table

from toolcrib.store.schema import metadata

TABLE = "procrastinate_jobs"
WORKERS = table("procrastinate_workers", column("id"), column("last_heartbeat"))


def install_job_queue(connection: Connection) -> None:
    """Create the job queue if it is missing. Does nothing on SQLite."""
    if connection.dialect.name != "postgresql" or inspect(connection).has_table(TABLE):
        return
    schema = importlib.import_module("procrastinate.schema").SchemaManager.get_schema()
    # Past SQLAlchemy: the text has many statements, and its percent signs are no placeholders.
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(schema)


@event.listens_for(metadata, "after_create")
def _install(_: Any, connection: Connection, **__: Any) -> None:
    install_job_queue(connection)
