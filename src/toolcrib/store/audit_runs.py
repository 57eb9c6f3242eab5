"""The run of a crib that writes to the audit log; a row left at the next start means the run was killed."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from toolcrib.store.engine import Store
from toolcrib.store.schema import audit_runs


class AuditRun(NamedTuple):
    """One run: the prefix of its calls, the id of its journal if any, and the last record before it."""

    run: str
    journal: str | None
    start: int


async def load_run(store: Store, crib: str) -> AuditRun | None:
    """Return the run of this crib that did not shut down cleanly; None if the last one did."""

    def read(connection: Connection) -> AuditRun | None:
        query = select(audit_runs.c.run, audit_runs.c.journal, audit_runs.c.start).where(audit_runs.c.crib == crib)
        row = connection.execute(query).first()
        return AuditRun(row.run, row.journal, row.start) if row is not None else None

    return await store.read(read)


async def save_run(store: Store, crib: str, run: AuditRun) -> None:
    """Store the run of this crib, replacing the previous one."""
    await store.write(
        delete(audit_runs).where(audit_runs.c.crib == crib),
        insert(audit_runs).values(crib=crib, run=run.run, journal=run.journal, start=run.start),
    )


async def end_run(store: Store, crib: str) -> None:
    """Record that the run of this crib shut down cleanly."""
    await store.write(delete(audit_runs).where(audit_runs.c.crib == crib))
