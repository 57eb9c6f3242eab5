"""The tables as they are now, and the revisions that led there.

A revision is a file in `migrations/versions`; files are only ever added. `REVISIONS` repeats their names in order, so
that a database can be told to be up to date without importing Alembic. A table may never change here alone: its change
is a new revision, and a test compares both ways to the same schema.
"""

import re
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    event,
    types,
)

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
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


def stored_text(text: str | None) -> str | None:
    """A value of a column as it is stored."""
    return None if text is None else escape(text)


class Text(types.TypeDecorator[str]):
    """Any Python string. PostgreSQL refuses NUL, both engines refuse lone surrogates; names from outside have both."""

    impl = types.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """On the way in."""
        return stored_text(value)

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

offers = Table(
    "offers",
    metadata,
    Column("key", Text, primary_key=True),
    Column("at", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""What servers offered when they were last asked, by the digest of their definitions."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("crib", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("binding", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("door", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("session", Text),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("definition_hash", Text, nullable=False),
    Column("call", Text),
    Column("why", Text, nullable=False),
    Column("arguments", LargeBinary, nullable=False),
    Column("edited", LargeBinary),
    Column("scope", Text),
    Column("decided_at", Text),
    Column("decided_by", Text),
    Column("reason", Text),
    Index(None, "status", "created_at"),
)
"""Questions to a person. `status` leaves `pending` once and for good; `crib` is who waits for the answer; `binding` is
the hash of everything the answer is bound to. The exact arguments are here only while the question is open."""

pins = Table(
    "pins",
    metadata,
    Column("server", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("pinned_at", Text, nullable=False),
    Column("accepted_by", Text),
    Column("held_hash", Text),
    Column("held_definition", LargeBinary),
    Column("held_at", Text),
    Column("rejected_by", Text),
)
"""The definition that counts for each tool of an upstream server, and beside it the one that is held back, if any.
`server` is the identity of the server, not its name."""

tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("agent", Text),
    Column("may_approve", Boolean, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("revoked_at", Text),
    UniqueConstraint("digest"),
)
"""Named tokens. Of a secret only its SHA-256 is kept."""

rules = Table(
    "rules",
    metadata,
    Column("id", Text, primary_key=True),
    Column("effect", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("reason", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", Text),
    Column("expires_at", Text),
    Column("definition_hash", Text),
    Column("session", Text),
    Column("conditions", LargeBinary, nullable=False),
    Column("applies", LargeBinary, nullable=False),
)
"""Rules that stand in no file: those made by command, and answers that were remembered. `conditions` and `applies` (to
whom and to which tools) are JSON as the public shape has it."""

bundles = Table(
    "bundles",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("tools", LargeBinary, nullable=False),
)
"""Bundles that people made; `tools` is a JSON list of patterns."""

projects = Table(
    "projects",
    metadata,
    Column("path", Text, primary_key=True),
    Column("agent", Text),
    Column("bundles", LargeBinary, nullable=False),
)
"""What was set for directories; whether one is trusted is not kept here. `bundles` is a JSON list of ids."""

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("brain_version", Integer, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Column("grants", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""The agents of the zoo. `body` is the agent, `grants` what it may use; beside them only what lists show."""

agent_revisions = Table(
    "agent_revisions",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", LargeBinary),
)
"""Every state an agent ever had. The key is what keeps two writers from making the same version."""

brain = Table(
    "brain",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "agent_id", "at"),
)
"""What agents remember; an agent that is deleted takes its entries along."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("crib", Text, nullable=False),
    Column("runtime", Text),
    Column("agent", Text),
    Column("cwd", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("model", Text),
    Column("title", Text),
    Column("runner", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("creator", LargeBinary),
    Column("forked_from", Text),
    Column("fork_due", Boolean, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("spent", LargeBinary, nullable=False),
    Column("limits", LargeBinary, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Index(None, "cwd", "updated_at"),
    Index(None, "updated_at"),
)
"""Conversations of agents. `crib` is the one that last ran it."""

session_events = Table(
    "session_events",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("parent", Text),
    Column("data", LargeBinary, nullable=False),
)
"""Everything that happened in a session, in order. The key is what keeps two writers apart."""

schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("next_at", Text),
    Column("creator", LargeBinary),
    Column("body", LargeBinary, nullable=False),
)
"""Agents that are given a prompt at set times."""

schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("schedule_id", Text, ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
    Column("due_at", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("crib", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", Text, nullable=False),
    Column("ended_at", Text),
    Column("session", Text),
    Column("reason", Text),
    Column("cost_usd", Float, nullable=False),
    Index(None, "state"),
)
"""Their runs. The key is what keeps two cribs from making the same one."""

credit_budgets = Table(
    "credit_budgets",
    metadata,
    Column("agent", Text, primary_key=True),
    Column("turns", Integer),
    Column("calls", Integer),
    Column("usd", Float),
    Column("set_at", Text, nullable=False),
    Column("set_by", Text, nullable=False),
)
"""What agents may use in all; the row `*` is for those that have none of their own. What is null has no limit."""

credit_entries = Table(
    "credit_entries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("usd", Float, nullable=False),
    Column("session", Text),
    Column("by", Text, nullable=False),
    Column("reason", Text),
    Index(None, "agent", "at"),
)
"""What agents were granted and have spent. Rows are only ever added."""

library = Table(
    "library",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("words", Text, nullable=False),
    Column("agent", Text),
    Column("session", Text),
    Column("author", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    UniqueConstraint("key"),
    Index(None, "category", "updated_at"),
)
"""What agents share. `words` is all that can be searched for, made plain; `tags` is a JSON list. Both engines keep an
index `library_search` over the words, each in its own way; `id` is what SQLite's holds on to."""

LIBRARY_SEARCH = {
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
"""How each engine makes its index over the library."""
for _engine, _statements in LIBRARY_SEARCH.items():
    for _statement in _statements:
        event.listen(library, "after_create", DDL(_statement).execute_if(dialect=_engine))
event.listen(library, "before_drop", DDL("DROP TABLE IF EXISTS library_search").execute_if(dialect="sqlite"))

channels = Table(
    "channels",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("config", LargeBinary, nullable=False),
    Column("set_at", Text, nullable=False),
    Column("set_by", Text, nullable=False),
)
"""Where notices to the owner go beside the console; `config` is JSON."""

work_tasks = Table(
    "work_tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("crib", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("ended_at", Text),
    Column("creator", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    Index(None, "state"),
    Index(None, "created_at"),
)
"""Work that agents do in the background, each on a branch of its own. `crib` is the one that has its files."""

plugin_grants = Table(
    "plugin_grants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("capabilities", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("granted_at", Text, nullable=False),
    Column("granted_by", Text, nullable=False),
)
"""What the owner agreed to of plugins; `capabilities` is a JSON list, `digest` that of the manifest."""
