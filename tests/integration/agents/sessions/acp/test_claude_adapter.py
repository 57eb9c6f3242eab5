"""The adapter of Claude Code, on the scripted model: a whole session always, all that runners keep to on request."""

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.agents.sessions.acp.host import endpoint_name, listening, runner_of
from integration.agents.sessions.acp.talk import create, kinds, only, text, turn
from long_tests import takes_long
from toolcrib import Crib
from toolcrib.agents.sessions.claude.program import find_cli
from toolcrib.agents.sessions.programs import BUILT_IN, Program
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.testing.environments import claude_environment
from toolcrib.testing.plugin import scripted_model
from toolcrib.testing.runner_rig import OwnTool, RunnerRig
from toolcrib.testing.runners import RunnerContract
from toolcrib.testing.scripted_model.server import ScriptedModel

__all__ = ["scripted_model"]

pytestmark = takes_long

ADAPTER = Path("@agentclientprotocol", "claude-agent-acp", "dist", "index.js")
IS_FULL = bool(os.environ.get("TOOLCRIB_TEST_ALL"))
HEARD: JsonObject = {"blocks": [{"text": "Heard: {{last_tool_result}}"}]}


@pytest.fixture
def environment(scripted_model: ScriptedModel, tmp_path: Path) -> Environment:
    """That of Claude Code with the scripted model; the Claude Code that came with the SDK is the one to be driven."""
    (tmp_path / "user").mkdir()
    given = claude_environment(tmp_path / "user", scripted_model.url)
    return Environment({**given, "CLAUDE_CODE_EXECUTABLE": str(find_cli(given))})


@pytest.fixture
def adapter(node_programs: Path, agent_programs: Path) -> Program:
    """The adapter where the tests have it."""
    return replace(BUILT_IN["claude-acp"], command=(str(node_programs / "node"), str(agent_programs / ADAPTER)))


@pytest.mark.anyio
async def test_a_session_of_claude_code_through_its_adapter(
    environment: Environment, adapter: Program, scripted_model: ScriptedModel, tmp_path: Path, no_leaked_children: None
) -> None:
    echo: JsonObject = {"tool": "mcp__toolcrib__lab_echo", "input": {"text": "a"}}
    touch: JsonObject = {"tool": "Bash", "input": {"command": "touch made"}}
    scripted_model.scripts["both"] = [{"blocks": [{"text": "I look."}, echo]}, {"blocks": [touch]}, HEARD]
    scripted_model.scripts["echo"] = [{"blocks": [echo]}, HEARD]
    words = ", ".join(f'"{word}"' for word in adapter.command)
    async with listening(tmp_path, environment, f"[runners.claude-acp]\ncommand = [{words}]\n") as crib:
        session = await create(crib, runner="claude-acp")
        events = await turn(crib, session, "both")
        asked = [event.data for event in events if event.kind == "approval_required"]
        starts = [event.data for event in events if event.kind == "tool_call_start"]
        assert [(each["server"], each["tool"]) for each in asked] == [("lab", "echo"), ("claude_code", "Bash")]
        assert [each["toolCallId"] for each in asked] == [each["toolCallId"] for each in starts]
        assert (tmp_path / "project" / "made").exists()
        assert kinds(events)[-1] == "done"
        assert events[-1].data["costUsd"] > 0
        await crib.sessions.close(session)
        resumed = await turn(crib, session, "echo", "deny", "not twice")
        assert only(resumed, "tool_result")["isError"] is True
        assert "not twice" in text(resumed)


@pytest.fixture
async def claude_crib(tmp_path: Path, environment: Environment) -> AsyncGenerator[Crib]:
    """A crib that listens."""
    async with listening(tmp_path, environment) as opened:
        yield opened


@pytest.mark.skipif(not IS_FULL, reason="Takes minutes: TOOLCRIB_TEST_ALL=1.")
class TestClaudeAdapter(RunnerContract):
    @pytest.fixture
    async def rig(
        self,
        claude_crib: Crib,
        adapter: Program,
        environment: Environment,
        scripted_model: ScriptedModel,
        tmp_path: Path,
    ) -> AsyncGenerator[RunnerRig]:
        """The adapter as a runtime; of Claude Code's own tools there is Write."""
        project = tmp_path / "project"

        def written(name: str) -> JsonObject:
            return {"file_path": str(project / name), "content": name}

        async with runner_of(claude_crib, adapter, environment) as runner:
            yield RunnerRig(
                runner,
                scripted_model.scripts.__setitem__,
                str(project),
                name_of=endpoint_name,
                own_tool=OwnTool(
                    "Write", written("one"), written("two"), lambda arguments: Path(arguments["file_path"]).is_file()
                ),
                counts_turns=False,
                gives_reasons=False,
                takes_changes=False,
                timeout=90.0,
            )
