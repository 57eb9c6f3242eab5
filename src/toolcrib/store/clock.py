"""The clock of the database, in SQL: seconds since 1970. The clocks of nodes may differ; this one decides."""

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class database_seconds(GenericFunction[float]):
    """The current time in SQL, as seconds since 1970; it advances within a transaction."""

    type = Float()
    inherit_cache = True


@compiles(database_seconds, "sqlite")
def _sqlite(element: database_seconds, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_seconds, "postgresql")
def _postgres(element: database_seconds, compiler: Any, **_: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS FLOAT)"
