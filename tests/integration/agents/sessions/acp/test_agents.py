"""Agents with different habits and faults; each fault ends in an error with a code."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from integration.agents.sessions.acp.host import Scripted, listening
from integration.agents.sessions.acp.turns import create, kinds, only, text, turn
from long_tests import takes_long
from toolcrib import Crib
from toolcrib.agents.sessions.acp import conversation
from toolcrib.model.errors import ConfigError, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.testing import crib as quiet_crib
from toolcrib.testing.processes import descendants

pytestmark = [pytest.mark.anyio, takes_long]

ECHO: JsonObject = {"tool": "mcp__toolcrib__lab_echo", "input": {"text": "a"}}
REPEAT_RESULT: JsonObject = {"blocks": [{"text": "Heard: {{last_tool_result}}"}]}
OpenCrib = Callable[..., AbstractAsyncContextManager[Crib]]


@pytest.fixture
def crib_with(scripted: Scripted, tmp_path: Path, no_leaked_children: None) -> OpenCrib:
    """Return a function that opens a crib whose agent has these habits."""

    @asynccontextmanager
    async def open_crib(*habits: str, more: str = "") -> AsyncGenerator[Crib]:
        scripted.script("echo", [{"blocks": [ECHO]}, REPEAT_RESULT])
        async with listening(tmp_path, toml=scripted.toml(*habits, more=more)) as crib:
            yield crib

    return open_crib


@pytest.mark.parametrize("habit", ["silent", "late"])
async def test_call_announced_late_or_never_has_one_set_of_events(crib_with: OpenCrib, habit: str) -> None:
    async with crib_with(habit) as crib:
        events = await turn(crib, await create(crib), "echo")
    assert kinds(events) == [
        "user_message", "tool_call_start", "tool_call_end", "approval_required", "approval_resolved", "tool_result",
        "text_message", "done",
    ]  # fmt: skip
    start, required = only(events, "tool_call_start"), only(events, "approval_required")
    assert required["toolCallId"] == start["toolCallId"] == only(events, "tool_result")["toolCallId"]


async def test_crashed_agent_reports_stderr_and_the_next_message_continues(
    crib_with: OpenCrib, scripted: Scripted
) -> None:
    scripted.script("die", [{"blocks": [{"tool": "Bash", "input": {"command": "die"}}]}])
    async with crib_with() as crib:
        session = await create(crib, "bypassPermissions")
        await turn(crib, session, "echo")
        died = await turn(crib, session, "die")
        assert only(died, "error")["code"] == "runner.died"
        assert "Out of memory." in only(died, "error")["message"]
        assert "exit code 3" in only(died, "error")["message"]
        assert (await crib.sessions.get(session)).state == "interrupted"
        again = await turn(crib, session, "echo")
        assert "pong a" in text(again)
        assert "Once:" not in str([event.data for event in again])


async def test_killed_agent_ends_its_turn_as_failed(crib_with: OpenCrib, scripted: Scripted) -> None:
    scripted.script("slow", [{"blocks": [{"text": "word " * 500}], "chunk": 5, "chunk_delay_ms": 50}])
    async with crib_with() as crib:
        session = await create(crib)
        log = await crib.sessions.events(session)
        await crib.sessions.send(session, "[[script:slow]]")
        with anyio.fail_after(60):
            async for batch in log.follow(0):
                if any(event.kind == "text_delta" for event in batch):
                    for pid in [pid for pid, name in descendants().items() if name.startswith("python")]:
                        os.kill(pid, signal.SIGKILL)
                if batch[-1].kind == "done":
                    assert batch[-1].data["reason"] == "failed"
                    break
        assert "ended during a turn" in str((await crib.sessions.get(session)).reason)


async def test_agent_that_ignores_a_cancellation_is_terminated(
    crib_with: OpenCrib, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "STOPPING", 0.5)
    scripted.script("slow", [{"blocks": [{"text": "word " * 2000}], "chunk": 5, "chunk_delay_ms": 50}])
    async with crib_with("deaf") as crib:
        session = await create(crib)
        log = await crib.sessions.events(session)
        await crib.sessions.send(session, "[[script:slow]]")
        is_announced = False
        with anyio.fail_after(60):
            async for batch in log.follow(0):
                if not is_announced and any(event.kind == "text_delta" for event in batch):
                    is_announced = True
                    assert await crib.sessions.interrupt(session)
                if batch[-1].kind == "done":
                    assert batch[-1].data["reason"] == "interrupted"
                    break


async def test_agent_without_stored_sessions_cannot_resume(crib_with: OpenCrib) -> None:
    async with crib_with("forgets") as crib:
        session = await create(crib, "acceptEdits")
        await turn(crib, session, "echo")
        await crib.sessions.close(session)
        failed = await turn(crib, session, "echo")
    assert only(failed, "error")["code"] == "runner.cannot_resume"


@pytest.mark.parametrize(
    ("habit", "code", "words"),
    [
        ("locked", "runner.login", "not signed in"),
        ("lonely", "runner.unfit", "does not support MCP servers"),
        ("modern", "runner.unfit", "version 9"),
    ],
)
async def test_unusable_agent_fails_with_a_code_and_a_hint(
    crib_with: OpenCrib, habit: str, code: str, words: str
) -> None:
    async with crib_with(habit) as crib:
        session = await create(crib)
        error = only(await turn(crib, session, "echo"), "error")
        assert (await crib.sessions.get(session)).state == "failed"
    assert error["code"] == code
    assert words in error["message"]
    assert error["hint"]


async def test_agent_mode_is_the_configured_one_and_plan_in_plan_mode(crib_with: OpenCrib, scripted: Scripted) -> None:
    async with crib_with("modes", more='mode = "careful"') as crib:
        session = await create(crib, "acceptEdits")
        await turn(crib, session, "echo")
        assert (scripted.folder / "mode").read_text() == "careful"
        await crib.sessions.change(session, mode="plan")
        await turn(crib, session, "echo")
        assert (scripted.folder / "mode").read_text() == "plan"


async def test_agent_without_the_configured_mode_is_refused(crib_with: OpenCrib) -> None:
    async with crib_with("modes", more='mode = "timid"') as crib:
        error = only(await turn(crib, await create(crib), "echo"), "error")
    assert error["code"] == "runner.unfit"
    assert "careful, plan, yolo" in error["hint"]


async def test_call_that_cannot_be_allowed_once_is_refused(
    crib_with: OpenCrib, scripted: Scripted, tmp_path: Path
) -> None:
    scripted.script("bash", [{"blocks": [{"tool": "Bash", "input": {"command": "touch made"}}]}, REPEAT_RESULT])
    async with crib_with("reckless") as crib:
        await turn(crib, await create(crib, "bypassPermissions"), "bash")
    assert not (tmp_path / "project" / "made").exists()


async def test_missing_agent_has_an_installation_hint_and_a_failed_start_a_code(crib_with: OpenCrib) -> None:
    async with crib_with(more='[runners.broken]\ncommand = ["false"]') as crib:
        missing = only(await turn(crib, await create(crib, runner="codex"), "echo"), "error")
        assert missing["code"] == "runner.missing"
        assert "codex-acp" in missing["message"]
        assert missing["hint"].startswith("npm install")
        broken = only(await turn(crib, await create(crib, runner="broken"), "echo"), "error")
        assert broken["code"] == "runner.start"
        with pytest.raises(NotFound) as unknown:
            await create(crib, runner="unregistered")
        assert "claude, claude-acp, codex, gemini, opencode, scripted" in str(unknown.value.hint).replace(
            "broken, ", ""
        )


async def test_invalid_runner_table_is_an_error_with_its_line(crib_with: OpenCrib) -> None:
    async with crib_with(more='[runners.odd]\ncommand = "npx thing"') as crib:
        with pytest.raises(ConfigError) as raised:
            await create(crib, runner="odd")
    assert raised.value.code == "runner.invalid"
    assert "line 3" in raised.value.message


async def test_crib_that_does_not_listen_is_an_error(scripted: Scripted) -> None:
    async with quiet_crib() as crib:
        crib.home.settings_file.write_text(scripted.toml(), encoding="utf-8")
        error = only(await turn(crib, await create(crib), "echo"), "error")
    assert error["code"] == "runner.not_listening"


async def test_instructions_precede_only_the_first_message(crib_with: OpenCrib, scripted: Scripted) -> None:
    async with crib_with() as crib:
        session = await create(crib, "acceptEdits")
        await turn(crib, session, "echo")
        await turn(crib, session, "echo")
        runtime = (await crib.sessions.get(session)).runtime
    history = (scripted.folder / f"{runtime}.json").read_text()
    assert history.count("<instructions>") == 1
    assert "issued to you by Toolcrib" in history
