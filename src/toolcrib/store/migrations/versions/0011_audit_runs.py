"""Adds the runs that write to the audit log: the open journal, and the record the run began at."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "audit_runs",
        sa.Column("crib", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("journal", sa.Text),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("crib", name="pk_audit_runs"),
    )
