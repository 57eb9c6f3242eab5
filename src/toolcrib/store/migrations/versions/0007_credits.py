"""Adds budgets of agents and the ledger of credits."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "credit_budgets",
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("turns", sa.Integer),
        sa.Column("calls", sa.Integer),
        sa.Column("usd", sa.Float),
        sa.Column("set_at", sa.Text, nullable=False),
        sa.Column("set_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("agent", name="pk_credit_budgets"),
    )
    op.create_table(
        "credit_entries",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column("usd", sa.Float, nullable=False),
        sa.Column("session", sa.Text),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_credit_entries"),
    )
    op.create_index("ix_credit_entries_agent_at", "credit_entries", ["agent", "at"])
