"""Adds the tools that are listed in a shorter form."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Create the table, and on PostgreSQL its trigger."""
    op.create_table(
        "shortened_tools",
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_shortened_tools"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER policy_of_shortened_tools AFTER INSERT OR UPDATE OR DELETE ON shortened_tools "
            "FOR EACH STATEMENT EXECUTE FUNCTION bump_policy_epoch()"
        )
