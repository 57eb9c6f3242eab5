"""The tables as they are now, and the revisions that led there.

A revision is a file in `migrations/versions`; files are only ever added. `REVISIONS` repeats their names in order, so
that a database can be told to be up to date without importing Alembic. A table may never change here alone: its change
is a new revision, and a test compares both ways to the same schema.
"""

import re
from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Integer, LargeBinary, MetaData, Table, UniqueConstraint, types

REVISIONS = ("0001",)
HEAD = REVISIONS[-1]

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

_UNSTORABLE = re.compile("[\0\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def escape(text: str) -> str:
    """The text as columns hold it: what one engine or the other cannot store becomes `\\uXXXX`, like the backslash."""
    if _UNSTORABLE.search(text) is None:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def unescape(stored: str) -> str:
    """The text that `escape` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored) if "\\" in stored else stored


class Text(types.TypeDecorator[str]):
    """Any Python string. PostgreSQL refuses NUL, both engines refuse lone surrogates; names from outside have both."""

    impl = types.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """On the way in."""
        return None if value is None else escape(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """On the way out."""
        return None if value is None else unescape(value)


audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("hash", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("door", Text),
    Column("principal", Text),
    Column("agent", Text),
    Column("session", Text),
    Column("server", Text),
    Column("tool", Text),
    Column("decision", Text),
    Column("body", LargeBinary, nullable=False),
)
"""The audit chain. `id` counts without gaps, and two rows cannot follow the same one, since both would have its number
plus one. Beside it only what is asked for often: `body` is the record, and `verify` compares the columns with it."""

names = Table(
    "names",
    metadata,
    Column("form", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    UniqueConstraint("form", "server", "tool"),
)
"""The names tools are shown under: in each form one name for a tool and one tool for a name."""
