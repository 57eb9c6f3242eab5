"""Rights of sessions and schedules: limited by the current rights of their creator."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from toolcrib import Crib, Settings
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.model.errors import Denied
from toolcrib.model.json import Json
from toolcrib.model.principals import Principal
from toolcrib.model.schedules import Cadence, Schedule
from toolcrib.model.sessions import Session
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

SCRIPTS: dict[str, Json] = {"text": [{"blocks": [{"text": "done"}]}], "hang": [{"hang_s": 600}]}
TIMEOUT = 30


@asynccontextmanager
async def open_crib(folder: Path) -> AsyncGenerator[Crib]:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    settings = Settings(home=folder / "home", port=0, default_cwd=project)
    async with Crib(settings, environment=bare_environment(folder)) as crib:
        runner = PlayedRunner(SCRIPTS)
        runner.name = "claude"
        crib.runners.add(runner)
        yield crib


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    async with open_crib(tmp_path) as crib:
        yield crib


def hourly(crib: Crib, creator: Principal) -> Schedule:
    return Schedule(
        id="", name="Hourly", agent="builder", prompt="[[script:text]]", cwd=str(crib.settings.default_cwd),
        cadence=Cadence(every_seconds=3600), created_at=datetime.now(UTC), mode="acceptEdits", creator=creator,
    )  # fmt: skip


async def child(crib: Crib, creator: Principal) -> Session:
    new = NewSession("agent", str(crib.settings.default_cwd), "builder", "acceptEdits", creator=creator)
    return await crib.sessions.create(new)


async def verdict(crib: Crib, session: Session, ref: str = "toolcrib/ping") -> str:
    return (await crib.why(ref, principal=session.principal)).verdict


async def test_revoked_token_pauses_its_schedules_and_ends_its_sessions(crib: Crib) -> None:
    token, _ = await crib.tokens.create("laptop")
    other, _ = await crib.tokens.create("host")
    of_laptop = await crib.schedules.add(hourly(crib, token.principal))
    of_host = await crib.schedules.add(hourly(crib, other.principal))
    session = await child(crib, token.principal)
    below = await child(crib, session.principal)
    await crib.sessions.send(below.id, "[[script:hang]]")
    assert (await verdict(crib, session), await verdict(crib, below)) == ("allow", "allow")

    await crib.tokens.revoke("laptop")

    assert (await verdict(crib, session), await verdict(crib, below)) == ("hidden", "hidden")
    assert "revoked" in (await crib.why("toolcrib/ping", principal=session.principal)).decided_by.reason
    with anyio.fail_after(TIMEOUT):
        while not (await crib.schedules.get(of_laptop.id)).paused or crib.sessions.active():  # noqa: ASYNC110 there is no event for both
            await anyio.sleep(0.02)
    paused = await crib.schedules.get(of_laptop.id)
    assert paused.reason == 'Paused. The token "laptop" that started it was revoked.'
    assert not (await crib.schedules.get(of_host.id)).paused
    closed = await crib.sessions.get(below.id)
    assert (closed.state, "revoked" in str(closed.reason)) == ("closed", True)
    errors = [event.data["code"] async for event in crib.sessions.transcript(below.id) if event.kind == "error"]
    assert errors == ["session.revoked"]
    for id in (session.id, below.id):
        with pytest.raises(Denied, match="was revoked"):
            await crib.sessions.send(id, "[[script:text]]")
    with pytest.raises(Denied, match="was revoked"):
        await child(crib, token.principal)


async def test_token_revoked_while_a_turn_is_prepared_interrupts_the_turn(crib: Crib) -> None:
    for turns in range(80):
        name = f"laptop-{turns}"
        token, _ = await crib.tokens.create(name)
        session = await child(crib, token.principal)
        await crib.sessions.send(session.id, "[[script:hang]]")
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        await crib.tokens.revoke(name)
        with anyio.fail_after(TIMEOUT):
            while (await crib.sessions.get(session.id)).state != "closed":
                await anyio.lowlevel.checkpoint()
        events = [event async for event in crib.sessions.transcript(session.id)]
        assert [event.data["code"] for event in events if event.kind == "error"] == ["session.revoked"], turns
        assert [event.data["reason"] for event in events if event.kind == "done"] == ["interrupted"], turns


async def test_message_dropped_before_its_turn_is_interrupted(crib: Crib) -> None:
    for turns in range(40):
        session = await crib.sessions.create(NewSession("api", None, "builder"))
        await crib.sessions.send(session.id, "[[script:hang]]")
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        await crib.sessions.stop_all("Stopped.")
        events = [event async for event in crib.sessions.transcript(session.id)]
        assert [event.data["reason"] for event in events if event.kind == "done"] == ["interrupted"], turns
        assert (await crib.sessions.get(session.id)).reason == "Stopped."


async def test_schedule_of_a_revoked_token_cannot_be_run_manually(crib: Crib) -> None:
    token, _ = await crib.tokens.create("laptop")
    schedule = await crib.schedules.add(hourly(crib, token.principal))
    await crib.tokens.revoke("laptop")
    await crib.schedules.run_now(schedule.id)
    with anyio.fail_after(TIMEOUT):
        while (await crib.schedules.history(schedule.id))[0].state == "running":  # noqa: ASYNC110 runs have no event
            await anyio.sleep(0.02)
    (run,) = await crib.schedules.history(schedule.id)
    assert (run.state, run.session) == ("failed", None)
    assert "was revoked" in str(run.reason)


async def test_new_token_of_the_same_name_inherits_nothing(crib: Crib) -> None:
    token, _ = await crib.tokens.create("laptop")
    schedule = await crib.schedules.add(hourly(crib, token.principal))
    session = await child(crib, token.principal)
    await crib.tokens.revoke("laptop")
    again, _ = await crib.tokens.create("laptop")
    assert again.id != token.id
    assert await verdict(crib, session) == "hidden"
    assert (await crib.schedules.readiness(schedule)).revoked == 'The token "laptop" that started it was revoked.'
    with pytest.raises(Denied):
        await child(crib, token.principal)


async def test_schedules_of_a_revoked_token_are_paused_at_the_next_start(tmp_path: Path) -> None:
    async with open_crib(tmp_path) as crib:
        token, _ = await crib.tokens.create("laptop")
        schedule = await crib.schedules.add(hourly(crib, token.principal))
        crib.schedules.pause_revoked = _nothing  # as after a kill right after the revocation
        await crib.tokens.revoke("laptop")
    async with open_crib(tmp_path) as crib:
        assert (await crib.schedules.get(schedule.id)).paused


async def _nothing() -> None: ...


async def test_stricter_mode_of_a_parent_limits_its_children(crib: Crib) -> None:
    parent = await crib.sessions.create(NewSession("api", None, "builder", "acceptEdits"))
    session = await child(crib, parent.principal)
    below = await child(crib, session.principal)
    assert await verdict(crib, below) == "allow"
    await crib.sessions.change(parent.id, mode="dontAsk")
    assert (await verdict(crib, session), await verdict(crib, below)) == ("deny", "deny")
    await crib.sessions.change(parent.id, mode="acceptEdits")
    assert await verdict(crib, below) == "allow"


async def test_stricter_mode_of_a_parent_applies_after_a_restart(tmp_path: Path) -> None:
    async with open_crib(tmp_path) as crib:
        parent = await crib.sessions.create(NewSession("api", None, "builder", "acceptEdits"))
        await crib.sessions.change(parent.id, mode="dontAsk")
    async with open_crib(tmp_path) as crib:
        session = await child(crib, parent.principal)
        assert await verdict(crib, session) == "deny"
        schedule = hourly(crib, parent.principal)
        ready = await crib.schedules.readiness(schedule)
        assert ready.is_ready


async def test_reduced_permissions_of_a_parents_agent_limit_its_children(crib: Crib) -> None:
    parent = await crib.sessions.create(NewSession("api", None, "debugger", "acceptEdits"))
    session = await child(crib, parent.principal)
    assert await verdict(crib, session) == "allow"
    await crib.zoo.update("debugger", AgentChanges.model_validate({"toolPermissions": ["crew/*"]}), by="owner")
    assert await verdict(crib, session) == "hidden"
