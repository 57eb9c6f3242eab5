"""The table of permissions: what becomes of a call, by mode and tool, and that every call is on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from integration.agents.sessions.whole.workshop import Workshop, bash, open_workshop, upstream, use
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
upstream, says it reads  asked    ran          denied  denied   ran
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
    "says": upstream("upstreams.changing_tools", "hinted"),
    "known": upstream("upstreams.changing_tools", "hinted", "known"),
}


def expected(mode: Mode) -> dict[str, str]:
    """The column of a mode, by call."""
    head, *rows = (line for line in TABLE.splitlines() if line)
    column = head.split().index(mode)
    return {row[:25].strip(): row[25:].split()[column - 1] for row in rows}


def calls(project: Path, outside: Path) -> Iterator[tuple[str, JsonObject]]:
    """The calls of the table."""
    yield "built-in", use("mcp__toolcrib__ping")
    yield "plugin, reads", use("mcp__lab__look")
    yield "plugin, changes", use("mcp__lab__change", text="a")
    yield "upstream", use("mcp__legacy__echo", text="a")
    yield "upstream, says it reads", use("mcp__says__tool", text="a")
    yield "upstream, known to read", use("mcp__known__tool", text="a")
    yield "Read inside", use("Read", file_path=str(project / "notes"))
    yield "Read outside", use("Read", file_path=str(outside / "notes"))
    yield "Write inside", use("Write", file_path=str(project / "written"), content="a")
    yield "Write outside", use("Write", file_path=str(outside / "written"), content="a")
    yield "Bash", bash(f"touch {outside / 'touched'}")
    yield "plugin, reads the web", use("mcp__lab__browse")


async def vouch(workshop: Workshop, ref: ToolRef) -> None:
    """The owner has looked at a definition, and accepts it."""
    crib = workshop.crib
    await crib.intake.accept(None, ref, digest(crib.catalog.snapshot.tools[ref].definition), crib.owner("cli"))


@pytest.mark.parametrize("mode", MODES)
async def test_a_mode_says_what_becomes_of_a_call_and_all_calls_are_on_record(
    no_leaked_children: None,
    claude_environment: Environment,
    scripted_model: ScriptedModel,
    tmp_path: Path,
    mode: Mode,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with open_workshop(tmp_path, claude_environment, scripted_model, SERVERS) as workshop:
        for folder in (workshop.project, outside):
            (folder / "notes").write_text("some notes", encoding="utf-8")
        await vouch(workshop, ToolRef("known", "tool"))
        table = dict(calls(workshop.project, outside))
        prompt = workshop.script("all", *(do(call) for call in table.values()), say("Done."))
        async with workshop.crib.session(mode=mode) as session:
            turn = await workshop.say(session.id, prompt)
        records = await workshop.records(session.id)

    became = dict(zip(table, (call.became for call in turn.calls), strict=True))
    assert became == expected(mode)
    assert turn.reason == "completed"
    for name, call in zip(table, turn.calls, strict=True):
        assert call.is_error == (became[name] == "denied"), f"{name}: {call.text}"
    has_run = {name for name, what in became.items() if what != "denied"}
    assert {
        "plugin, reads": {"tool": "look"} in workshop.lab.noted,
        "plugin, changes": {"text": "a", "times": 1} in workshop.lab.noted,
        "Write inside": (workshop.project / "written").exists(),
        "Write outside": (outside / "written").exists(),
        "Bash": (outside / "touched").exists(),
    } == {
        name: name in has_run for name in ("plugin, reads", "plugin, changes", "Write inside", "Write outside", "Bash")
    }

    assert len(records) == len(workshop.made()) == len(table), "the gate was asked for every call the model made"
    phases = [[record["phase"] for record in call] for call in records.values()]
    assert phases == [["intent", "outcome"] if name in has_run else ["outcome"] for name in table]
    assert ["approvalId" in call[0] for call in records.values()] == [became[name] == "asked" for name in table]
