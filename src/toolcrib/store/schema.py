"""The current tables, and the revisions that led to them.

A revision is a file in `migrations/versions`; files are only ever added. `REVISIONS` repeats their names in order, so
that checking a database does not import Alembic.

Must never change a table without a new revision; a test compares both ways to the same schema.
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
    false,
    types,
)

REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
    "0020",
    "0021",
    "0022",
    "0023",
    "0024",
    "0025",
)
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
    """Return the text as stored: characters that an engine cannot store, and the backslash, become `\\uXXXX`."""
    if _UNSTORABLE.search(text) is None:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def unescape(stored: str) -> str:
    """Reverse `escape`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored) if "\\" in stored else stored


def stored_text(text: str | None) -> str | None:
    """Return a column's value as stored."""
    return None if text is None else escape(text)


class StoredText(types.TypeDecorator[str]):
    """Any Python string. PostgreSQL refuses NUL, both engines refuse lone surrogates; external names may have both."""

    impl = types.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape a value to store."""
        return stored_text(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """Unescape a stored value."""
        return None if value is None else unescape(value)


audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("hash", StoredText, nullable=False),
    Column("at", StoredText, nullable=False),
    Column("phase", StoredText, nullable=False),
    Column("door", StoredText),
    Column("principal", StoredText),
    Column("agent", StoredText),
    Column("session", StoredText),
    Column("server", StoredText),
    Column("tool", StoredText),
    Column("decision", StoredText),
    Column("body", LargeBinary, nullable=False),
)
"""The audit chain. `id` has no gaps, and two rows cannot follow the same one, since both would have its number plus
one. The other columns exist for frequent queries: `body` is the record, and `verify` compares the columns with it.
"""

names = Table(
    "names",
    metadata,
    Column("form", StoredText, primary_key=True),
    Column("name", StoredText, primary_key=True),
    Column("server", StoredText, nullable=False),
    Column("tool", StoredText, nullable=False),
    UniqueConstraint("form", "server", "tool"),
)
"""The exposed names of tools: in each form, one name per tool and one tool per name."""

offers = Table(
    "offers",
    metadata,
    Column("key", StoredText, primary_key=True),
    Column("at", StoredText, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""The last known offers of servers, by the digest of their definitions."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("crib", StoredText, nullable=False),
    Column("status", StoredText, nullable=False),
    Column("binding", StoredText, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("expires_at", StoredText, nullable=False),
    Column("door", StoredText, nullable=False),
    Column("principal", StoredText, nullable=False),
    Column("session", StoredText),
    Column("server", StoredText, nullable=False),
    Column("tool", StoredText, nullable=False),
    Column("definition_hash", StoredText, nullable=False),
    Column("call", StoredText),
    Column("why", StoredText, nullable=False),
    Column("arguments", LargeBinary, nullable=False),
    Column("edited", LargeBinary),
    Column("scope", StoredText),
    Column("decided_at", StoredText),
    Column("decided_by", StoredText),
    Column("reason", StoredText),
    Column("remember", StoredText),
    Column("detached", Boolean, nullable=False, server_default=false()),
    Column("used_at", StoredText),
    Index(None, "status", "created_at"),
)
"""Approvals. `status` leaves `pending` exactly once; `crib` is the one that waits for the answer; `binding` is the hash
of everything the answer is bound to. The exact arguments, and the conditions of a remembered answer (`remember`), are
stored only while the approval is pending. A `detached` approval has no waiting call: its client fetches the answer,
once (`used_at`), from any node.
"""

pins = Table(
    "pins",
    metadata,
    Column("server", StoredText, primary_key=True),
    Column("tool", StoredText, primary_key=True),
    Column("hash", StoredText, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("pinned_at", StoredText, nullable=False),
    Column("accepted_by", StoredText),
    Column("held_hash", StoredText),
    Column("held_definition", LargeBinary),
    Column("held_at", StoredText),
    Column("rejected_by", StoredText),
)
"""The accepted definition of each tool of an upstream server, and the held one, if any. `server` is the identity of the
server, not its name.
"""

tokens = Table(
    "tokens",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("digest", StoredText, nullable=False),
    Column("source", StoredText, nullable=False),
    Column("mode", StoredText, nullable=False),
    Column("agent", StoredText),
    Column("may_approve", Boolean, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("revoked_at", StoredText),
    Column("may_remember", Boolean, nullable=False, server_default=false()),
    Column("level", StoredText),
    UniqueConstraint("digest"),
)
"""Named tokens. Only the SHA-256 of a secret is stored."""

rules = Table(
    "rules",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("effect", StoredText, nullable=False),
    Column("pattern", StoredText, nullable=False),
    Column("origin", StoredText, nullable=False),
    Column("reason", StoredText),
    Column("created_by", StoredText, nullable=False),
    Column("created_at", StoredText),
    Column("expires_at", StoredText),
    Column("definition_hash", StoredText),
    Column("session", StoredText),
    Column("conditions", LargeBinary, nullable=False),
    Column("applies", LargeBinary, nullable=False),
    Column("principal", StoredText),
    Column("uses", Integer),
)
"""Rules that are not in a file: those added by command, and remembered answers. `conditions`, `applies` (principals and
tools) and `principal` are JSON in the public shape. `uses` is the number of calls that a limited rule still decides.
"""

shortened_tools = Table(
    "shortened_tools",
    metadata,
    Column("hash", StoredText, primary_key=True),
    Column("server", StoredText, nullable=False),
    Column("tool", StoredText, nullable=False),
)
"""Tools that are listed in a shorter form, by the hash of the definition that was shortened."""

marks = Table(
    "marks",
    metadata,
    Column("conversation", StoredText, primary_key=True),
    Column("mark", StoredText, primary_key=True),
    Column("audit_id", BigInteger, primary_key=True, autoincrement=False),
    Column("server", StoredText, nullable=False),
    Column("tool", StoredText, nullable=False),
    Column("at", StoredText, nullable=False),
    Column("until", StoredText),
)
"""The calls that marked a conversation as having read untrusted text or private data."""

bundles = Table(
    "bundles",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("name", StoredText, nullable=False),
    Column("description", StoredText, nullable=False),
    Column("prompt", StoredText, nullable=False),
    Column("tools", LargeBinary, nullable=False),
)
"""Bundles created by users; `tools` is a JSON list of patterns."""

projects = Table(
    "projects",
    metadata,
    Column("path", StoredText, primary_key=True),
    Column("agent", StoredText),
    Column("bundles", LargeBinary, nullable=False),
)
"""Settings of directories, without their trust. `bundles` is a JSON list of ids."""

agents = Table(
    "agents",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("name", StoredText, nullable=False),
    Column("description", StoredText, nullable=False),
    Column("version", Integer, nullable=False),
    Column("brain_version", Integer, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("updated_at", StoredText, nullable=False),
    Column("grants", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""The agents of the zoo. `body` is the agent, `grants` its permissions; the other columns are what lists show."""

