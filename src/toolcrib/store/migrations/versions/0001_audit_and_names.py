"""Adds the audit chain and the names of tools."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=False, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("door", sa.Text),
        sa.Column("principal", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("session", sa.Text),
        sa.Column("server", sa.Text),
        sa.Column("tool", sa.Text),
        sa.Column("decision", sa.Text),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_table(
        "names",
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("form", "name", name="pk_names"),
        sa.UniqueConstraint("form", "server", "tool", name="uq_names_form_server_tool"),
    )
