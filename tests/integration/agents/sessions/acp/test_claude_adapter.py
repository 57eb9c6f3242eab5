"""The ACP adapter of Claude Code on the scripted model: one whole session, and the runtime contract on request."""

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.agents.sessions.acp.host import endpoint_name, listening, runner_of
from integration.agents.sessions.acp.turns import create, kinds, only, text, turn
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
REPEAT_RESULT: JsonObject = {"blocks": [{"text": "Heard: {{last_tool_result}}"}]}


@pytest.fixture
def environment(scripted_model: ScriptedModel, tmp_path: Path) -> Environment:
    """The environment of Claude Code on the scripted model, with the executable that the SDK brings."""
    (tmp_path / "user").mkdir()
    given = claude_environment(tmp_path / "user", scripted_model.url)
    return Environment({**given, "CLAUDE_CODE_EXECUTABLE": str(find_cli(given))})


@pytest.fixture
def adapter(node_programs: Path, agent_programs: Path) -> Program:
    """The adapter as installed for the tests."""
    return replace(BUILT_IN["claude-acp"], command=(str(node_programs / "node"), str(agent_programs / ADAPTER)))


@pytest.mark.anyio
async def test_adapter_session_asks_runs_tools_and_resumes(
    environment: Environment, adapter: Program, scripted_model: ScriptedModel, tmp_path: Path, no_leaked_children: None
) -> None:
    echo: JsonObject = {"tool": "mcp__toolcrib__lab_echo", "input": {"text": "a"}}
    touch: JsonObject = {"tool": "Bash", "input": {"command": "touch made"}}
    scripted_model.scripts["both"] = [{"blocks": [{"text": "Looking."}, echo]}, {"blocks": [touch]}, REPEAT_RESULT]
    scripted_model.scripts["echo"] = [{"blocks": [echo]}, REPEAT_RESULT]
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
    """Run a listening crib."""
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
        """The adapter as a runtime; Claude Code's own tool is Write."""
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