agent_revisions = Table(
    "agent_revisions",
    metadata,
    Column("agent_id", StoredText, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("at", StoredText, nullable=False),
    Column("author", StoredText, nullable=False),
    Column("kind", StoredText, nullable=False),
    Column("body", LargeBinary),
)
"""Every state of an agent. The key prevents two writers from creating the same version."""

brain = Table(
    "brain",
    metadata,
    Column("agent_id", StoredText, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("id", StoredText, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("type", StoredText, nullable=False),
    Column("at", StoredText, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "agent_id", "at"),
)
"""The memory of agents; deleting an agent deletes its entries."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("crib", StoredText, nullable=False),
    Column("runtime", StoredText),
    Column("agent", StoredText),
    Column("cwd", StoredText, nullable=False),
    Column("source", StoredText, nullable=False),
    Column("mode", StoredText, nullable=False),
    Column("model", StoredText),
    Column("title", StoredText),
    Column("runner", StoredText, nullable=False),
    Column("state", StoredText, nullable=False),
    Column("reason", StoredText),
    Column("creator", LargeBinary),
    Column("forked_from", StoredText),
    Column("fork_due", Boolean, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("spent", LargeBinary, nullable=False),
    Column("limits", LargeBinary, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("updated_at", StoredText, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Index(None, "cwd", "updated_at"),
    Index(None, "updated_at"),
)
"""Sessions of agents. `crib` is the one that runs it or ran it last. `epoch` grows by one whenever a crib begins to run
it: writes with an older epoch are refused.
"""

session_events = Table(
    "session_events",
    metadata,
    Column("session_id", StoredText, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", StoredText, nullable=False),
    Column("kind", StoredText, nullable=False),
    Column("parent", StoredText),
    Column("data", LargeBinary, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
)
"""All events of a session, in order. The key prevents concurrent writers; `epoch` is that of the session."""

schedules = Table(
    "schedules",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("name", StoredText, nullable=False),
    Column("next_at", StoredText),
    Column("creator", LargeBinary),
    Column("body", LargeBinary, nullable=False),
)
"""Agents that receive a prompt at scheduled times."""

schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("schedule_id", StoredText, ForeignKey("schedules.id", ondelete="CASCADE"), primary_key=True),
    Column("due_at", StoredText, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("crib", StoredText, nullable=False),
    Column("state", StoredText, nullable=False),
    Column("started_at", StoredText, nullable=False),
    Column("ended_at", StoredText),
    Column("session", StoredText),
    Column("reason", StoredText),
    Column("cost_usd", Float, nullable=False),
    Index(None, "state"),
)
"""Runs of schedules. The key prevents two cribs from making the same one."""

credit_budgets = Table(
    "credit_budgets",
    metadata,
    Column("agent", StoredText, primary_key=True),
    Column("turns", Integer),
    Column("calls", Integer),
    Column("usd", Float),
    Column("set_at", StoredText, nullable=False),
    Column("set_by", StoredText, nullable=False),
)
"""Total budgets of agents; the row `*` is the default. Null means no limit."""

credit_entries = Table(
    "credit_entries",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("agent", StoredText, nullable=False),
    Column("at", StoredText, nullable=False),
    Column("kind", StoredText, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("usd", Float, nullable=False),
    Column("session", StoredText),
    Column("by", StoredText, nullable=False),
    Column("reason", StoredText),
    Index(None, "agent", "at"),
)
"""Credits granted to agents and spent by them. Append-only."""

library = Table(
    "library",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("key", StoredText, nullable=False),
    Column("title", StoredText, nullable=False),
    Column("content", StoredText, nullable=False),
    Column("category", StoredText, nullable=False),
    Column("tags", StoredText, nullable=False),
    Column("words", StoredText, nullable=False),
    Column("agent", StoredText),
    Column("session", StoredText),
    Column("author", StoredText, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("updated_at", StoredText, nullable=False),
    UniqueConstraint("key"),
    Index(None, "category", "updated_at"),
)
"""Entries shared by agents. `words` is the searchable text, normalised; `tags` is a JSON list. Each engine has its own
index `library_search` of the words; SQLite's refers to `id`.
"""

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
"""The statements that create each engine's index of the library."""
for _engine, _statements in LIBRARY_SEARCH.items():
    for _statement in _statements:
        event.listen(library, "after_create", DDL(_statement).execute_if(dialect=_engine))
event.listen(library, "before_drop", DDL("DROP TABLE IF EXISTS library_search").execute_if(dialect="sqlite"))

audit_runs = Table(
    "audit_runs",
    metadata,
    Column("crib", StoredText, primary_key=True),
    Column("run", StoredText, nullable=False),
    Column("journal", StoredText),
    Column("start", BigInteger, nullable=False),
)
"""Cribs that are writing to the audit log, or were killed while they did. `journal` is the id in the journal's first
line, `start` the last record before the run.
"""

channels = Table(
    "channels",
    metadata,
    Column("kind", StoredText, primary_key=True),
    Column("config", LargeBinary, nullable=False),
    Column("set_at", StoredText, nullable=False),
    Column("set_by", StoredText, nullable=False),
)
"""Channels for notices to the owner besides the console; `config` is JSON."""

work_tasks = Table(
    "work_tasks",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("crib", StoredText, nullable=False),
    Column("agent", StoredText, nullable=False),
    Column("state", StoredText, nullable=False),
    Column("created_at", StoredText, nullable=False),
    Column("ended_at", StoredText),
    Column("creator", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    Index(None, "state"),
    Index(None, "created_at"),
)
"""Background tasks of agents, each on its own branch. `crib` is the one that has its files."""

plugin_grants = Table(
    "plugin_grants",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("version", StoredText, nullable=False),
    Column("capabilities", StoredText, nullable=False),
    Column("digest", StoredText, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("granted_at", StoredText, nullable=False),
    Column("granted_by", StoredText, nullable=False),
)
"""The owner's grants to plugins; `capabilities` is a JSON list, `digest` that of the manifest."""

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", StoredText, nullable=False),
    Column("kind", StoredText, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("node", StoredText, nullable=False),
    Column("key", StoredText, nullable=False),
    UniqueConstraint("key"),
)
"""The newest events of the crib feed, in the order of all nodes. `node` published the event; `key` identifies it, so
that it is stored once.
"""

questions = Table(
    "questions",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("node", StoredText, nullable=False),
    Column("session", StoredText, nullable=False),
    Column("call", StoredText, nullable=False),
    Column("principal", StoredText, nullable=False),
    Column("questions", LargeBinary, nullable=False),
    Column("asked_at", StoredText, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("answers", LargeBinary),
)
"""Questions of agents in a shared database. `node` waits for the answers; `is_open` becomes false exactly once."""

mcp_tasks = Table(
    "mcp_tasks",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("owner", StoredText, nullable=False),
    Column("crib", StoredText, nullable=False),
    Column("status", StoredText, nullable=False),
    Column("expires_at", StoredText, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "expires_at"),
)
"""Tasks of MCP clients. `owner` is a digest of the principal, `crib` the one that runs the call, `body` is JSON."""
