"""Adds the marks of conversations, and rules that are limited to a number of calls."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Create the table, and add the column."""
    op.create_table(
        "marks",
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("mark", sa.Text, nullable=False),
        sa.Column("audit_id", sa.BigInteger, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("until", sa.Text),
        sa.PrimaryKeyConstraint("conversation", "mark", "audit_id", name="pk_marks"),
    )
    op.add_column("rules", sa.Column("uses", sa.Integer))
