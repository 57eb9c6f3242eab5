"""Turns of sessions in tests; approvals are answered at once."""

from typing import Literal

import anyio

from toolcrib import Crib
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import SessionEvent

TIMEOUT = 60.0


async def create(crib: Crib, mode: Mode = "default", runner: str = "scripted", **more: str) -> str:
    """Create a session of the scripted agent and return its id."""
    return (await crib.sessions.create(NewSession("api", mode=mode, runner=runner, **more))).id  # pyright: ignore[reportArgumentType]


async def turn(
    crib: Crib, session: str, script: str, decision: Literal["approve", "deny"] = "approve", reason: str | None = None
) -> list[SessionEvent]:
    """Return the events of one turn; answer every approval with this decision."""
    log = await crib.sessions.events(session)
    sent = await crib.sessions.send(session, f"Go on. [[script:{script}]]")
    events: list[SessionEvent] = []
    with anyio.fail_after(TIMEOUT):
        async for batch in log.follow(sent.seq - 1):
            for event in batch:
                events.append(event)
                if event.kind == "approval_required":
                    id: str = event.data["approvalId"]
                    await crib.approvals.answer(id, decision, by=crib.owner("cli"), reason=reason)
                if event.kind == "done":
                    return events
    return events


def kinds(events: list[SessionEvent]) -> list[str]:
    """Return the kinds of the events, without states and deltas."""
    return [event.kind for event in events if event.kind not in ("session_status", "text_delta")]


def only(events: list[SessionEvent], kind: str) -> JsonObject:
    """Return the data of the only event of this kind."""
    (found,) = [event.data for event in events if event.kind == kind]
    return found


def text(events: list[SessionEvent]) -> str:
    """Return the last text of the agent."""
    return [str(event.data["text"]) for event in events if event.kind == "text_message"][-1]
