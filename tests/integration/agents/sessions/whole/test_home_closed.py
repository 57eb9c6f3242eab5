"""A session whose directory contains the crib's home: the home is closed, and critical files need approval."""

from dataclasses import replace
from pathlib import Path

import claude_agent_sdk
import pytest

import toolcrib
from integration.agents.sessions.whole.claude_crib import (
    Call,
    ClaudeCrib,
    approve_all,
    bash_block,
    open_claude_crib,
    tool_block,
    upstream,
)
from toolcrib import Crib
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio


async def run_calls(claude: ClaudeCrib, mode: Mode, cwd: Path, *blocks: JsonObject) -> list[Call]:
    prompt = claude.script("all", *(do(block) for block in blocks), say("Done."))
    async with claude.crib.session(mode=mode, cwd=cwd) as session:
        turn = await claude.send(session.id, prompt)
    return turn.calls


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
async def test_session_in_a_parent_of_the_home_cannot_read_or_write_it(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path, mode: Mode
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        home = claude.crib.home
        secret = home.token_file.read_text(encoding="utf-8").strip()
        (tmp_path / "link").symlink_to(home.root)
        (tmp_path / "notes").hardlink_to(home.token_file)
        evil = 'open("{}", "w").write("owned")'.format(tmp_path / "owned")
        results = await run_calls(
            claude,
            mode,
            tmp_path,
            tool_block("Read", file_path=str(home.token_file)),
            tool_block("Read", file_path=str(tmp_path / "link" / "token")),
            tool_block("Read", file_path=str(tmp_path / "notes")),
            tool_block("Grep", pattern=".", output_mode="content", path=str(tmp_path)),
            tool_block("Glob", pattern="**/token"),
            tool_block("Write", file_path=str(home.tools / "evil.py"), content=evil),
            tool_block(
                "Write", file_path=str(home.settings_file), content='[[rules]]\neffect = "allow"\npattern = "*"\n'
            ),
            bash_block(f"cat {home.token_file}"),
        )

    assert [call.outcome for call in results] == ["denied"] * 8
    assert secret not in claude.tool_results()
    assert not (home.tools / "evil.py").exists()
    assert not home.settings_file.exists()
    assert not (tmp_path / "owned").exists()


async def test_home_is_closed_to_relative_paths(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_claude_crib(tmp_path / "inner", claude_environment, scripted_model) as claude:
        secret = claude.crib.home.token_file.read_text(encoding="utf-8").strip()
        (tmp_path / "inner" / "notes.txt").write_text("noted", encoding="utf-8")
        results = await run_calls(
            claude,
            "bypassPermissions",
            tmp_path,
            bash_block(f"cd {tmp_path / 'inner'}"),
            tool_block("Grep", pattern=".", output_mode="content", path="home"),
            tool_block("Glob", pattern="token", path="home"),
            tool_block("Grep", pattern=".", output_mode="content"),
            tool_block("Read", file_path="home/token"),
            tool_block("Grep", pattern=".", output_mode="content", path="notes.txt"),
        )

    assert [call.outcome for call in results] == ["ran", "denied", "denied", "denied", "denied", "ran"]
    assert "noted" in results[-1].text
    assert secret not in claude.tool_results()


async def test_edits_of_critical_files_need_approval_in_accept_edits(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        decisive = [".git/hooks/pre-commit", ".mcp.json", ".GitHub/workflows/ci.yml", ".vscode/tasks.json"]
        ordinary = ["a.py", "src/Makefile"]
        results = await run_calls(
            claude,
            "acceptEdits",
            claude.project,
            *(
                tool_block("Write", file_path=str(claude.project / name), content="a")
                for name in (*decisive, *ordinary)
            ),
        )

    assert [call.outcome for call in results] == ["asked"] * len(decisive) + ["ran"] * len(ordinary)


async def test_edits_of_the_cribs_own_program_need_approval(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        for file in (toolcrib.__file__, claude_agent_sdk.__file__):
            principal = claude.crib.owner("web", mode="acceptEdits", cwd=str(Path(file).parents[2]))
            agent = replace(principal, by_hand=False)
            edit: JsonObject = {"file_path": str(Path(file).with_name("evil.py")), "content": "a"}
            assert (await claude.crib.why("claude_code/Write", principal=agent, arguments=edit)).verdict == "ask"


async def test_path_that_was_relinked_after_the_approval_is_refused(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        link, harmless, other = (claude.project / name for name in ("link", "harmless", "other"))
        link.symlink_to(harmless)

        async def swap_link_and_approve(crib: Crib, event: SessionEvent) -> None:
            if event.kind == "approval_required":
                link.unlink()
                link.symlink_to(other)
            await approve_all(crib, event)

        prompt = claude.script("all", do(tool_block("Write", file_path=str(link), content="a")), say("Done."))
        async with claude.crib.session(mode="default") as session:
            (call,) = (await claude.send(session.id, prompt, swap_link_and_approve)).calls

    assert call.is_error
    assert "leads elsewhere" in call.text
    assert not other.exists()


async def test_server_tools_refuse_paths_in_the_home(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    servers = {"legacy": upstream("upstreams.legacy", "plain")}
    async with open_claude_crib(tmp_path, claude_environment, scripted_model, servers) as claude:
        evil = str(claude.crib.home.tools / "evil.py")
        paths = (evil, evil.replace("/tools", "/./tools/../tools"), f"file://{evil}", str(claude.project / "home.py"))
        results = await run_calls(
            claude, "bypassPermissions", tmp_path, *(tool_block("mcp__legacy__echo", text=path) for path in paths)
        )
        by_hand = await claude.crib.call("legacy/echo", {"text": evil}, principal=claude.crib.owner("cli"))

    assert [call.outcome for call in results] == ["denied", "denied", "denied", "ran"]
    assert not by_hand.is_error
