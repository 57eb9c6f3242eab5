"""Rules, bundles and projects on both databases."""

from datetime import UTC, datetime, timedelta

import pytest

from toolcrib.model.errors import Conflict
from toolcrib.model.policy import Bundle, Condition, Rule, RuleOrigin, Where
from toolcrib.model.projects import Project
from toolcrib.store.bundles import (
    create_bundle,
    delete_bundle,
    delete_project,
    load_bundles,
    load_projects,
    replace_bundle,
    save_project,
)
from toolcrib.store.engine import open_store
from toolcrib.store.rules import delete_rule, load_rules, save_rule

pytestmark = pytest.mark.anyio

AT = datetime(2030, 1, 31, 12, tzinfo=UTC)
FULL = Rule(
    "r1",
    "deny",
    "git\0hub/*",
    RuleOrigin("user"),
    "because\ud800",
    "owner",
    AT,
    AT + timedelta(days=1),
    (
        Condition("/repo", "glob", "acme/*"),
        Condition("/n", "range", {"min": 1, "max": 2.5}),
        Condition("", "equals", {}),
    ),
    Where(True, False, None, ("ide", "api"), ("reviewer",), ("/home/me",), ("plan",)),
    "abc",
    "s1",
)
PLAIN = Rule("r2", "allow", "*", RuleOrigin("remembered"), created_at=AT + timedelta(seconds=1))


async def test_rules_are_loaded_as_they_were_saved(database: str) -> None:
    async with open_store(database) as store:
        await save_rule(store, PLAIN)
        await save_rule(store, FULL)
    async with open_store(database) as store:
        assert await load_rules(store) == [FULL, PLAIN]


async def test_duplicate_rule_id_is_a_conflict(database: str) -> None:
    async with open_store(database) as store:
        await save_rule(store, FULL)
        with pytest.raises(Conflict) as raised:
            await save_rule(store, Rule("r1", "allow", "*", RuleOrigin("user")))
        assert raised.value.code == "rule.exists"
        assert await load_rules(store) == [FULL]


async def test_rule_is_deleted_once(database: str) -> None:
    async with open_store(database) as store:
        for number in range(3):
            await save_rule(store, Rule(f"r{number}", "allow", "*", RuleOrigin("session"), session=f"s{number}"))
        assert await delete_rule(store, "r0")
        assert not await delete_rule(store, "r0")
        assert [rule.id for rule in await load_rules(store)] == ["r1", "r2"]


async def test_bundles_are_created_replaced_and_deleted(database: str) -> None:
    bundle = Bundle("mine", "Mine", ("a/*", "b/two"), "what for", "say this")
    async with open_store(database) as store:
        await create_bundle(store, bundle)
        with pytest.raises(Conflict):
            await create_bundle(store, bundle)
        assert await load_bundles(store) == [bundle]
        changed = Bundle("mine", "Ours", ())
        assert await replace_bundle(store, changed)
        assert await load_bundles(store) == [changed]
        assert await delete_bundle(store, "mine")
        assert not await delete_bundle(store, "mine")
        assert not await replace_bundle(store, changed)


async def test_saved_project_replaces_the_previous_one(database: str) -> None:
    async with open_store(database) as store:
        await save_project(store, Project("/home/me/p", agent="reviewer", bundles=("mine",)))
        await save_project(store, Project("/home/me/p", bundles=("reviewer", "mine")))
        await save_project(store, Project("/home/me/a"))
        expected = [Project("/home/me/a"), Project("/home/me/p", bundles=("reviewer", "mine"))]
        assert await load_projects(store) == expected
        assert await delete_project(store, "/home/me/a")
        assert not await delete_project(store, "/home/me/a")
