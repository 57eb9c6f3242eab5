"""Adds the nodes that share a database, and counters of leases and of changes to permissions."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Create the tables and the counters."""
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("load", sa.Integer, nullable=False),
        sa.Column("seen_at", sa.Float, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("epoch", name="uq_nodes_epoch"),
    )
    op.create_table(
        "epochs",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_epochs"),
    )
    op.execute("INSERT INTO epochs (name, value) VALUES ('nodes', 0), ('policy', 0)")
