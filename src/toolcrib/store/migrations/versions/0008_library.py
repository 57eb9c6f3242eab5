"""Adds the shared library with its full-text index, and the channels for notices."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_SEARCH = {
    "sqlite": (
        "CREATE VIRTUAL TABLE library_search USING fts5("
        "words, content='library', content_rowid='id', tokenize='unicode61 remove_diacritics 0')",
        "CREATE TRIGGER library_added AFTER INSERT ON library BEGIN "
        "INSERT INTO library_search(rowid, words) VALUES (new.id, new.words); END",
        "CREATE TRIGGER library_removed AFTER DELETE ON library BEGIN "
        "INSERT INTO library_search(library_search, rowid, words) VALUES ('delete', old.id, old.words); END",
        "CREATE TRIGGER library_changed AFTER UPDATE ON library BEGIN "
        "INSERT INTO library_search(library_search, rowid, words) VALUES ('delete', old.id, old.words); "
        "INSERT INTO library_search(rowid, words) VALUES (new.id, new.words); END",
    ),
    "postgresql": ("CREATE INDEX library_search ON library USING gin (to_tsvector('simple', words))",),
}


def upgrade() -> None:
    """Create the tables and the index of words."""
    op.create_table(
        "library",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("agent", sa.Text),
        sa.Column("session", sa.Text),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_library"),
        sa.UniqueConstraint("key", name="uq_library_key"),
    )
    op.create_index("ix_library_category_updated_at", "library", ["category", "updated_at"])
    for statement in _SEARCH[op.get_bind().dialect.name]:
        op.execute(statement)
    op.create_table(
        "channels",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("config", sa.LargeBinary, nullable=False),
        sa.Column("set_at", sa.Text, nullable=False),
        sa.Column("set_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", name="pk_channels"),
    )
