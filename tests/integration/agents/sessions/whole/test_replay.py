"""A recorded session of the real Claude Code, replayed in another home without key, network and side effects."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, tool_block
from long_tests import takes_long
from toolcrib import Crib, Settings
from toolcrib.agents.sessions.recording.as_test import module_source
from toolcrib.agents.sessions.recording.recordings import load_recording
from toolcrib.base.settings import Environment
from toolcrib.host.session_replays import ReplayRequest
from toolcrib.model.json import JsonObject
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.runner_rig import do, say

pytestmark = [pytest.mark.anyio, takes_long]


async def record(claude: ClaudeCrib) -> bytes:
    """Return the recording of two prompts with a tool of the crib and one of Claude Code."""
    first = claude.script(
        "first",
        do(tool_block("mcp__lab__change", text="hat"), tool_block("Bash", command="touch made-by-bash")),
        say("Result: {{last_tool_result}}"),
    )
    second = claude.script("second", say("Good bye."))
    async with claude.crib.session(mode="acceptEdits") as session:
        claude.crib.recordings.start(session.id)
        for prompt in (first, second):
            turn = await claude.send(session.id, prompt)
            assert turn.reason == "completed", turn
    return await claude.crib.replays.export(session.id)


def plain(events: list[JsonObject]) -> list[JsonObject]:
    """Return events without the fields that depend on time and session."""
    return [{key: value for key, value in event.items() if key not in ("at", "sessionId")} for event in events]


def other_crib(folder: Path) -> Crib:
    """Return a crib in a home of its own, whose Claude Code has no key and no model."""
    for name in ("user", "project"):
        (folder / name).mkdir(parents=True)
    environment = Environment({**bare_environment(folder / "user"), "IS_SANDBOX": "1"})
    return Crib(Settings(home=folder / "home", default_cwd=folder / "project"), environment=environment, on_time=False)


async def test_sub_agents_are_replayed_with_their_calls(claude: ClaudeCrib, tmp_path: Path) -> None:
    below = claude.script(
        "below",
        do(tool_block("mcp__lab__change", text="hat"), tool_block("Bash", command="touch made-by-bash")),
        say("Below is done."),
    )
    task: JsonObject = {"description": "d", "prompt": below, "subagent_type": "general-purpose"}
    above = claude.script("above", do(tool_block("Agent", **task)), say("Above is done."))
    async with claude.crib.session(mode="acceptEdits") as session:
        claude.crib.recordings.start(session.id)
        turn = await claude.send(session.id, above)
        assert turn.reason == "completed", turn
    recording = await claude.crib.replays.export(session.id)
    requests_before, calls_before = len(claude.model.requests), len(claude.lab.calls)
    async with other_crib(tmp_path / "other") as crib:
        request = ReplayRequest(cwd=str(tmp_path / "other" / "project"))
        outcomes = [await crib.replays.replay(recording, request) for _ in range(2)]
        events = [[event.shape async for event in crib.sessions.transcript(each.session.id)] for each in outcomes]
    assert outcomes[0].failure is None, outcomes[0].failure
    assert outcomes[0].comparison is not None
    assert outcomes[0].comparison.differences == 0, outcomes[0].comparison.to_json()
    assert plain(events[0]) == plain(events[1])
    inner = [event for event in events[0] if event.get("parentToolCallId")]
    assert {event["kind"] for event in inner} >= {"tool_call_start", "tool_result"}
    assert (len(claude.model.requests), len(claude.lab.calls)) == (requests_before, calls_before)
    assert not (tmp_path / "other" / "project" / "made-by-bash").exists()


async def test_session_recorded_in_another_home_is_replayed_without_effects(claude: ClaudeCrib, tmp_path: Path) -> None:
    recording = await record(claude)
    requests_before, calls_before = len(claude.model.requests), len(claude.lab.calls)
    other = tmp_path / "other"
    async with other_crib(other) as crib:
        request = ReplayRequest(cwd=str(other / "project"))
        outcomes = [await crib.replays.replay(recording, request) for _ in range(2)]
        events = [[event.shape async for event in crib.sessions.transcript(each.session.id)] for each in outcomes]
        changed = recording.replace(b"[[script:second]]", b"[[script:second]] But why?", 1)
        missed = await crib.replays.replay(changed, request)
    one = outcomes[0]
    assert one.failure is None, one.failure
    assert one.comparison is not None
    assert one.comparison.differences == 0, one.comparison.to_json()
    assert (len(claude.model.requests), len(claude.lab.calls)) == (requests_before, calls_before)
    assert not (other / "project" / "made-by-bash").exists()
    assert plain(events[0]) == plain(events[1])
    assert missed.failure is not None
    assert missed.failure["code"] == "replay.miss"
    assert "But why?" in missed.failure["message"]


async def test_prompt_after_a_replay_is_answered_live(claude: ClaudeCrib, tmp_path: Path) -> None:
    recording = await record(claude)
    third = claude.script("third", do(tool_block("mcp__lab__change", text="cap")), say("Changed once more."))
    outcome = await claude.crib.replays.replay(recording, ReplayRequest(prompt=third))
    assert outcome.run.texts[-1] == "Changed once more."
    assert claude.lab.calls[-1] == {"text": "cap", "times": 1}
    assert "Good bye." in str(claude.model.bodies[-1]["messages"]), "the replayed history is available"


async def test_exported_test_passes_by_itself(claude: ClaudeCrib, tmp_path: Path) -> None:
    recording = await record(claude)
    (tmp_path / "test_it.jsonl").write_bytes(recording)
    (tmp_path / "test_it.py").write_text(module_source(load_recording(recording)), encoding="utf-8")
    path = os.pathsep.join(sys.path)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_it.py"]
    done = await anyio.run_process(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert json.loads(recording.splitlines()[0])["runner"] == "claude"
