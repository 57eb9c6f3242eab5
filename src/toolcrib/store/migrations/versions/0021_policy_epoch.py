"""Counts changes of permissions on PostgreSQL, and adds what counts towards limits across nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_CHANGES = (
    ("rules", "INSERT OR UPDATE OR DELETE"),
    ("tokens", "INSERT OR UPDATE OR DELETE"),
    ("bundles", "INSERT OR UPDATE OR DELETE"),
    ("projects", "INSERT OR UPDATE OR DELETE"),
    ("agents", "INSERT OR DELETE OR UPDATE OF grants"),
    ("pins", "UPDATE OR DELETE"),
    ("sealed_values", "INSERT OR UPDATE OR DELETE"),
)


def upgrade() -> None:
    """Create the table, and on PostgreSQL the triggers."""
    op.create_table(
        "usage",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("amount", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
    )
    op.create_index("ix_usage_key_at", "usage", ["key", "at"])
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION bump_policy_epoch() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN UPDATE epochs SET value = value + 1 WHERE name = ''policy''; RETURN NULL; END'"
    )
    for table, changes in _CHANGES:
        op.execute(
            f"CREATE TRIGGER policy_of_{table} AFTER {changes} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION bump_policy_epoch()"
        )
