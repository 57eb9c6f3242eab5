"""Adds the kill switch and the browser sign-ins of all nodes, and counts changed pins separately."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Create the tables, and on PostgreSQL the triggers."""
    op.create_table(
        "stops",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_stops"),
    )
    op.create_table(
        "logins",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_logins"),
    )
    op.execute("INSERT INTO epochs (name, value) VALUES ('pins', 0)")
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION bump_pins_epoch() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN UPDATE epochs SET value = value + 1 WHERE name IN (''policy'', ''pins''); RETURN NULL; END'"
    )
    op.execute("DROP TRIGGER policy_of_pins ON pins")
    for table, changes, counter in (
        ("pins", "UPDATE OR DELETE", "pins"),
        ("stops", "INSERT OR UPDATE OR DELETE", "policy"),
        ("logins", "DELETE", "policy"),
    ):
        op.execute(
            f"CREATE TRIGGER policy_of_{table} AFTER {changes} ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION bump_{counter}_epoch()"
        )
