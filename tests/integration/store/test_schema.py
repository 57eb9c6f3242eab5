"""The schema: equal for new and migrated databases, and unchanged if it is newer."""

from datetime import timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DatabaseError

import toolcrib.store
from integration.store.databases import engine_of, fetch_rows, run
from toolcrib.gate.principals import NamedTokens
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.model.policy import Binding, Rule, RuleOrigin
from toolcrib.model.principals import Principal
from toolcrib.model.schedules import Cadence, Schedule
from toolcrib.store.engine import open_store
from toolcrib.store.names import load_names, save_names
from toolcrib.store.rules import load_rules, save_rule
from toolcrib.store.schedules import load_schedules, save_schedule
from toolcrib.store.schema import HEAD, REVISIONS, metadata
from toolcrib.store.upgrade import migrate

pytestmark = pytest.mark.anyio


def description(connection: Connection) -> dict[str, object]:
    """Return all tables with columns, keys, constraints and indexes, in a comparable form."""
    look = inspect(connection)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in look.get_columns(table)],
            look.get_pk_constraint(table),
            look.get_unique_constraints(table),
            look.get_indexes(table),
            look.get_foreign_keys(table),
        )
        for table in look.get_table_names()
    }


def is_in_metadata(name: str | None, *_: object) -> bool:
    """Return whether the metadata has this name: not an engine's index of the library, nor a table of the job queue."""
    return not str(name).startswith(("library_search", "procrastinate_"))


async def test_new_and_migrated_databases_have_the_same_schema(database: str) -> None:
    async with open_store(database):
        pass
    with engine_of(database).connect() as connection:
        made = description(connection)
        metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.commit()
        migrate(connection)
        connection.commit()
        assert description(connection) == made
        context = MigrationContext.configure(connection, opts={"include_name": is_in_metadata})
        differences = compare_metadata(context, metadata)
        assert differences == []
    assert fetch_rows(database, "SELECT version_num FROM alembic_version") == [(HEAD,)]


def migrations() -> ScriptDirectory:
    """Return the migrations."""
    config = Config()
    config.set_main_option("script_location", str(Path(toolcrib.store.__file__).parent / "migrations"))
    return ScriptDirectory.from_config(config)


def test_list_of_revisions_matches_the_migration_files() -> None:
    in_order = tuple(revision.revision for revision in reversed(list(migrations().walk_revisions())))
    assert in_order == REVISIONS
    assert migrations().get_heads() == [HEAD]


async def test_older_database_is_migrated_when_it_is_opened(database: str) -> None:
    run(database, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    async with open_store(database) as store:
        await save_names(store, [("f", "n", "s", "t")])
        assert await load_names(store) == [("f", "n", "s", "t")]
    assert fetch_rows(database, "SELECT version_num FROM alembic_version") == [(HEAD,)]


async def test_migration_binds_stored_principals_to_their_token_ids(database: str) -> None:
    """A token created after the answer or the schedule is a later one of the same name."""
    async with open_store(database) as store:
        token, _ = await NamedTokens(store).create("laptop")
        before, after = token.created_at - timedelta(days=1), token.created_at + timedelta(days=1)
        without = Principal("token", "laptop", "ide")
        session = Principal("session", "s", "agent", creator=without)
        for id, at in (("old", before), ("new", after)):
            rule = Rule(id, "allow", "a/b", RuleOrigin("remembered"), created_at=at, principal=Binding.of(without))
            await save_rule(store, rule)
            await save_schedule(store, Schedule(id, id, "a", "p", "/", Cadence(every_seconds=60), at, creator=session))
    with engine_of(database).begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migrations().get_revision("0014").module.upgrade()
    async with open_store(database) as store:
        rules = {rule.id: rule.principal.token_id for rule in await load_rules(store) if rule.principal is not None}
        assert rules == {"old": "revoked", "new": token.id}
        creators = [each.creator.creator for each in await load_schedules(store) if each.creator is not None]
        assert {each.token_id for each in creators if each is not None} == {"revoked", token.id}


async def test_newer_database_is_refused_and_unchanged(database: str) -> None:
    async with open_store(database):
        pass
    run(database, "UPDATE alembic_version SET version_num = '9999'", "DROP TABLE names")
    run(database, "UPDATE epochs SET value = 9999 WHERE name = 'oldest schema'")
    with pytest.raises(ConfigError) as raised:
        async with open_store(database):
            pass
    assert raised.value.code == "database.newer"
    assert fetch_rows(database, "SELECT version_num FROM alembic_version") == [("9999",)]
    with pytest.raises(DatabaseError):
        fetch_rows(database, "SELECT * FROM names")


async def test_failed_schema_creation_is_rolled_back(database: str) -> None:
    run(database, "CREATE TABLE names (note TEXT)")
    with pytest.raises((Unavailable, DatabaseError), match="exists"):
        async with open_store(database):
            pass
    with engine_of(database).connect() as connection:
        assert inspect(connection).get_table_names() == ["names"]
