"""Adds the owner's grants to plugins."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "plugin_grants",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("granted_at", sa.Text, nullable=False),
        sa.Column("granted_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_plugin_grants"),
    )
