"""Adds the lanes of nodes in the audit log. Existing records stay in lane 0."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "audit_lanes",
        sa.Column("lane", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("crib", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("lane", name="pk_audit_lanes"),
        sa.UniqueConstraint("crib", name="uq_audit_lanes_crib"),
    )
