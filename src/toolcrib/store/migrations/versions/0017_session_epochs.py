"""Adds the epoch of sessions and their events, and the job queue on PostgreSQL."""

import sqlalchemy as sa
from alembic import op

from toolcrib.store.job_queue import install_job_queue

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the columns and the job queue."""
    op.add_column("sessions", sa.Column("epoch", sa.Integer, nullable=False, server_default="0"))
    op.add_column("session_events", sa.Column("epoch", sa.Integer, nullable=False, server_default="0"))
    install_job_queue(op.get_bind())
