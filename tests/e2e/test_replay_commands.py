"""The recording commands with the real Claude Code: recorded in one home, replayed in another home without a model."""

import json
import os
import subprocess
import sys
from pathlib import Path

from e2e.shell import Shell
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.testing.environments import bare_environment, claude_environment
from toolcrib.testing.scripted_model.server import ScriptedModel

SCRIPT: JsonObject = {
    "default": [
        {"blocks": [{"tool": "mcp__toolcrib__list_servers", "input": {}}]},
        {"blocks": [{"text": "There is one."}]},
    ]
}


def person(folder: Path, model: str | None) -> Shell:
    """Return a shell with an empty home, whose Claude Code uses this model, or none."""
    folder.mkdir()
    own = bare_environment(folder) if model is None else claude_environment(folder, model)
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    home = {"TOOLCRIB_HOME": str(folder / "crib"), "TOOLCRIB_PORT": "0", "PATH": path, "IS_SANDBOX": "1"}
    kept = {
        name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ
    }  # so that commands import the tree under test
    return Shell(folder, {**own, **kept, **home})


def run(shell: Shell, *words: str) -> str:
    done = shell.run(*words)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def sessions(shell: Shell) -> list[str]:
    return [session["id"] for session in json.loads(run(shell, "sessions", "list", "--json"))]


def events(shell: Shell, session: str) -> list[JsonObject]:
    """Return the exported events without their times and the session's id."""
    lines = run(shell, "sessions", "export", session, "--json").replace(session, "ID").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "at"} for line in lines]


@takes_long
def test_recording_is_replayed_in_another_home_and_becomes_a_test(tmp_path: Path) -> None:
    with ScriptedModel(SCRIPT) as model:
        one, two = person(tmp_path / "one", model.url), person(tmp_path / "two", None)
        file = str(tmp_path / "talk.jsonl")
        with one.serving("--no-open"), two.serving("--no-open"):
            run(one, "chat", "--record", "--mode", "acceptEdits", "Which servers are there?")
            (recorded,) = sessions(one)
            run(one, "sessions", "export", recorded, "--recording", "--output", file)
            asked = len(model.requests)
            for more in ((), (), ("--live-tools",)):
                assert "completed.\n0 differences" in run(two, "sessions", "replay", file, *more)
            assert len(model.requests) == asked
            _, second, first = sessions(two)
            assert events(two, first) == events(two, second)
            assert "0 differences" in run(two, "sessions", "compare", first, second)
            assert "interrupted" in run(two, "sessions", "replay", file, "--until", "4")
            assert "0 differences" in run(one, "sessions", "replay", recorded, "--live-model")
            assert len(model.requests) > asked
            fork = run(one, "sessions", "replay", recorded, "--until", "6", "--prompt", "And now?")
            assert "prompt: And now?" in fork
            simulated = run(one, "rules", "simulate", "--session", recorded, "--add", "deny toolcrib/*")
            assert "allow → hidden" in simulated
            run(one, "sessions", "export", recorded, "--as-test", "--output", str(tmp_path / "test_talk.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_talk.py"]
    environment = {name: value for name, value in two.variables.items() if name != "TOOLCRIB_HOME"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
