"""A session whose directory contains the crib's home: the home stays closed, and decisive files are asked for."""

from dataclasses import replace
from pathlib import Path

import claude_agent_sdk
import pytest

import toolcrib
from integration.agents.sessions.whole.workshop import Call, Workshop, agrees, bash, open_workshop, upstream, use
from toolcrib import Crib
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio


async def calls(workshop: Workshop, mode: Mode, cwd: Path, *blocks: JsonObject) -> list[Call]:
    prompt = workshop.script("all", *(do(block) for block in blocks), say("Done."))
    async with workshop.crib.session(mode=mode, cwd=cwd) as session:
        turn = await workshop.say(session.id, prompt)
    return turn.calls


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
async def test_a_session_around_the_home_neither_reads_nor_writes_it(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path, mode: Mode
) -> None:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        home = workshop.crib.home
        secret = home.token_file.read_text(encoding="utf-8").strip()
        (tmp_path / "link").symlink_to(home.root)
        (tmp_path / "notes").hardlink_to(home.token_file)
        evil = 'open("{}", "w").write("owned")'.format(tmp_path / "owned")
        made = await calls(
            workshop,
            mode,
            tmp_path,
            use("Read", file_path=str(home.token_file)),
            use("Read", file_path=str(tmp_path / "link" / "token")),
            use("Read", file_path=str(tmp_path / "notes")),
            use("Grep", pattern=".", output_mode="content", path=str(tmp_path)),
            use("Glob", pattern="**/token"),
            use("Write", file_path=str(home.tools / "evil.py"), content=evil),
            use("Write", file_path=str(home.settings_file), content='[[rules]]\neffect = "allow"\npattern = "*"\n'),
            bash(f"cat {home.token_file}"),
        )

    assert [call.became for call in made] == ["denied"] * 8
    assert secret not in workshop.heard()
    assert not (home.tools / "evil.py").exists()
    assert not home.settings_file.exists()
    assert not (tmp_path / "owned").exists()


async def test_the_home_is_closed_to_relative_paths_in_another_directory(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_workshop(tmp_path / "inner", claude_environment, scripted_model) as workshop:
        secret = workshop.crib.home.token_file.read_text(encoding="utf-8").strip()
        (tmp_path / "inner" / "notes.txt").write_text("noted", encoding="utf-8")
        made = await calls(
            workshop,
            "bypassPermissions",
            tmp_path,
            bash(f"cd {tmp_path / 'inner'}"),
            use("Grep", pattern=".", output_mode="content", path="home"),
            use("Glob", pattern="token", path="home"),
            use("Grep", pattern=".", output_mode="content"),
            use("Read", file_path="home/token"),
            use("Grep", pattern=".", output_mode="content", path="notes.txt"),
        )

    assert [call.became for call in made] == ["ran", "denied", "denied", "denied", "denied", "ran"]
    assert "noted" in made[-1].text
    assert secret not in workshop.heard()


async def test_edits_of_files_that_decide_what_runs_are_asked_for_in_accept_edits(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        decisive = [".git/hooks/pre-commit", ".mcp.json", ".GitHub/workflows/ci.yml", ".vscode/tasks.json"]
        ordinary = ["a.py", "src/Makefile"]
        made = await calls(
            workshop,
            "acceptEdits",
            workshop.project,
            *(use("Write", file_path=str(workshop.project / name), content="a") for name in (*decisive, *ordinary)),
        )

    assert [call.became for call in made] == ["asked"] * len(decisive) + ["ran"] * len(ordinary)


async def test_edits_of_the_program_that_the_crib_runs_from_are_asked_for(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        for file in (toolcrib.__file__, claude_agent_sdk.__file__):
            principal = workshop.crib.owner("web", mode="acceptEdits", cwd=str(Path(file).parents[2]))
            agent = replace(principal, by_hand=False)
            edit: JsonObject = {"file_path": str(Path(file).with_name("evil.py")), "content": "a"}
            assert (await workshop.crib.why("claude_code/Write", principal=agent, arguments=edit)).verdict == "ask"


async def test_a_path_that_leads_elsewhere_after_the_question_is_refused(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        link, harmless, other = (workshop.project / name for name in ("link", "harmless", "other"))
        link.symlink_to(harmless)

        async def swaps(crib: Crib, event: SessionEvent) -> None:
            if event.kind == "approval_required":
                link.unlink()
                link.symlink_to(other)
            await agrees(crib, event)

        prompt = workshop.script("all", do(use("Write", file_path=str(link), content="a")), say("Done."))
        async with workshop.crib.session(mode="default") as session:
            (call,) = (await workshop.say(session.id, prompt, swaps)).calls

    assert call.is_error
    assert "leads elsewhere" in call.text
    assert not other.exists()


async def test_tools_of_servers_cannot_be_given_a_path_in_the_home(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    servers = {"legacy": upstream("upstreams.legacy", "plain")}
    async with open_workshop(tmp_path, claude_environment, scripted_model, servers) as workshop:
        evil = str(workshop.crib.home.tools / "evil.py")
        paths = (evil, evil.replace("/tools", "/./tools/../tools"), f"file://{evil}", str(workshop.project / "home.py"))
        made = await calls(
            workshop, "bypassPermissions", tmp_path, *(use("mcp__legacy__echo", text=path) for path in paths)
        )
        by_hand = await workshop.crib.call("legacy/echo", {"text": evil}, principal=workshop.crib.owner("cli"))

    assert [call.became for call in made] == ["denied", "denied", "denied", "ran"]
    assert not by_hand.is_error
