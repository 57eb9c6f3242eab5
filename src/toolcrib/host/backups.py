"""Backups of a crib's database, on demand and daily. The newest few daily backups are kept in the home."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolcrib.base.home import Home
from toolcrib.base.settings import Settings
from toolcrib.gate.audit.audit import Audit
from toolcrib.model.errors import ConfigError, InvalidRequest, ToolcribError
from toolcrib.store.backup import Backup, read_backup, write_backup
from toolcrib.store.engine import Store, sqlite_file

FIRST: Final = 300.0
"""Seconds after the start until the first check for a due backup."""
LOOK_EVERY: Final = 3_600.0
KEPT: Final = 3
"""How many daily backups are kept."""
_DAY: Final = 24 * 3_600.0
_ROOM: Final = 3
"""Free disk space that a daily backup requires, as a multiple of the database size."""

logger = logging.getLogger(__name__)


def database_file(settings: Settings) -> Path | None:
    """Return the SQLite file of a crib, or None for another database."""
    try:
        return sqlite_file(settings.database)
    except ConfigError:
        return None


class Backups:
    """The backups of one crib, in a directory of its home."""

    def __init__(self, store: Store, audit: Audit, home: Home, database: Path | None) -> None:
        self._store = store
        self._audit = audit
        self._home = home
        self._database = database

    async def create(self, to: Path | None = None, kind: str = "backup") -> Backup:
        """Back up the database to a new file, or into the home. Raises like `write_backup`."""
        if self._database is None:
            message = "Toolcrib can only back up a SQLite database."
            raise InvalidRequest("backup.unsupported", message, "Use `pg_dump` for PostgreSQL.")
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        place = to or self._home.database_backups / f"{kind}-{stamp}.zip"
        await anyio.to_thread.run_sync(partial(self._home.database_backups.mkdir, mode=0o700, exist_ok=True))
        await self._store.caught_up()
        async with self._audit.segments.steady():
            files = await anyio.to_thread.run_sync(companions, self._home)
            return await anyio.to_thread.run_sync(write_backup, self._database, place, files)

    async def list(self) -> Sequence[Backup]:
        """Return the backups in the home, newest first."""
        return await anyio.to_thread.run_sync(kept_backups, self._home)

    async def follow(self) -> None:
        """Back up the database once a day and delete old backups. Runs until cancelled."""
        await anyio.sleep(FIRST)
        while self._database is not None:
            try:
                if await anyio.to_thread.run_sync(self._is_due):
                    await self.create(kind="daily")
                    await anyio.to_thread.run_sync(self._remove_old)
            except ToolcribError as error:
                logger.warning("The daily backup failed: %s", error.message)
            except Exception:  # boundary: retried in an hour
                logger.exception("The daily backup failed.")
            await anyio.sleep(LOOK_EVERY)

    def _daily(self) -> Sequence[Path]:
        return sorted(self._home.database_backups.glob("daily-*.zip"), reverse=True)

    def _is_due(self) -> bool:
        assert self._database is not None
        newest = next(iter(self._daily()), None)
        age = datetime.now(UTC).timestamp() - newest.stat().st_mtime if newest is not None else _DAY
        if 0 <= age < _DAY:
            return False
        size = self._database.stat().st_size
        if shutil.disk_usage(self._home.root).free < _ROOM * size:
            logger.warning("Skipped the daily backup: the disk has too little free space.")
            return False
        return True

    def _remove_old(self) -> None:
        for old in self._daily()[KEPT:]:
            old.unlink(missing_ok=True)


def companions(home: Home) -> Mapping[str, Path]:
    """Return the files that belong to the database, by their names in a backup: audit head and sealed records."""
    sealed = sorted(home.audit_head.with_name("audit").glob("*"))
    return {"audit.head": home.audit_head, **{f"audit/{path.name}": path for path in sealed if path.is_file()}}


def kept_backups(home: Home) -> list[Backup]:
    """Return the valid backups in the home, newest first. Blocking."""
    found: list[Backup] = []
    for path in home.database_backups.glob("*.zip"):
        try:
            found.append(read_backup(path))
        except ToolcribError as error:
            logger.warning("%s", error.message)
    return sorted(found, key=lambda backup: backup.at, reverse=True)
