"""`crib.claude_options` in a loop of one's own with the Claude Agent SDK: decided and recorded like a session."""

from dataclasses import dataclass, field

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, ToolUseBlock, query

from integration.agents.sessions.whole.workshop import BOUND, MODEL, Workshop, bash, use
from toolcrib.model.events import Event
from toolcrib.store.audit import Filters
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


@dataclass
class Driven:
    """What a loop of one's own saw: the calls, and the end."""

    calls: list[str] = field(default_factory=list[str])
    ends: list[ResultMessage] = field(default_factory=list[ResultMessage])

    async def drive(self, prompt: str, options: ClaudeAgentOptions) -> None:
        """Drive it to its end."""
        with anyio.fail_after(BOUND):
            async for message in query(prompt=prompt, options=options):
                if isinstance(message, AssistantMessage):
                    self.calls += [block.name for block in message.content if isinstance(block, ToolUseBlock)]
                elif isinstance(message, ResultMessage):
                    self.ends.append(message)


async def on_record(workshop: Workshop) -> dict[str, list[str]]:
    """What the audit has, by tool."""
    phases: dict[str, list[str]] = {}
    for record in reversed(await workshop.crib.audit.find(Filters())):
        phases.setdefault(f"{record['server']}/{record['tool']}", []).append(record["phase"])
    return phases


async def test_what_has_to_be_asked_waits_for_the_crib_s_person_and_all_is_on_record(workshop: Workshop) -> None:
    crib, path = workshop.crib, workshop.project / "touched"
    calls = [use("mcp__toolcrib__ping"), use("mcp__lab__change", text="a"), bash(f"touch {path}")]
    prompt = workshop.script("s", *map(do, calls), say("Done."))
    asked, questions = anyio.create_memory_object_stream[Event](10)

    def listen(event: Event) -> None:
        if event.kind == "approval_required":
            asked.send_nowait(event)

    async def person() -> None:
        async for event in questions:
            verb = "deny" if event.data["tool"] == "change" else "approve"
            await crib.approvals.answer(event.data["approvalId"], verb, by=crib.owner("cli"), reason="Leave it.")

    options = crib.claude_options(agent="reviewer", mode="default", cwd=workshop.project, model=MODEL)
    stop, driven = crib.feed.listen(listen), Driven()
    async with anyio.create_task_group() as tasks, asked, questions:
        tasks.start_soon(person)
        await driven.drive(prompt, options)
        tasks.cancel_scope.cancel()
    stop()
    assert driven.calls == ["mcp__toolcrib__ping", "mcp__lab__change", "Bash"]
    assert [(end.is_error, end.result) for end in driven.ends] == [(False, "Done.")]
    assert path.exists()
    assert workshop.lab.noted == []
    assert "Leave it." in workshop.heard()
    assert await on_record(workshop) == {
        "toolcrib/ping": ["intent", "outcome"],
        "lab/change": ["outcome"],
        "claude_code/Bash": ["intent", "outcome"],
    }


async def test_plan_mode_reads_and_changes_nothing(workshop: Workshop) -> None:
    path = workshop.project / "written"
    calls = [
        use("mcp__lab__look"),
        use("mcp__lab__change", text="a"),
        use("Write", file_path=str(path), content="a"),
    ]
    prompt = workshop.script("s", *map(do, calls), say("Done."))
    options = workshop.crib.claude_options(mode="plan", cwd=workshop.project, model=MODEL)
    driven = Driven()
    await driven.drive(prompt, options)
    assert [end.result for end in driven.ends] == ["Done."]
    assert workshop.lab.noted == [{"tool": "look"}]
    assert not path.exists()
    assert await on_record(workshop) == {
        "lab/look": ["intent", "outcome"],
        "lab/change": ["outcome"],
        "claude_code/Write": ["outcome"],
    }
