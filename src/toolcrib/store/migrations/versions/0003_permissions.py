"""Adds approvals, pins, tokens, rules, bundles and projects."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables."""
    _approvals()
    _pins()
    _tokens()
    _rules()
    _bundles()
    _projects()


def _approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("crib", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("binding", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("session", sa.Text),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("definition_hash", sa.Text, nullable=False),
        sa.Column("call", sa.Text),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("edited", sa.LargeBinary),
        sa.Column("scope", sa.Text),
        sa.Column("decided_at", sa.Text),
        sa.Column("decided_by", sa.Text),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
    )
    op.create_index("ix_approvals_status_created_at", "approvals", ["status", "created_at"])


def _pins() -> None:
    op.create_table(
        "pins",
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("definition", sa.LargeBinary, nullable=False),
        sa.Column("pinned_at", sa.Text, nullable=False),
        sa.Column("accepted_by", sa.Text),
        sa.Column("held_hash", sa.Text),
        sa.Column("held_definition", sa.LargeBinary),
        sa.Column("held_at", sa.Text),
        sa.Column("rejected_by", sa.Text),
        sa.PrimaryKeyConstraint("server", "tool", name="pk_pins"),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("agent", sa.Text),
        sa.Column("may_approve", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.Text),
        sa.PrimaryKeyConstraint("name", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )


def _rules() -> None:
    op.create_table(
        "rules",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("effect", sa.Text, nullable=False),
        sa.Column("pattern", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text),
        sa.Column("expires_at", sa.Text),
        sa.Column("definition_hash", sa.Text),
        sa.Column("session", sa.Text),
        sa.Column("conditions", sa.LargeBinary, nullable=False),
        sa.Column("applies", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rules"),
    )


def _bundles() -> None:
    op.create_table(
        "bundles",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("tools", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_bundles"),
    )


def _projects() -> None:
    op.create_table(
        "projects",
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("agent", sa.Text),
        sa.Column("bundles", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_projects"),
    )
