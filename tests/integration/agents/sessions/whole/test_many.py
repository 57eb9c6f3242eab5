"""Many tools in one session, and many sessions at once."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from integration.agents.sessions.whole.workshop import Turn, Workshop, open_workshop, use
from toolcrib import ToolServer, tool
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.settings import Environment
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leaked_children")]

TOOLS = 500
SHELVES = 10
SESSIONS = 20


def shelf(number: int) -> ToolServer:
    """A server with its part of the tools."""

    def made(name: str) -> Callable[[str], Awaitable[str]]:
        @tool(name=name)
        async def take(text: str) -> str:
            """Take something from its place."""
            return f"{name} took {text}"

        return take

    names = (f"take{each}" for each in range(number, TOOLS, SHELVES))
    return ToolServer(f"shelf{number}", tools=[made(name) for name in names])


async def test_of_five_hundred_tools_a_session_is_shown_few_and_finds_the_others(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    shelves = [shelf(number) for number in range(SHELVES)]
    async with open_workshop(tmp_path, claude_environment, scripted_model, more=shelves) as workshop:
        wanted = "mcp__shelf7__take417"
        prompt = workshop.script(
            "s", do(use("ToolSearch", query=f"select:{wanted}")), do(use(wanted, text="a book")), say("Done.")
        )
        async with workshop.crib.session(mode="acceptEdits") as session:
            turn = await workshop.say(session.id, prompt)
            records = await workshop.records(session.id)
    first = scripted_model.requests[0]
    loaded = [name for name in first.tools if name.startswith("mcp__") and name not in first.deferred]
    core = ("ping", "get_server_info", "get_session_count", "read_result")
    assert set(loaded) == {f"mcp__toolcrib__{name}" for name in core}
    search, take = turn.calls
    assert wanted in search.text
    assert "take417 took a book" in take.text
    assert len(records) == len(workshop.made()) == 2


@pytest.mark.skipif(not os.environ.get("TOOLCRIB_TEST_ALL"), reason="takes long")
async def test_twenty_sessions_at_once_answer_each_its_own_prompt(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    turns: dict[int, Turn] = {}

    async def talk(workshop: Workshop, number: int) -> None:
        step = do(use("mcp__lab__change", text=f"number {number}"))
        prompt = workshop.script(f"s{number}", step, step, say(f"I am number {number}."))
        session = await workshop.crib.sessions.create(NewSession("api", mode="acceptEdits"))
        turns[number] = await workshop.say(session.id, prompt)

    async with open_workshop(tmp_path, claude_environment, scripted_model, most=SESSIONS) as workshop:
        with anyio.fail_after(300):
            async with anyio.create_task_group() as tasks:
                for number in range(SESSIONS):
                    tasks.start_soon(talk, workshop, number)
        assert len(workshop.crib.sessions.active()) == SESSIONS
    for number, turn in turns.items():
        assert turn.reason == "completed"
        assert turn.text == f"I am number {number}."
        assert [call.text.count(f"changed number {number}") for call in turn.calls] == [1, 1]
        assert [event.seq for event in turn] == list(range(1, len(turn) + 1))
    assert len(workshop.lab.noted) == 2 * SESSIONS
