"""The real Claude Code in search mode and in code mode: few tools, and every call goes through the gate."""

from pathlib import Path

import pytest

from integration.agents.sessions.whole.workshop import agrees, open_workshop, use
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
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        given = {"id": "clerk", "name": "Clerk", "toolPermissions": ["lab/*"], "listing": listing}
        await workshop.crib.zoo.create(AgentInput.model_validate(given), by="owner")
        find = use("mcp__toolcrib__find_tools", query="change something")
        prompt = workshop.script("s", do(find), do(use(f"mcp__toolcrib__{name}", **arguments)), say("Done."))
        async with workshop.crib.session(agent="clerk", mode="default") as session:
            turn = await workshop.say(session.id, prompt, agrees)
    shown = {each for each in scripted_model.requests[0].tools if each.startswith("mcp__")}
    assert shown == {f"mcp__toolcrib__{each}" for each in (*offered, "read_result")}
    found, made = turn.calls
    assert "lab/change" in found.text
    assert (made.became, made.is_error) == ("asked", False)
    assert [each["text"] for each in workshop.lab.noted] == (["a", "b"] if listing == "code" else ["a"])
