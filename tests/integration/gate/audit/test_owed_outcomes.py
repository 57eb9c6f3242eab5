"""Outcomes that could not be recorded on a full disk are recorded once there is space."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from cluster.cribs import crib_on
from integration.store.databases import fetch_rows, run
from toolcrib import Crib
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject, loads
from toolcrib.testing.history import check_history

pytestmark = pytest.mark.anyio

FULL = (
    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE ''no space'' USING ERRCODE = ''disk_full''; END'",
    "CREATE TRIGGER full_disk BEFORE INSERT ON audit FOR EACH ROW WHEN (new.phase = 'outcome')"
    " EXECUTE FUNCTION full_disk()",
)
FREE = ("DROP TRIGGER full_disk ON audit",)


@pytest.fixture
async def crib(postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncGenerator[Crib]:
    """Open a crib that expects errors of its database."""
    caplog.set_level(logging.CRITICAL)
    async with crib_on(postgres_url, tmp_path / "a") as crib:
        yield crib


def records(url: str, tool: str) -> list[JsonObject]:
    """Return the records of a tool."""
    bodies = [loads(bytes(body)) for (body,) in fetch_rows(url, "SELECT body FROM audit ORDER BY id")]
    return [body for body in bodies if body.get("tool") == tool]


async def wait_for_outcome(url: str, tool: str) -> list[JsonObject]:
    """Wait for an outcome and return the records of a tool."""
    with anyio.fail_after(30):
        while len(found := records(url, tool)) < 2:  # noqa: ASYNC110 nothing announces it
            await anyio.sleep(0.05)
    return found


async def test_outcomes_are_recorded_once_when_there_is_space_again(crib: Crib, postgres_url: str) -> None:
    async def work() -> None:
        pass

    run(postgres_url, *FULL)
    with pytest.raises(Unavailable, match="was made, but its outcome") as raised:
        await crib.call("toolcrib/ping", principal=crib.owner())
    assert raised.value.code == "audit.unavailable"
    with pytest.raises(Unavailable, match="was made, but its outcome"):
        await crib.changes.make("rules.test", {}, work, by=crib.owner(), door="api")
    assert [each["phase"] for each in records(postgres_url, "ping")] == ["intent"]
    run(postgres_url, *FREE)
    intent, outcome = await wait_for_outcome(postgres_url, "ping")
    assert (outcome["call"], outcome["isError"], outcome.get("outcome")) == (intent["call"], False, None)
    assert [each["phase"] for each in await wait_for_outcome(postgres_url, "rules.test")] == ["intent", "outcome"]

    crib.audit.owed.add(outcome["call"], {"isError": True})  # as if the commit had been uncertain
    await crib.audit.owed.aclose()
    assert len(records(postgres_url, "ping")) == 2
    assert await check_history(crib.store) == []
    assert (await crib.audit.verify()).ok


async def test_change_in_flight_when_a_node_died_gets_an_unknown_outcome(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as first, crib_on(postgres_url, tmp_path / "b") as second:

        async def die() -> None:
            assert await second.audit.settle_run(first.membership.id) == 1

        with pytest.raises(Unavailable, match="Another node"):
            await first.changes.make("rules.test", {}, die, by=first.owner(), door="api")
        intent, outcome = records(postgres_url, "rules.test")
        assert (outcome["call"], outcome["outcome"]) == (intent["call"], "unknown")
