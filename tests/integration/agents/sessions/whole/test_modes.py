"""The outcome of each kind of call in each mode, and its audit records."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, bash_block, open_claude_crib, tool_block, upstream
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.principals import Mode
from toolcrib.model.tools import ToolRef
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio

MODES: tuple[Mode, ...] = get_args(Mode)
TABLE = """
call                     default  acceptEdits  plan    dontAsk  bypassPermissions
built-in                 asked    ran          ran     denied   ran
plugin, reads            asked    ran          ran     denied   ran
plugin, changes          asked    ran          denied  denied   ran
upstream                 asked    ran          denied  denied   ran
upstream, hinted to read asked    ran          denied  denied   ran
upstream, known to read  asked    ran          ran     denied   ran
Read inside              ran      ran          ran     denied   ran
Read outside             asked    asked        asked   denied   ran
Write inside             asked    ran          denied  denied   ran
Write outside            asked    asked        denied  denied   ran
Bash                     asked    asked        denied  denied   ran
plugin, reads the web    asked    ran          asked   denied   ran
"""
SERVERS = {
    "legacy": upstream("upstreams.legacy", "plain"),
    "hinted": upstream("upstreams.changing_tools", "hinted"),
    "known": upstream("upstreams.changing_tools", "hinted", "known"),
}


def expected(mode: Mode) -> dict[str, str]:
    """Return the column of a mode, by call."""
    head, *rows = (line for line in TABLE.splitlines() if line)
    column = head.split().index(mode)
    return {row[:25].strip(): row[25:].split()[column - 1] for row in rows}


def calls(project: Path, outside: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the calls of the table."""
    yield "built-in", tool_block("mcp__toolcrib__ping")
    yield "plugin, reads", tool_block("mcp__lab__look")
    yield "plugin, changes", tool_block("mcp__lab__change", text="a")
    yield "upstream", tool_block("mcp__legacy__echo", text="a")
    yield "upstream, hinted to read", tool_block("mcp__hinted__tool", text="a")
    yield "upstream, known to read", tool_block("mcp__known__tool", text="a")
    yield "Read inside", tool_block("Read", file_path=str(project / "notes"))
    yield "Read outside", tool_block("Read", file_path=str(outside / "notes"))
    yield "Write inside", tool_block("Write", file_path=str(project / "written"), content="a")
    yield "Write outside", tool_block("Write", file_path=str(outside / "written"), content="a")
    yield "Bash", bash_block(f"touch {outside / 'touched'}")
    yield "plugin, reads the web", tool_block("mcp__lab__browse")


async def accept_definition(claude: ClaudeCrib, ref: ToolRef) -> None:
    """Accept the definition of a tool as the owner."""
    crib = claude.crib
    await crib.intake.accept(None, ref, digest(crib.catalog.snapshot.tools[ref].definition), crib.owner("cli"))


@pytest.mark.parametrize("mode", MODES)
async def test_each_mode_has_the_documented_outcomes_and_records(
    no_leaked_children: None,
    claude_environment: Environment,
    scripted_model: ScriptedModel,
    tmp_path: Path,
    mode: Mode,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with open_claude_crib(tmp_path, claude_environment, scripted_model, SERVERS) as claude:
        for folder in (claude.project, outside):
            (folder / "notes").write_text("some notes", encoding="utf-8")
        await accept_definition(claude, ToolRef("known", "tool"))
        table = dict(calls(claude.project, outside))
        prompt = claude.script("all", *(do(call) for call in table.values()), say("Done."))
        async with claude.crib.session(mode=mode) as session:
            turn = await claude.send(session.id, prompt)
        records = await claude.records(session.id)

    outcomes = dict(zip(table, (call.outcome for call in turn.calls), strict=True))
    assert outcomes == expected(mode)
    assert turn.reason == "completed"
    for name, call in zip(table, turn.calls, strict=True):
        assert call.is_error == (outcomes[name] == "denied"), f"{name}: {call.text}"
    has_run = {name for name, outcome in outcomes.items() if outcome != "denied"}
    assert {
        "plugin, reads": {"tool": "look"} in claude.lab.calls,
        "plugin, changes": {"text": "a", "times": 1} in claude.lab.calls,
        "Write inside": (claude.project / "written").exists(),
        "Write outside": (outside / "written").exists(),
        "Bash": (outside / "touched").exists(),
    } == {
        name: name in has_run for name in ("plugin, reads", "plugin, changes", "Write inside", "Write outside", "Bash")
    }

    assert len(records) == len(claude.model_call_ids()) == len(table), "a call of the model did not reach the gate"
    phases = [[record["phase"] for record in call] for call in records.values()]
    assert phases == [["intent", "outcome"] if name in has_run else ["outcome"] for name in table]
    assert ["approvalId" in call[0] for call in records.values()] == [outcomes[name] == "asked" for name in table]
