"""The page of a session, which asks for its new items and its head after every event."""

from pathlib import Path

import anyio
import pytest

from integration.web.console.visitor import Visitor
from toolcrib.agents.sessions.event_log import Recorder
from toolcrib.agents.sessions.manager import NewSession
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio


async def send(visitor: Visitor, session: str, text: str) -> None:
    """Send a message and wait for the end of its turn."""
    log = await visitor.crib.sessions.events(session)
    sent = await visitor.crib.sessions.send(session, text)
    with anyio.fail_after(20):
        async for batch in log.follow(sent.seq):
            if any(event.kind == "done" for event in batch):
                return


async def test_items_and_head_read_only_new_events(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.crib.runners.add(PlayedRunner())
    session = await visitor.crib.sessions.create(NewSession("web", str(tmp_path), runner="played"))
    await send(visitor, session.id, "First")
    await visitor.page(f"/sessions/{session.id}")
    last = (await visitor.crib.sessions.events(session.id)).last
    starts: list[int] = []
    read = Recorder.read

    async def recorded(self: Recorder, session: str, after: int) -> tuple[SessionEvent, ...]:
        starts.append(after)
        return await read(self, session, after)

    monkeypatch.setattr(Recorder, "read", recorded)
    await visitor.part(f"/sessions/{session.id}/head")
    await visitor.part(f"/sessions/{session.id}/items", after=str(last))
    assert starts == []
    await send(visitor, session.id, "Second")
    items = await visitor.part(f"/sessions/{session.id}/items", after=str(last))
    assert items.one("article", class_="user").text.endswith("Second")
    assert starts and min(starts) >= last
