"""Adds schedules and their runs."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("next_at", sa.Text),
        sa.Column("creator", sa.LargeBinary),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
    )
    op.create_table(
        "schedule_runs",
        sa.Column("schedule_id", sa.Text, nullable=False),
        sa.Column("due_at", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("crib", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("ended_at", sa.Text),
        sa.Column("session", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("cost_usd", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", "due_at", "attempt", name="pk_schedule_runs"),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name="fk_schedule_runs_schedule_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_schedule_runs_state", "schedule_runs", ["state"])
