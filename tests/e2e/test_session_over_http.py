"""A session over HTTP with the real Claude Code and the scripted model: call, approval, question, fork and export."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from toolcrib.base.home import owner_token
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.plugin import claude_environment, no_leaked_children, scripted_model
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

__all__ = ["claude_environment", "no_leaked_children", "scripted_model"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leaked_children")]

BOUND = 60.0


@pytest.fixture
async def holding(claude_environment: Environment, tmp_path: Path) -> AsyncGenerator[Holding]:
    """Run a crib on a free port whose agents use the scripted model."""
    settings = Settings(home=tmp_path / "home")
    async with hold(settings, kind="serve", port=0, environment=claude_environment) as holding:
        yield holding


@pytest.fixture
async def client(holding: Holding, tmp_path: Path) -> AsyncGenerator[ApiClient]:
    """Return the owner's API client, as the command line in a project has it."""
    project = tmp_path / "project"
    project.mkdir()
    async with ApiClient(holding.info.url, owner_token(holding.crib.home), source="cli", cwd=str(project)) as client:
        yield client


async def follow_answer(client: ApiClient, id: str, after: int) -> list[SessionEvent]:
    """Follow an answer to its end. Approves every call and chooses the first answer of every question."""
    events: list[SessionEvent] = []
    with anyio.fail_after(BOUND):
        async for event in client.sessions.events(id, after):
            events.append(event)
            if event.kind == "approval_required":
                await client.permissions.answer(event.data["approvalId"], {"decision": "approve"})
            elif event.kind == "question_prompt":
                asked = event.data["questions"][0]["question"]
                await client.sessions.answer(id, event.data["questionId"], {asked: "A"})
            elif event.kind == "done":
                break
    return events


def kinds(events: list[SessionEvent]) -> list[str]:
    return [event.kind for event in events if event.kind not in ("session_status", "text_delta", "tool_call_delta")]


async def test_session_calls_asks_forks_and_exports(client: ApiClient, scripted_model: ScriptedModel) -> None:
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    question = {"question": "Which?", "header": "H", "multiSelect": False, "options": options}
    scripted_model.scripts["all"] = [
        {"blocks": [{"text": "I look."}, {"tool": "mcp__toolcrib__ping", "input": {}}]},
        {"blocks": [{"tool": "AskUserQuestion", "input": {"questions": [question]}}]},
        {"blocks": [{"text": "All done."}]},
    ]
    session = await client.sessions.create({"model": "claude-sonnet-4-5"})
    assert (session["source"], session["mode"], session["runner"]) == ("cli", "default", "claude")
    sent = await client.sessions.send(session["id"], "Go [[script:all]]")
    events = await follow_answer(client, session["id"], sent["seq"] - 1)
    assert kinds(events) == [
        "user_message", "text_message", "tool_call_start", "tool_call_end", "approval_required", "approval_resolved",
        "tool_result", "tool_call_start", "tool_call_end", "question_prompt", "question_answered", "tool_result",
        "text_message", "done",
    ]  # fmt: skip
    asked, result = (
        next(each for each in events if each.kind == kind) for kind in ("approval_required", "tool_result")
    )
    assert asked.data["toolCallId"] == result.data["toolCallId"]
    assert "pong" in str(result.data["content"])
    assert events[-1].data["reason"] == "completed"
    shown = await client.sessions.get(session["id"][:8])
    assert (shown["state"], shown["lastSeq"], shown["title"]) == ("idle", events[-1].seq, "Go [[script:all]]")
    assert shown["inputTokens"] > 0
    fork = await client.sessions.fork(session["id"])
    again = await client.sessions.send(fork["id"], "Once more [[script:all]]")
    assert kinds(await follow_answer(client, fork["id"], again["seq"]))[-1] == "done"
    text = b"".join([piece async for piece in client.sessions.transcript(session["id"], "markdown")]).decode()
    assert text.index("I look.") < text.index("pong") < text.index("Which?") < text.index("All done.")
    for id in (session["id"], fork["id"]):
        await client.sessions.delete(id)
    assert await client.sessions.list() == []
