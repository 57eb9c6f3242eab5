"""Recorded sessions: replayed without side effects, partly live, cut, forked and compared."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration.web.console.console_client import open_console
from toolcrib import Crib, Settings, ToolServer, tool
from toolcrib.agents.sessions.recording.replayed_runtime import ReplayOptions
from toolcrib.host.session_replays import ReplayRequest
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters
from toolcrib.testing.environments import claude_environment
from toolcrib.testing.played import PlayedRunner
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"
SCRIPT: dict[str, Any] = {
    "shop": [
        {"blocks": [{"text": "Looking."}, {"tool": "mcp__shop__sell", "input": {"thing": "hat"}}]},
        {"blocks": [{"text": "Result: {{last_tool_result}}"}]},
    ],
    "more": [{"blocks": [{"tool": "Bash", "input": {"command": "ls"}}]}, {"blocks": [{"text": "Listed."}]}],
    "other": [{"blocks": [{"text": "Another way."}]}],
}


@dataclass
class Shop:
    """A crib with a tool that counts its calls, and a scripted model."""

    folder: Path
    model: ScriptedModel
    sold: list[str] = field(default_factory=list[str])
    price: str = "9"

    def crib(self, name: str = "one", **settings: Any) -> Crib:
        """Return a crib with a home and project of its own."""
        for each in (f"{name}-user", f"{name}-project"):
            (self.folder / each).mkdir(exist_ok=True)
        home, project = self.folder / f"{name}-home", self.folder / f"{name}-project"
        environment = claude_environment(self.folder / f"{name}-user", self.model.url)
        return Crib(Settings(home=home, default_cwd=project, **settings), environment=environment, on_time=False)

    def set_up(self, crib: Crib) -> Crib:
        """Register the tool and the runtime."""

        @tool
        async def sell(thing: str) -> str:
            """Sell a thing."""
            self.sold.append(thing)
            return f"{thing} for {self.price}, key {SECRET}"

        crib.register(ToolServer("shop", tools=[sell]))
        crib.runners.add(PlayedRunner(SCRIPT, name="claude"))
        return crib


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    """Return a shop with its model."""
    with ScriptedModel(SCRIPT) as model:
        yield Shop(tmp_path, model)


async def record(crib: Crib, *prompts: str) -> str:
    """Record a session with these prompts and return its id."""
    async with crib.session(mode="acceptEdits") as session:
        crib.recordings.start(session.id)
        for prompt in prompts:
            async for event in session.send(prompt):
                if event.kind == "approval_required":
                    await crib.approvals.answer(event.data["approvalId"], "approve", by=crib.owner("cli"))
    return session.id


def plain(events: list[JsonObject]) -> bytes:
    """Return events without the fields that depend on time and session."""
    omitted = ("at", "sessionId")
    return json.dumps([{key: value for key, value in event.items() if key not in omitted} for event in events]).encode()


async def events_of(crib: Crib, session: str) -> list[JsonObject]:
    """Return all events of a session."""
    return [event.shape async for event in crib.sessions.transcript(session)]


@pytest.fixture
async def exported(shop: Shop) -> AsyncGenerator[bytes]:
    """Return the recording of a session with two prompts, made in another home."""
    async with shop.crib("one") as crib:
        id = await record(shop.set_up(crib), "[[script:shop]] Sell a hat.", "[[script:more]] List.")
        yield await crib.replays.export(id)


async def test_replay_in_another_home_returns_recorded_answers_without_calls(shop: Shop, exported: bytes) -> None:
    requests_before = len(shop.model.requests)
    async with shop.crib("two") as crib:
        crib.runners.add(PlayedRunner(name="claude"))
        outcome = await crib.replays.replay(exported, ReplayRequest())
        audited = [each for each in await crib.audit.find(Filters()) if each.get("server") == "shop"]
    assert (outcome.reason, outcome.failure) == ("completed", None)
    assert outcome.run.calls == [("mcp__shop__sell", {"thing": "hat"}), ("Bash", {"command": "ls"})]
    assert outcome.comparison is not None
    assert outcome.comparison.differences == 0
    assert shop.sold == ["hat"]
    assert len(shop.model.requests) == requests_before
    assert audited == []
    assert outcome.session.spent.cost_usd == 0


async def test_repeated_replay_has_equal_events(shop: Shop, exported: bytes) -> None:
    async with shop.crib("two") as crib:
        crib.runners.add(PlayedRunner(name="claude"))
        one = await crib.replays.replay(exported, ReplayRequest())
        two = await crib.replays.replay(exported, ReplayRequest())
        assert plain(await events_of(crib, one.session.id)) == plain(await events_of(crib, two.session.id))


async def test_recording_masks_secrets_and_has_all_kinds_of_lines(shop: Shop, exported: bytes) -> None:
    lines = [json.loads(line) for line in exported.splitlines()]
    kinds = {line["kind"] for line in lines}
    assert kinds == {"open", "prompt", "message", "model", "call", "own_call", "approval", "event"}
    assert SECRET.encode() not in exported
    assert all(len(line["key"]) == 64 for line in lines if line["kind"] == "model")
    assert all("at" in line for line in lines if line["kind"] != "event")


async def test_replay_miss_fails_and_shows_the_nearest_request(shop: Shop, exported: bytes) -> None:
    first = exported.index(b'"kind":"prompt"')
    changed = exported[:first] + exported[first:].replace(b"Sell a hat.", b"Sell a cap.", 1)
    requests_before = len(shop.model.requests)
    async with shop.crib("two") as crib:
        crib.runners.add(PlayedRunner(name="claude"))
        outcome = await crib.replays.replay(changed, ReplayRequest())
    assert outcome.reason == "failed"
    assert outcome.failure is not None
    assert outcome.failure["code"] == "replay.miss"
    assert "Sell a hat." in outcome.failure["message"]
    assert "Sell a cap." in outcome.failure["message"]
    assert len(shop.model.requests) == requests_before
    assert shop.sold == ["hat"]


async def test_live_tools_run_and_a_different_result_is_a_miss(shop: Shop, exported: bytes) -> None:
    live = ReplayRequest(ReplayOptions(live_tools=True))
    async with shop.crib("two") as crib:
        shop.set_up(crib)
        shop.price = "12"
        outcome = await crib.replays.replay(exported, live)
    assert shop.sold == ["hat", "hat"]
    assert outcome.failure is not None
    assert outcome.failure["code"] == "replay.miss"
    assert "hat for 12" in outcome.failure["message"]


async def test_live_model_answers_while_tools_are_replayed(shop: Shop, exported: bytes) -> None:
    requests_before = len(shop.model.requests)
    async with shop.crib("two") as crib:
        crib.runners.add(PlayedRunner(name="claude"))
        outcome = await crib.replays.replay(exported, ReplayRequest(ReplayOptions(live_model=True)))
    assert outcome.reason == "completed"
    assert len(shop.model.requests) > requests_before
    assert shop.sold == ["hat"]


async def test_replay_until_an_event_ends_there(shop: Shop, exported: bytes) -> None:
    events = [json.loads(line)["event"] for line in exported.splitlines() if b'"kind":"event"' in line]
    result = next(event["seq"] for event in events if event["kind"] == "tool_result")
    done = next(event["seq"] for event in events if event["kind"] == "done")
    async with shop.crib("two") as crib:
        crib.runners.add(PlayedRunner(name="claude"))
        half = await crib.replays.replay(exported, ReplayRequest(until=result))
        first = await crib.replays.replay(exported, ReplayRequest(until=done))
        with pytest.raises(InvalidRequest, match="no events"):
            bare = b"\n".join(line for line in exported.splitlines() if b'"kind":"event"' not in line)
            await crib.replays.replay(bare, ReplayRequest(until=done))
    assert (half.reason, half.run.texts) == ("interrupted", ["Looking."])
    assert (first.reason, len(first.run.calls)) == ("completed", 1)


async def test_prompt_after_a_replayed_event_starts_a_live_fork(shop: Shop, exported: bytes) -> None:
    events = [json.loads(line)["event"] for line in exported.splitlines() if b'"kind":"event"' in line]
    done = next(event["seq"] for event in events if event["kind"] == "done")
    async with shop.crib("two") as crib:
        shop.set_up(crib)
        fork = ReplayRequest(until=done, prompt="[[script:other]] Or else?")
        outcome = await crib.replays.replay(exported, fork)
    assert outcome.run.texts[-1] == "Another way."
    assert (outcome.session.runner, outcome.session.is_replay) == ("claude", False)
    assert outcome.session.forked_from is not None
    assert shop.sold == ["hat"]


async def test_live_fork_of_a_replayed_session_has_its_marks(shop: Shop) -> None:
    async with shop.crib("one") as crib:
        id = await record(shop.set_up(crib), "[[script:shop]] Sell a hat.")
        await crib.gate.marks.set((await crib.sessions.get(id)).principal, ToolRef("web", "read"), ("untrusted",), 1)
        fork = ReplayRequest(prompt="[[script:other]] Or else?")
        outcome = await crib.replays.replay(await crib.replays.export(id), fork)
        assert "untrusted" in crib.gate.marks.held(outcome.session.principal)


async def test_sessions_are_recorded_only_on_request(shop: Shop) -> None:
    async with shop.crib("one") as crib:
        shop.set_up(crib)
        async with crib.session(mode="acceptEdits") as session:
            async for _ in session.send("[[script:shop]] Sell a hat."):
                pass
        with pytest.raises(NotFound, match="was not recorded"):
            await crib.replays.export(session.id)
    async with shop.crib("two", record_sessions=True) as crib:
        shop.set_up(crib)
        async with crib.session(mode="acceptEdits") as session:
            async for _ in session.send("[[script:shop]] Sell a hat."):
                pass
        assert b'"kind":"model"' in await crib.replays.export(session.id)
    with pytest.raises(InvalidRequest, match="not a recording"):
        async with shop.crib("three") as crib:
            await crib.replays.replay(b'{"kind": "other"}', ReplayRequest())


async def test_two_runs_are_compared_call_by_call(shop: Shop) -> None:
    async with shop.crib("one") as crib:
        shop.set_up(crib)
        one = await record(crib, "[[script:shop]] Sell a hat.")
        shop.price = "12"
        two = await record(crib, "[[script:shop]] Sell a hat.")
        comparison = (await crib.replays.compare(one, two)).to_json()
    assert comparison["differences"] == 2
    assert [step["left"]["kind"] for step in comparison["steps"] if not step["same"]] == ["call", "text"]


async def test_console_replays_and_compares_and_simulates_rules_on_a_session(shop: Shop) -> None:
    async with shop.crib("one") as crib:
        id = await record(shop.set_up(crib), "[[script:shop]] Sell a hat.")
    async with open_console(shop.folder / "one-home", shop.folder / "one-user") as visitor:
        shop.set_up(visitor.crib)
        page = await visitor.send(f"/sessions/{id}/replay", {"until": "", "prompt": ""})
        rows = page.one("table").all("tr")
        assert "0 differences" in page.text
        assert [row.all("th")[0].text for row in rows[1:]] == ["prompt", "text", "call", "text", "cost"]
        assert "mcp__shop__sell" in page.one("table").text
        newest = (await visitor.crib.sessions.list())[0]
        found = await visitor.client.get(f"/api/sessions/{id[:8]}/compare", params={"with": newest.id})
        assert (found.json()["differences"], found.json()["right"]["calls"]) == (0, 1)
        simulation = {"add": ["deny shop/*"], "session": id[:8]}
        simulated = (await visitor.client.post("/api/policy/simulate", json=simulation)).json()
        assert [each["ref"] for each in simulated["differences"]] == ["shop/sell"]
        other = (await visitor.client.post("/api/policy/simulate", json=simulation | {"session": newest.id})).json()
        assert (other["compared"], other["differences"]) == (0, [])


async def test_recording_is_requested_over_rest_and_deleted_with_its_session(shop: Shop) -> None:
    async with open_console(shop.folder / "home", shop.folder) as visitor:
        shop.set_up(visitor.crib)
        body = {"record": True, "cwd": str(shop.folder)}
        id = (await visitor.client.post("/api/sessions", json=body)).json()["id"]
        assert visitor.crib.recordings.has(id)
        assert (await visitor.client.get(f"/api/sessions/{id}/recording")).status_code == 200
        assert (await visitor.client.delete(f"/api/sessions/{id}")).status_code == 204
        assert not visitor.crib.recordings.has(id)
        unknown = await visitor.client.post("/api/sessions/replay", json={"recording": "{}"})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "recording.invalid")
