"""Claude Code is killed under a session: nothing is left open, and the next prompt is answered."""

import anyio
import pytest

from integration.agents.sessions.whole.workshop import Turn, Workshop, kill_claude, use
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


async def killed(workshop: Workshop, id: str, prompt: str) -> Turn:
    """The turn of a prompt whose process is killed as soon as its tool runs."""
    turns: list[Turn] = []

    async def talk() -> None:
        turns.append(await workshop.say(id, prompt))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        await workshop.lab.started.wait()
        kill_claude()
    return turns[0]


async def test_killed_in_a_turn_the_session_is_interrupted_and_the_next_message_resumes_it(workshop: Workshop) -> None:
    before = workshop.script("before", say("My favourite colour is teal."))
    waits = workshop.script("waits", do(use("mcp__lab__wait")))
    after = workshop.script("after", do(use("mcp__toolcrib__ping")), say("I am back."))

    async with workshop.crib.session(mode="acceptEdits") as session:
        await workshop.say(session.id, before)
        turn = await killed(workshop, session.id, waits)
        interrupted = await workshop.crib.sessions.get(session.id)
        (records,) = (await workshop.records(session.id)).values()
        resumed = await workshop.say(session.id, after)
        back = await workshop.crib.sessions.get(session.id)

    (error,) = turn.of("error")
    assert error["code"] == "runner.died"
    assert "SIGKILL" in error["message"]
    assert error["hint"]
    assert (turn.reason, interrupted.state) == ("failed", "interrupted")
    assert turn.calls[0].is_error
    assert [record["phase"] for record in records] == ["intent", "outcome"]
    assert records[-1]["abandoned"] is True
    assert (resumed.reason, back.state, back.runtime) == ("completed", "idle", interrupted.runtime)
    assert "pong" in resumed.calls[0].text, "tools are there again"
    assert "teal" in str(workshop.model.bodies[-1]["messages"]), "it remembers what was said before"


async def test_killed_while_idle_the_next_message_is_answered_by_another_process(workshop: Workshop) -> None:
    prompt = workshop.script("s", do(use("mcp__toolcrib__ping")), say("Done."))
    async with workshop.crib.session(mode="acceptEdits") as session:
        await workshop.say(session.id, prompt)
        kill_claude()
        turn = await workshop.say(session.id, prompt)
    assert turn.reason == "completed"
    assert turn.of("error") == []
    assert [data["queued"] for data in turn.of("user_message")] == [False]
    assert "pong" in turn.calls[0].text
