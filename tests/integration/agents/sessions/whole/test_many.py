"""Many tools in one session, and many concurrent sessions."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, Turn, open_claude_crib, tool_block
from toolcrib import ToolServer, tool
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.base.settings import Environment
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leaked_children")]

TOOLS = 500
SERVERS = 10
SESSIONS = 20


def server_of(number: int) -> ToolServer:
    """Return a server with its share of the tools."""

    def create_tool(name: str) -> Callable[[str], Awaitable[str]]:
        @tool(name=name)
        async def take(text: str) -> str:
            """Take an item."""
            return f"{name} took {text}"

        return take

    names = (f"take{each}" for each in range(number, TOOLS, SERVERS))
    return ToolServer(f"shelf{number}", tools=[create_tool(name) for name in names])


async def test_session_with_many_tools_loads_few_and_searches_the_others(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    servers = [server_of(number) for number in range(SERVERS)]
    async with open_claude_crib(tmp_path, claude_environment, scripted_model, more=servers) as claude:
        target = "mcp__shelf7__take417"
        prompt = claude.script(
            "s",
            do(tool_block("ToolSearch", query=f"select:{target}")),
            do(tool_block(target, text="a book")),
            say("Done."),
        )
        async with claude.crib.session(mode="acceptEdits") as session:
            turn = await claude.send(session.id, prompt)
            records = await claude.records(session.id)
    first = scripted_model.requests[0]
    loaded = [name for name in first.tools if name.startswith("mcp__") and name not in first.deferred]
    core = ("ping", "get_server_info", "get_session_count", "read_result")
    assert set(loaded) == {f"mcp__toolcrib__{name}" for name in core}
    search, take = turn.calls
    assert target in search.text
    assert "take417 took a book" in take.text
    assert len(records) == len(claude.model_call_ids()) == 2


@pytest.mark.skipif(not os.environ.get("TOOLCRIB_TEST_ALL"), reason="Takes long.")
async def test_concurrent_sessions_answer_their_own_prompts(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    turns: dict[int, Turn] = {}

    async def run_session(claude: ClaudeCrib, number: int) -> None:
        step = do(tool_block("mcp__lab__change", text=f"number {number}"))
        prompt = claude.script(f"s{number}", step, step, say(f"I am number {number}."))
        session = await claude.crib.sessions.create(NewSession("api", mode="acceptEdits"))
        turns[number] = await claude.send(session.id, prompt)

    async with open_claude_crib(tmp_path, claude_environment, scripted_model, max_sessions=SESSIONS) as claude:
        with anyio.fail_after(300):
            async with anyio.create_task_group() as tasks:
                for number in range(SESSIONS):
                    tasks.start_soon(run_session, claude, number)
        assert len(claude.crib.sessions.active()) == SESSIONS
    for number, turn in turns.items():
        assert turn.reason == "completed"
        assert turn.text == f"I am number {number}."
        assert [call.text.count(f"changed number {number}") for call in turn.calls] == [1, 1]
        assert [event.seq for event in turn] == list(range(1, len(turn) + 1))
    assert len(claude.lab.calls) == 2 * SESSIONS
