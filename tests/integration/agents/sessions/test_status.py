"""`session_status` events on servers and models, and the default agent of a project's sessions."""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from toolcrib import Crib, Settings
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.home import prepare_home
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.projects import Project
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
TIMEOUT = 60
SCRIPTS: dict[str, Json] = {"text": [{"blocks": [{"text": "done"}]}], "hang": [{"hang_s": 600}]}
SERVER: JsonObject = {
    "command": sys.executable,
    "args": ["-S", "-m", "upstreams.legacy", "plain"],
    "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
}


@asynccontextmanager
async def open_crib(folder: Path) -> AsyncGenerator[Crib]:
    home, project = prepare_home(folder / "home"), folder / "project"
    project.mkdir()
    (home.root / "mcp.json").write_text(json.dumps({"mcpServers": {"legacy": SERVER}}), encoding="utf-8")
    settings = Settings(home=home.root, port=0, default_cwd=project)
    async with Crib(settings, environment=bare_environment(folder)) as crib:
        runner = PlayedRunner(SCRIPTS)
        runner.name = "claude"
        crib.runners.add(runner)
        await crib.ready(crib.owner("api"), "legacy")
        yield crib


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Crib]:
    async with open_crib(tmp_path) as crib:
        yield crib


def state_of(event: SessionEvent, server: str) -> str | None:
    return next((each["state"] for each in event.data["servers"] if each["name"] == server), None)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hung"])
async def test_server_lost_during_a_turn_is_reported(crib: Crib, end: signal.Signals) -> None:
    (server,) = [each for each in await crib.upstreams.list() if each.entry.name == "legacy"]
    assert server.link is not None
    pid = server.link.pid
    assert pid is not None
    session = await crib.sessions.create(NewSession("api", mode="bypassPermissions"))
    log = await crib.sessions.events(session.id)
    await crib.sessions.send(session.id, "[[script:hang]]")
    states: list[str | None] = []
    with anyio.fail_after(TIMEOUT):
        async for batch in log.follow(0):
            found_states = [state_of(event, "legacy") for event in batch if event.kind == "session_status"]
            states += [state for state in found_states if state is not None]
            if states and states[0] == "connected" and pid:
                os.kill(pid, end)
                pid = 0
                await crib.upstreams.test("legacy") if end == signal.SIGSTOP else None
            if states and states[-1] not in ("connected", "connecting"):
                break
    os.kill(server.link.pid or 0, signal.SIGCONT) if end == signal.SIGSTOP else None
    assert states[0] == "connected"
    assert states[-1] in ("failed", "not_checked")


async def test_server_lost_after_a_turn_is_reported(crib: Crib) -> None:
    (server,) = [each for each in await crib.upstreams.list() if each.entry.name == "legacy"]
    assert server.link is not None
    assert server.link.pid is not None
    async with crib.session(mode="bypassPermissions") as session:
        *_, done = [event async for event in session.send("[[script:text]]")]
        os.kill(server.link.pid, signal.SIGKILL)
        log = await crib.sessions.events(session.id)
        with anyio.fail_after(TIMEOUT):
            async for batch in log.follow(done.seq):
                if any(state_of(event, "legacy") != "connected" for event in batch):
                    break
        assert (await crib.sessions.get(session.id)).state == "idle"


async def test_status_has_the_model_of_the_runtime_by_default(crib: Crib) -> None:
    for model, found_states in ((None, "played"), ("mine", "mine")):
        session = await crib.sessions.create(NewSession("api", model=model))
        async with crib.session(model=model) as open_session:
            events = [event async for event in open_session.send("[[script:text]]")]
        assert session.model == model
        assert [event.data["model"] for event in events if event.kind == "session_status"][-1] == found_states


async def test_session_without_an_agent_gets_that_of_the_nearest_project(crib: Crib, tmp_path: Path) -> None:
    inner = tmp_path / "project" / "inner"
    inner.mkdir()
    for path, agent in ((tmp_path / "project", "builder"), (inner, "reviewer")):
        await crib.permissions.projects.save(Project(str(path), agent=agent))
    outer = await crib.sessions.create(NewSession("api"))
    nested = await crib.sessions.create(NewSession("api", str(inner)))
    named = await crib.sessions.create(NewSession("api", str(inner), "tester"))
    outside = await crib.sessions.create(NewSession("api", str(tmp_path)))
    assert [each.agent for each in (outer, nested, named, outside)] == ["builder", "reviewer", "tester", None]
    assert nested.mode == (await crib.zoo.get("reviewer")).agent.mode
    await crib.zoo.delete("reviewer", by="owner")
    assert (await crib.sessions.create(NewSession("api", str(inner)))).agent is None
