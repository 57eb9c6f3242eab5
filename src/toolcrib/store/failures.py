"""What databases raise, said in our own words: the one place where foreign exceptions of the store are translated.

It must never show a statement, its values or a password: messages reach logs and clients.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import exc

from toolcrib.errors import Unavailable


def unavailable(error: BaseException, *, place: str | None = None, hint: str | None = None) -> Unavailable:
    """The database cannot be used right now, and why, in the database's own words."""
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    words = str(cause).strip().splitlines()
    reason = words[0].rstrip(".") if words else type(cause).__name__
    return Unavailable("database.unavailable", f"The database{f' {place}' if place else ''} fails: {reason}.", hint)


@contextmanager
def translated(place: str | None = None) -> Generator[None]:
    """Turn what a database raises because of its state into `Unavailable`; faults of our own statements stay faults."""
    try:
        yield
    except (exc.ProgrammingError, exc.DataError, exc.IntegrityError):
        raise
    except (exc.DBAPIError, exc.TimeoutError, sqlite3.Error, OSError) as error:
        raise unavailable(error, place=place) from error
