"""Adds sessions and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("crib", sa.Text, nullable=False),
        sa.Column("runtime", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("cwd", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("title", sa.Text),
        sa.Column("runner", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("creator", sa.LargeBinary),
        sa.Column("forked_from", sa.Text),
        sa.Column("fork_due", sa.Boolean, nullable=False),
        sa.Column("last_seq", sa.Integer, nullable=False),
        sa.Column("spent", sa.LargeBinary, nullable=False),
        sa.Column("limits", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_cwd_updated_at", "sessions", ["cwd", "updated_at"])
    op.create_index("ix_sessions_updated_at", "sessions", ["updated_at"])
    op.create_table(
        "session_events",
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("seq", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("parent", sa.Text),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_session_events"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_session_events_session_id", ondelete="CASCADE"
        ),
    )
