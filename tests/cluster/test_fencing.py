"""The fencing epoch: a crib that lost a session to another one writes none of its events, and ends its process."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from cluster.cribs import crib_on
from integration.store.databases import fetch_rows
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.gate.audit.audit import Audit
from toolcrib.model.errors import Conflict, Unavailable
from toolcrib.model.sessions import SessionEvent
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import open_store
from toolcrib.store.sessions import claim_session, load_session, write_progress

pytestmark = pytest.mark.anyio


async def test_session_moves_once_its_crib_has_ended(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "b") as second:
        async with crib_on(postgres_url, tmp_path / "a") as first:
            async with first.sessions.open(NewSession("api")) as session:
                assert [event.kind async for event in session.send("[[script:text]]")][-1] == "done"
            with pytest.raises(Conflict) as raised:
                await second.sessions.send(session.id, "[[script:text]]")
            assert raised.value.code == "session.elsewhere"
        await second.sessions.send(session.id, "[[script:text]]")
    epochs = fetch_rows(postgres_url, "SELECT epoch FROM session_events ORDER BY seq")
    assert epochs == sorted(epochs)
    assert {epoch for (epoch,) in epochs} == {1, 2}


async def test_events_of_a_claimed_session_are_refused_and_its_process_is_ended(
    postgres_url: str, tmp_path: Path
) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as crib, open_store(postgres_url) as other:
        session = await crib.sessions.create(NewSession("api"))
        await crib.sessions.send(session.id, "[[script:hang]]")
        found = await load_session(other, session.id)
        assert found is not None
        assert found[0].epoch == 1
        assert await claim_session(other, session.id, "another crib", 1)
        before = fetch_rows(postgres_url, "SELECT max(seq) FROM session_events")
        await crib.sessions.interrupt(session.id)
        with anyio.fail_after(20):
            while crib.sessions.active():  # noqa: ASYNC110 no event to wait for
                await anyio.sleep(0.02)
        assert fetch_rows(postgres_url, "SELECT max(seq) FROM session_events") == before
        assert fetch_rows(postgres_url, "SELECT crib, state FROM sessions")[0][0] == "another crib"


async def test_write_with_an_older_epoch_is_rolled_back(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as crib, open_store(postgres_url) as other:
        session = await crib.sessions.create(NewSession("api"))
        assert await claim_session(other, session.id, "another crib", 0)
        assert not await claim_session(other, session.id, "a third crib", 0)
        event = SessionEvent(1, datetime.now(UTC).isoformat(), session.id, "error", {"code": "x", "message": "late"})
        with pytest.raises(ConstraintError):
            await write_progress(crib.store, [event], [session], "a", {session.id: 0})
        assert fetch_rows(postgres_url, "SELECT count(*) FROM session_events") == [(0,)]
        await write_progress(other, [event], [], "b", {session.id: 1})
        assert fetch_rows(postgres_url, "SELECT epoch FROM session_events") == [(1,)]


async def test_calls_of_a_claimed_session_are_not_made(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as crib, open_store(postgres_url) as other:
        session = await crib.sessions.create(NewSession("api", mode="bypassPermissions"))
        await crib.sessions.send(session.id, "[[script:hang]]")
        await crib.call("toolcrib/ping", principal=session.principal)
        assert await claim_session(other, session.id, "another crib", 1)
        before = fetch_rows(postgres_url, "SELECT count(*) FROM audit")
        with pytest.raises(Unavailable, match="Another node") as raised:
            await crib.call("toolcrib/ping", principal=session.principal)
        assert raised.value.code == "audit.unavailable"
        assert fetch_rows(postgres_url, "SELECT count(*) FROM audit") == before


async def test_outcomes_of_a_dead_crib_are_unknown_and_it_cannot_add_others(postgres_url: str, tmp_path: Path) -> None:
    async with (
        crib_on(postgres_url, tmp_path / "a") as crib,
        open_store(postgres_url) as other,
        Audit(other, tmp_path / "b.head", crib="b") as second,
    ):
        await crib.audit.record({"phase": "intent", "call": f"{crib.audit.run}-1", "tool": "slow"})
        assert await second.settle_run(crib.membership.id) == 1
        assert await second.settle_run(crib.membership.id) == 0
        [newest] = fetch_rows(postgres_url, "SELECT phase, tool, body FROM audit ORDER BY id DESC LIMIT 1")
        assert newest[:2] == ("outcome", "slow")
        assert b'"outcome":"unknown"' in newest[2]
        with pytest.raises(Unavailable, match="Another node"):
            await crib.call("toolcrib/ping", principal=crib.owner())
        await crib.audit.renew_run()
        await crib.call("toolcrib/ping", principal=crib.owner())
