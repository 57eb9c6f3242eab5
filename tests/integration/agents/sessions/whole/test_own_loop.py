"""`crib.claude_options` in a custom loop with the Claude Agent SDK: decided and recorded like a session."""

from dataclasses import dataclass, field

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, ToolUseBlock, query

from integration.agents.sessions.whole.claude_crib import MODEL, TIMEOUT, ClaudeCrib, bash_block, tool_block
from toolcrib.model.events import Event
from toolcrib.store.audit import Filters
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


@dataclass
class CustomLoop:
    """A custom loop, with the calls and the ends that it observed."""

    calls: list[str] = field(default_factory=list[str])
    ends: list[ResultMessage] = field(default_factory=list[ResultMessage])

    async def run(self, prompt: str, options: ClaudeAgentOptions) -> None:
        """Run the loop to its end."""
        with anyio.fail_after(TIMEOUT):
            async for message in query(prompt=prompt, options=options):
                if isinstance(message, AssistantMessage):
                    self.calls += [block.name for block in message.content if isinstance(block, ToolUseBlock)]
                elif isinstance(message, ResultMessage):
                    self.ends.append(message)


async def phases_by_tool(claude: ClaudeCrib) -> dict[str, list[str]]:
    """Return the phases of the audit records, by tool."""
    phases: dict[str, list[str]] = {}
    for record in reversed(await claude.crib.audit.find(Filters())):
        phases.setdefault(f"{record['server']}/{record['tool']}", []).append(record["phase"])
    return phases


async def test_calls_of_a_custom_loop_are_approved_and_recorded(claude: ClaudeCrib) -> None:
    crib, path = claude.crib, claude.project / "touched"
    calls = [tool_block("mcp__toolcrib__ping"), tool_block("mcp__lab__change", text="a"), bash_block(f"touch {path}")]
    prompt = claude.script("s", *map(do, calls), say("Done."))
    published, approvals = anyio.create_memory_object_stream[Event](10)

    def listen(event: Event) -> None:
        if event.kind == "approval_required":
            published.send_nowait(event)

    async def answer_approvals() -> None:
        async for event in approvals:
            verb = "deny" if event.data["tool"] == "change" else "approve"
            await crib.approvals.answer(event.data["approvalId"], verb, by=crib.owner("cli"), reason="Leave it.")

    options = crib.claude_options(agent="reviewer", mode="default", cwd=claude.project, model=MODEL)
    stop, loop = crib.feed.listen(listen), CustomLoop()
    async with anyio.create_task_group() as tasks, published, approvals:
        tasks.start_soon(answer_approvals)
        await loop.run(prompt, options)
        tasks.cancel_scope.cancel()
    stop()
    assert loop.calls == ["mcp__toolcrib__ping", "mcp__lab__change", "Bash"]
    assert [(end.is_error, end.result) for end in loop.ends] == [(False, "Done.")]
    assert path.exists()
    assert claude.lab.calls == []
    assert "Leave it." in claude.tool_results()
    assert await phases_by_tool(claude) == {
        "toolcrib/ping": ["intent", "outcome"],
        "lab/change": ["outcome"],
        "claude_code/Bash": ["intent", "outcome"],
    }


async def test_plan_mode_in_a_custom_loop_only_reads(claude: ClaudeCrib) -> None:
    path = claude.project / "written"
    calls = [
        tool_block("mcp__lab__look"),
        tool_block("mcp__lab__change", text="a"),
        tool_block("Write", file_path=str(path), content="a"),
    ]
    prompt = claude.script("s", *map(do, calls), say("Done."))
    options = claude.crib.claude_options(mode="plan", cwd=claude.project, model=MODEL)
    loop = CustomLoop()
    await loop.run(prompt, options)
    assert [end.result for end in loop.ends] == ["Done."]
    assert claude.lab.calls == [{"tool": "look"}]
    assert not path.exists()
    assert await phases_by_tool(claude) == {
        "lab/look": ["intent", "outcome"],
        "lab/change": ["outcome"],
        "claude_code/Write": ["outcome"],
    }
