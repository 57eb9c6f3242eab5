"""Adds the access level of an app's token."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column; null for tokens whose level was never decided."""
    op.add_column("tokens", sa.Column("level", sa.Text))
