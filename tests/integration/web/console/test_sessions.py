"""The list of sessions, and the page of a session with its live parts."""

from pathlib import Path

import anyio
import pytest

from integration.web.console.console_client import ConsoleClient
from toolcrib.agents.sessions.event_log import Recorder
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio


async def send(console: ConsoleClient, session: str, text: str) -> None:
    """Send a message and wait for the end of its turn."""
    log = await console.crib.sessions.events(session)
    sent = await console.crib.sessions.send(session, text)
    with anyio.fail_after(20):
        async for batch in log.follow(sent.seq):
            if any(event.kind == "done" for event in batch):
                return


async def test_items_and_head_read_only_new_events(
    console: ConsoleClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.crib.runners.add(PlayedRunner())
    session = await console.crib.sessions.create(NewSession("web", str(tmp_path), runner="played"))
    await send(console, session.id, "First")
    await console.page(f"/sessions/{session.id}")
    last = (await console.crib.sessions.events(session.id)).last
    starts: list[int] = []
    read = Recorder.read

    async def recorded(self: Recorder, session: str, after: int) -> tuple[SessionEvent, ...]:
        starts.append(after)
        return await read(self, session, after)

    monkeypatch.setattr(Recorder, "read", recorded)
    await console.part(f"/sessions/{session.id}/head")
    await console.part(f"/sessions/{session.id}/items", after=str(last))
    assert starts == []
    await send(console, session.id, "Second")
    items = await console.part(f"/sessions/{session.id}/items", after=str(last))
    assert items.one("article", class_="user").text.endswith("Second")
    assert starts and min(starts) >= last


@pytest.fixture
async def many(console: ConsoleClient, tmp_path: Path) -> ConsoleClient:
    """A crib with more sessions than a page shows."""
    for number in range(51):
        await console.crib.sessions.create(NewSession("web", str(tmp_path), title=f"Task {number:02}"))
    await console.crib.sessions.create(NewSession("web", str(tmp_path), title="100% Deploy_now"))
    return console


async def test_sessions_are_paged_and_the_total_counts_all(many: ConsoleClient) -> None:
    first = await many.json("/sessions")
    second = await many.json("/sessions", page="2")
    assert (first["total"], len(first["sessions"]), len(second["sessions"])) == (52, 50, 2)
    assert not {each["id"] for each in first["sessions"]} & {each["id"] for each in second["sessions"]}
    page = await many.page("/sessions")
    assert "1–50 of 52" in page.text
    assert page.one("a", href="/sessions?page=2").text == "Next"
    for odd in ("0", "x", "9" * 30):
        assert (await many.json("/sessions", page=odd))["sessions"] == first["sessions"]


async def test_sessions_are_searched_ignoring_case_and_filtered(many: ConsoleClient) -> None:
    async def titles(**query: str) -> list[str]:
        return [each["title"] for each in (await many.json("/sessions", **query))["sessions"]]

    assert await titles(q="deploy 100%") == ["100% Deploy_now"]
    assert await titles(q="deploy_NOW") == ["100% Deploy_now"]
    assert await titles(q="%%") == []
    assert await titles(agent="missing") == []
    assert "No sessions match." in (await many.page("/sessions", state="failed")).text
    assert "is not a state" in (await many.page("/sessions", status=422, state="gone")).text
