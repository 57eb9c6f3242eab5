"""A session of the real Claude Code, recorded in one home and replayed in another, without key, network and effects."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from integration.agents.sessions.whole.workshop import Workshop, use
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


async def record(workshop: Workshop) -> bytes:
    """A recorded session: a tool of the crib, one of Claude Code itself, and a second prompt."""
    first = workshop.script(
        "first",
        do(use("mcp__lab__change", text="hat"), use("Bash", command="touch made-by-bash")),
        say("It says: {{last_tool_result}}"),
    )
    second = workshop.script("second", say("Good bye."))
    async with workshop.crib.session(mode="acceptEdits") as session:
        workshop.crib.recordings.start(session.id)
        for prompt in (first, second):
            turn = await workshop.say(session.id, prompt)
            assert turn.reason == "completed", turn
    return await workshop.crib.replays.export(session.id)


def plain(events: list[JsonObject]) -> list[JsonObject]:
    """Events without what depends on the time or the session."""
    return [{key: value for key, value in event.items() if key not in ("at", "sessionId")} for event in events]


def other_crib(folder: Path) -> Crib:
    """A crib in a home of its own, whose Claude Code has no key and no model."""
    for name in ("user", "project"):
        (folder / name).mkdir(parents=True)
    environment = Environment({**bare_environment(folder / "user"), "IS_SANDBOX": "1"})
    return Crib(Settings(home=folder / "home", default_cwd=folder / "project"), environment=environment, on_time=False)


async def test_sub_agents_are_replayed_with_their_calls(workshop: Workshop, tmp_path: Path) -> None:
    below = workshop.script(
        "below",
        do(use("mcp__lab__change", text="hat"), use("Bash", command="touch made-by-bash")),
        say("Below is done."),
    )
    task: JsonObject = {"description": "d", "prompt": below, "subagent_type": "general-purpose"}
    above = workshop.script("above", do(use("Agent", **task)), say("Above is done."))
    async with workshop.crib.session(mode="acceptEdits") as session:
        workshop.crib.recordings.start(session.id)
        turn = await workshop.say(session.id, above)
        assert turn.reason == "completed", turn
    recording = await workshop.crib.replays.export(session.id)
    asked, noted = len(workshop.model.requests), len(workshop.lab.noted)
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
    assert (len(workshop.model.requests), len(workshop.lab.noted)) == (asked, noted)
    assert not (tmp_path / "other" / "project" / "made-by-bash").exists()


async def test_session_recorded_on_another_home_is_replayed_equally_and_without_effects(
    workshop: Workshop, tmp_path: Path
) -> None:
    recording = await record(workshop)
    asked, noted = len(workshop.model.requests), len(workshop.lab.noted)
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
    assert (len(workshop.model.requests), len(workshop.lab.noted)) == (asked, noted)
    assert not (other / "project" / "made-by-bash").exists()
    assert plain(events[0]) == plain(events[1])
    assert missed.failure is not None
    assert missed.failure["code"] == "replay.miss"
    assert "But why?" in missed.failure["message"]


async def test_another_prompt_after_a_replay_is_answered_live_by_the_resumed_conversation(
    workshop: Workshop, tmp_path: Path
) -> None:
    recording = await record(workshop)
    third = workshop.script("third", do(use("mcp__lab__change", text="cap")), say("Changed once more."))
    outcome = await workshop.crib.replays.replay(recording, ReplayRequest(prompt=third))
    assert outcome.run.texts[-1] == "Changed once more."
    assert workshop.lab.noted[-1] == {"text": "cap", "times": 1}
    assert "Good bye." in str(workshop.model.bodies[-1]["messages"]), "it remembers what was replayed"


async def test_exported_test_passes_by_itself(workshop: Workshop, tmp_path: Path) -> None:
    recording = await record(workshop)
    (tmp_path / "test_it.jsonl").write_bytes(recording)
    (tmp_path / "test_it.py").write_text(module_source(load_recording(recording)), encoding="utf-8")
    path = os.pathsep.join(sys.path)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_it.py"]
    done = await anyio.run_process(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert json.loads(recording.splitlines()[0])["runner"] == "claude"
