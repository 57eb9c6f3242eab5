"""Adds the events of all nodes, the questions of agents, and approvals that any node can deliver."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the tables and add the columns."""
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sa.UniqueConstraint("key", name="uq_events_key"),
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("call", sa.Text, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("questions", sa.LargeBinary, nullable=False),
        sa.Column("asked_at", sa.Text, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("answers", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name="pk_questions"),
    )
    op.add_column("approvals", sa.Column("detached", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("approvals", sa.Column("used_at", sa.Text))
