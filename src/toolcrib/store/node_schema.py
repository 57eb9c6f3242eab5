"""The tables that the nodes of a cluster coordinate with. They are part of the schema and of its revisions.

Must never change a table without a new revision; see `schema`.
"""

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    UniqueConstraint,
    event,
)

from toolcrib.store.schema import StoredText, metadata

nodes = Table(
    "nodes",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("address", StoredText),
    Column("epoch", BigInteger, nullable=False),
    Column("version", StoredText, nullable=False),
    Column("load", Integer, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("draining", Boolean, nullable=False),
    UniqueConstraint("epoch"),
)
"""The cribs that share this database. `seen_at` is the last heartbeat, in seconds by the clock of the database; `epoch`
is the number of the lease.
"""

epochs = Table(
    "epochs",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Counters that only grow: `nodes` numbers leases, `policy` the changes that affect permissions, `pins` those of them
that concern definitions of tools, `events` the events; `oldest schema` is the oldest revision whose programs work with
the schema.
"""

event.listen(
    epochs, "after_create", DDL("INSERT INTO epochs (name, value) VALUES ('nodes', 0), ('policy', 0), ('pins', 0)")
)

sealed_values = Table(
    "sealed_values",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
"""Secrets that all nodes need, encrypted with the node secret; see `toolcrib.nodes.cluster_secret`."""

leases = Table(
    "leases",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("holder", StoredText, nullable=False),
    Column("until", Float, nullable=False),
)
"""Work that one node does at a time. `until` is in seconds by the clock of the database."""

usage = Table(
    "usage",
    metadata,
    Column("id", StoredText, primary_key=True),
    Column("key", StoredText, nullable=False),
    Column("at", Float, nullable=False),
    Column("amount", Float, nullable=False),
    Index(None, "key", "at"),
)
"""What counts towards limits that hold across nodes. `at` is in seconds by the clock of the database."""

stops = Table(
    "stops",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", StoredText, nullable=False),
    Column("by", StoredText, nullable=False),
    Column("reason", StoredText),
)
"""The kill switch of all nodes: one row, with the id 1, while everything is stopped."""

logins = Table(
    "logins",
    metadata,
    Column("digest", StoredText, primary_key=True),
    Column("kind", StoredText, nullable=False),
    Column("expires", Float, nullable=False),
)
"""Sign-ins of browsers that count on every node: a one-time `code`, or the `session` of a cookie. `digest` is keyed.
`expires` is in seconds by the clock of the database.
"""

kept_results = Table(
    "kept_results",
    metadata,
    Column("handle", StoredText, primary_key=True),
    Column("owner", StoredText, nullable=False),
    Column("expires", Float, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Large results that their callers read on in, encrypted with the node secret. `expires` is in seconds by the clock of
the database.
"""

audit_lanes = Table(
    "audit_lanes",
    metadata,
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("crib", StoredText, nullable=False),
    UniqueConstraint("crib"),
)
"""The lane of each node in the audit log; see `audit_lanes`."""

POLICY_TRIGGERS = (
    "CREATE OR REPLACE FUNCTION bump_policy_epoch() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN UPDATE epochs SET value = value + 1 WHERE name = ''policy''; RETURN NULL; END'",
    "CREATE OR REPLACE FUNCTION bump_pins_epoch() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN UPDATE epochs SET value = value + 1 WHERE name IN (''policy'', ''pins''); RETURN NULL; END'",
    *(
        f"CREATE TRIGGER policy_of_{table} AFTER {changes} ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION bump_{'pins' if table == 'pins' else 'policy'}_epoch()"
        for table, changes in (
            ("rules", "INSERT OR UPDATE OR DELETE"),
            ("tokens", "INSERT OR UPDATE OR DELETE"),
            ("bundles", "INSERT OR UPDATE OR DELETE"),
            ("projects", "INSERT OR UPDATE OR DELETE"),
            ("agents", "INSERT OR DELETE OR UPDATE OF grants"),
            ("pins", "UPDATE OR DELETE"),
            ("sealed_values", "INSERT OR UPDATE OR DELETE"),
            ("stops", "INSERT OR UPDATE OR DELETE"),
            ("shortened_tools", "INSERT OR UPDATE OR DELETE"),
            ("logins", "DELETE"),
        )
    ),
)
"""The statements that count every change of permissions on PostgreSQL, in the transaction of the change and whatever
version of Toolcrib makes it.
"""
for _statement in POLICY_TRIGGERS:
    event.listen(metadata, "after_create", DDL(_statement).execute_if(dialect="postgresql"))
