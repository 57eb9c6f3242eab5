"""Binds remembered answers to a principal; tokens state whether their answers may be remembered."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("rules", sa.Column("principal", sa.Text))
    op.add_column("approvals", sa.Column("remember", sa.Text))
    op.add_column("tokens", sa.Column("may_remember", sa.Boolean, nullable=False, server_default=sa.false()))
