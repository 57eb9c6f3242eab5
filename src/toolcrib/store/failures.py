"""Translates exceptions of databases into Toolcrib's own.

Must never include a statement, its values or a password: messages reach logs and clients.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import exc

from toolcrib.model.errors import Unavailable


def unavailable(error: BaseException, *, place: str | None = None, hint: str | None = None) -> Unavailable:
    """Return the error for an unavailable or damaged database, with the database's own reason."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    words = str(cause).strip().splitlines()
    reason = words[0].rstrip(".") if words else type(cause).__name__
    if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        message = f"The database{f' {place}' if place else ''} is damaged: {reason}."
        return Unavailable("database.damaged", message, hint)
    return Unavailable("database.unavailable", f"The database{f' {place}' if place else ''} failed: {reason}.", hint)


@contextmanager
def translate_errors(place: str | None = None) -> Generator[None]:
    """Convert errors about the state of a database to `Unavailable`; errors of our own statements pass through."""
    try:
        yield
    except (exc.ProgrammingError, exc.DataError, exc.IntegrityError):
        raise
    except (exc.DBAPIError, exc.TimeoutError, sqlite3.Error, OSError) as error:
        raise unavailable(error, place=place) from error
