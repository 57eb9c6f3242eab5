"""Replaces a crib's database with a backup, while no crib runs.

The backup is unpacked beside the database and checked as a whole, with its audit chain, before anything is replaced.
Replaced files are moved to `database-backups/replaced-…` in the home and stay there. The restored chain continues with
a record of the restore.

Must never touch the home without its lock.
"""

import shutil
import socket
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio.to_thread

from toolcrib.base.home import Home, HomeLock, prepare_home
from toolcrib.base.settings import Settings
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.audit.head import ChainHead, read_head
from toolcrib.host.audit_key import open_key
from toolcrib.host.backups import database_file
from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.store.backup import DATABASE, Backup, unpack_backup
from toolcrib.store.engine import open_store

_BESIDE: Final = ("", "-wal", "-shm", "-pending")


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A backup that could be restored: problems of its chain, and which records would be lost."""

    backup: Backup
    findings: tuple[str, ...]
    end: int
    """The number of the newest record known to the home."""

    @property
    def lost(self) -> int:
        """How many records were written after the backup."""
        return max(0, self.end - self.backup.number)

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"backup": self.backup.to_json(), "lost": self.lost, "findings": list(self.findings)}


class Restore:
    """An unpacked and checked backup. `execute` puts it in place."""

    def __init__(self, home: Home, database: Path, folder: Path, plan: RestorePlan) -> None:
        self.plan = plan
        self._home = home
        self._database = database
        self._folder = folder

    async def execute(self, by: Principal) -> Path:
        """Replace the database. Returns the directory that holds the replaced files."""
        record: JsonObject = {**self.plan.backup.to_json(), "end": self.plan.end, "lost": self.plan.lost}
        async with _open_audit(self._home, self._folder) as audit:
            await Changes(audit, lambda: "").make("crib.restore", record, _nothing, by=by, door="cli")
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        aside = self._home.database_backups / f"replaced-{stamp}"
        await anyio.to_thread.run_sync(self._swap, aside)
        key = await open_key(self._home.root)
        if key is not None:
            await anyio.to_thread.run_sync(key.restart)
        return aside

    def _swap(self, aside: Path) -> None:
        """Move the old files aside and the unpacked ones into place. Reverts on failure."""
        aside.mkdir(mode=0o700, parents=True)
        audit = self._home.audit_head
        old = [self._database.with_name(self._database.name + suffix) for suffix in _BESIDE]
        old += [audit, audit.with_name("audit.signature"), audit.with_name("audit")]
        new = {self._folder / f"{DATABASE}{suffix}": path for suffix, path in zip(_BESIDE, old, strict=False)}
        new |= {self._folder / name: audit.with_name(name) for name in ("audit.head", "audit")}
        moved: list[tuple[Path, Path]] = []
        try:
            for path in old:
                _move(path, aside / path.name, moved)
            for path, place in new.items():
                _move(path, place, moved)
        except OSError as error:
            for source, target in reversed(moved):
                target.rename(source)
            message = f"Could not restore the backup: {error.strerror or error}. Nothing was changed."
            raise Unavailable("backup.failed", message) from error


def _move(source: Path, target: Path, moved: list[tuple[Path, Path]]) -> None:
    if source.exists():
        source.rename(target)
        moved.append((source, target))


@asynccontextmanager
async def restoring(settings: Settings, file: Path) -> AsyncGenerator[Restore]:
    """Lock the home, unpack a backup and check it, without replacing anything yet.

    Raises `crib.running`, `backup.invalid`, `backup.unsupported`, `database.newer` or `database.damaged`.
    """
    home = prepare_home(settings.home)
    database = database_file(settings)
    if database is None:
        raise InvalidRequest("backup.unsupported", "Toolcrib can only restore a SQLite database.")
    async with AsyncExitStack() as stack:
        lock = HomeLock(home)
        if not lock.try_acquire():
            who = f"process {lock.holder_pid()}" if lock.holder_pid() else "another process"
            raise Unavailable("crib.running", f"A crib is running on {home.root} ({who}).", "Stop it, then restore.")
        stack.callback(lock.release)
        folder = database.with_name(f".restore-{datetime.now(UTC):%Y%m%d%H%M%S%f}")
        folder.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        backup = await anyio.to_thread.run_sync(unpack_backup, file, folder)
        known = await anyio.to_thread.run_sync(read_head, home.audit_head)
        await anyio.to_thread.run_sync(_prepare, folder, backup, known.notes if known is not None else ())
        async with _open_audit(home, folder) as audit:
            checked = await audit.verify()
        end = known.head.number if known is not None and known.head is not None else 0
        before = set(known.notes if known is not None else ())
        findings = tuple(each.message for each in checked.findings if each.message not in before)
        yield Restore(home, database, folder, RestorePlan(backup, findings, end))


def _prepare(folder: Path, backup: Backup, notes: Sequence[str]) -> None:
    """Make the unpacked files look like those of a stopped crib: with the backup's head and without a journal."""
    head = ChainHead(backup.number, backup.hash)
    lines = [f"{head.number:020d} {head.hash}", *notes]
    (folder / "audit.head").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "audit_runs" in tables:
            connection.execute("UPDATE audit_runs SET journal = NULL")


@asynccontextmanager
async def _open_audit(home: Home, folder: Path) -> AsyncGenerator[Audit]:
    """Open the audit of the unpacked files, including the records in a journal of the backup."""
    crib = f"{socket.gethostname()} {home.marker}"
    async with (
        open_store(f"sqlite:///{folder / DATABASE}", alone=True) as store,
        Audit(store, folder / "audit.head", crib=crib) as audit,
    ):
        yield audit


async def _nothing() -> None:
    """Do nothing: the change itself is the move of files that follows."""
