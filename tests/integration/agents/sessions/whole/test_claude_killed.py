"""Claude Code killed under a session: no call stays open, and the next prompt is answered."""

import anyio
import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, Turn, kill_claude, tool_block
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def turn_with_kill(claude: ClaudeCrib, id: str, prompt: str) -> Turn:
    """Return the turn of a prompt whose process is killed once its tool runs."""
    turns: list[Turn] = []

    async def send() -> None:
        turns.append(await claude.send(id, prompt))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await claude.lab.started.wait()
        kill_claude()
    return turns[0]


async def test_session_killed_in_a_turn_is_interrupted_and_resumes(claude: ClaudeCrib) -> None:
    before = claude.script("before", say("My favourite colour is teal."))
    waits = claude.script("waits", do(tool_block("mcp__lab__wait")))
    after = claude.script("after", do(tool_block("mcp__toolcrib__ping")), say("I am back."))

    async with claude.crib.session(mode="acceptEdits") as session:
        await claude.send(session.id, before)
        turn = await turn_with_kill(claude, session.id, waits)
        interrupted = await claude.crib.sessions.get(session.id)
        (records,) = (await claude.records(session.id)).values()
        resumed = await claude.send(session.id, after)
        back = await claude.crib.sessions.get(session.id)

    (error,) = turn.of("error")
    assert error["code"] == "runner.died"
    assert "SIGKILL" in error["message"]
    assert error["hint"]
    assert (turn.reason, interrupted.state) == ("failed", "interrupted")
    assert turn.calls[0].is_error
    assert [record["phase"] for record in records] == ["intent", "outcome"]
    assert records[-1]["abandoned"] is True
    assert (resumed.reason, back.state, back.runtime) == ("completed", "idle", interrupted.runtime)
    assert "pong" in resumed.calls[0].text, "the tools are available again"
    assert "teal" in str(claude.model.bodies[-1]["messages"]), "the history is available again"


async def test_session_killed_while_idle_answers_with_a_new_process(claude: ClaudeCrib) -> None:
    prompt = claude.script("s", do(tool_block("mcp__toolcrib__ping")), say("Done."))
    async with claude.crib.session(mode="acceptEdits") as session:
        await claude.send(session.id, prompt)
        kill_claude()
        turn = await claude.send(session.id, prompt)
    assert turn.reason == "completed"
    assert turn.of("error") == []
    assert [data["queued"] for data in turn.of("user_message")] == [False]
    assert "pong" in turn.calls[0].text
