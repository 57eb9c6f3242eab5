"""Checks the database: it opens, is intact, and has a known revision.

Must never write, since a crib may have the file open. PostgreSQL problems are reported by the crib itself.
"""

import importlib.util
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from toolcrib.base.home import Home
from toolcrib.base.settings import mask_url
from toolcrib.doctor.finding import Finding
from toolcrib.doctor.surroundings import Surroundings
from toolcrib.host.backups import kept_backups
from toolcrib.model.errors import ConfigError
from toolcrib.store.engine import sqlite_file
from toolcrib.store.schema import HEAD, REVISIONS

_LOOK_SECONDS = 10.0


def check_database(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the database can be used."""
    shown = mask_url(surroundings.settings.database)
    try:
        file = sqlite_file(surroundings.settings.database)
    except ConfigError as error:
        yield Finding("database", "error", error.message, shown, "toolcrib settings")
        return
    if file is None:
        if importlib.util.find_spec("psycopg") is None:
            message = "The database is PostgreSQL, but its driver is not installed."
            yield Finding("database", "error", message, shown, "pip install 'toolcrib[postgres]'")
        return
    if not file.exists():
        yield Finding("database", "ok", "There is no database yet.", str(file))
        return
    try:
        with closing(_open_database(file)) as connection:
            yield from _looked_into(connection, file, _way_back(surroundings, file))
    except sqlite3.Error as error:
        is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        how = "is damaged" if is_damaged else "cannot be used"
        message = f"The database {how}: {error}."
        yield Finding("database", "error", message, str(file), _way_back(surroundings, file))


def _open_database(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=2)
    until = time.monotonic() + _LOOK_SECONDS
    connection.set_progress_handler(lambda: int(time.monotonic() > until), 10_000)
    return connection


def _way_back(surroundings: Surroundings, file: Path) -> str:
    """Return the command that recovers a damaged database: restore the newest backup, or start afresh."""
    newest = next(iter(kept_backups(Home(surroundings.settings.home))), None)
    if newest is not None:
        return f"toolcrib restore {newest.file}"
    return f"toolcrib restore FILE, if you have a backup; else mv {file} {file}.damaged to start with an empty one"


def _looked_into(connection: sqlite3.Connection, file: Path, way_back: str) -> Iterator[Finding]:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    revision = _revision(connection) if "alembic_version" in tables else None
    if revision is not None and revision not in ("", *REVISIONS):
        message = f"The database was written by a newer Toolcrib (revision {revision})."
        yield Finding("database", "error", message, str(file), "Upgrade Toolcrib, or choose another home.")
        return
    try:
        wrong = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)") if row[0] != "ok"]
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        message = "The database is large; not all of it was checked."
        yield Finding("database", "note", message, str(file), f"sqlite3 {file} 'PRAGMA quick_check'")
        return
    if wrong:
        yield Finding("database", "error", f"The database {file} is damaged.", "; ".join(wrong)[:500], way_back)
    elif revision not in (None, HEAD):
        message = f"The database has an older revision ({revision}); the next start upgrades it."
        yield Finding("database", "note", message, str(file), "toolcrib serve")
    else:
        yield Finding("database", "ok", "The database is intact.", str(file))


def _revision(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row is not None else ""
