"""Adds the background tasks of agents."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "work_tasks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("crib", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("ended_at", sa.Text),
        sa.Column("creator", sa.LargeBinary),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_work_tasks"),
    )
    op.create_index("ix_work_tasks_state", "work_tasks", ["state"])
    op.create_index("ix_work_tasks_created_at", "work_tasks", ["created_at"])
