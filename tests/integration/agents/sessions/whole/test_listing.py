"""The real Claude Code in search and code mode: few listed tools, and every call passes the gate."""

from pathlib import Path

import pytest

from integration.agents.sessions.whole.claude_crib import approve_all, open_claude_crib, tool_block
from long_tests import takes_long
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leaked_children"), takes_long]

PROGRAM = "for text in ['a', 'b']:\n    print(await lab_change(text=text))"


@pytest.mark.parametrize(
    ("listing", "offered", "name", "arguments"),
    [
        ("search", {"find_tools", "call_tool"}, "call_tool", {"ref": "lab/change", "arguments": {"text": "a"}}),
        ("code", {"find_tools", "describe_tools", "run_code"}, "run_code", {"code": PROGRAM}),
    ],
)
async def test_claude_code_finds_and_calls_tools_after_one_approval(
    claude_environment: Environment,
    scripted_model: ScriptedModel,
    tmp_path: Path,
    listing: str,
    offered: set[str],
    name: str,
    arguments: JsonObject,
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        fields = {"id": "clerk", "name": "Clerk", "toolPermissions": ["lab/*"], "listing": listing}
        await claude.crib.zoo.create(AgentInput.model_validate(fields), by="owner")
        find = tool_block("mcp__toolcrib__find_tools", query="change something")
        prompt = claude.script("s", do(find), do(tool_block(f"mcp__toolcrib__{name}", **arguments)), say("Done."))
        async with claude.crib.session(agent="clerk", mode="default") as session:
            turn = await claude.send(session.id, prompt, approve_all)
    shown = {each for each in scripted_model.requests[0].tools if each.startswith("mcp__")}
    assert shown == {f"mcp__toolcrib__{each}" for each in (*offered, "read_result")}
    found, called = turn.calls
    assert "lab/change" in found.text
    assert (called.outcome, called.is_error) == ("asked", False)
    assert [each["text"] for each in claude.lab.calls] == (["a", "b"] if listing == "code" else ["a"])
