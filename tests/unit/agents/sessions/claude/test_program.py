"""Claude Code as a program: its environment, its wrapper and its conversations."""

import stat
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from toolcrib.agents.sessions.claude.launch import KEPT
from toolcrib.agents.sessions.claude.options import Start, permission_mode
from toolcrib.agents.sessions.claude.program import cli_variables, has_kept, write_wrapper
from toolcrib.agents.sessions.runtime import Brief

USER = {"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "XDG_CONFIG_HOME": "/x", "https_proxy": "http://proxy"}
OF_CLAUDE = {"ANTHROPIC_API_KEY": "k", "CLAUDE_CONFIG_DIR": "/c", "DISABLE_COMPACT": "1", "MAX_THINKING_TOKENS": "5"}
OF_OTHERS = {
    "TOOLCRIB_HOME": "/crib", "DATABASE_URL": "d", "GITHUB_TOKEN": "t", "OPENAI_API_KEY": "o", "SSH_AUTH_SOCK": "/s",
    "LD_PRELOAD": "/evil.so", "NODE_OPTIONS": "--require=/evil.js", "BASH_ENV": "/evil.sh", "CLAUDECODE": "1",
}  # fmt: skip
OF_ANOTHER_SESSION = {"CLAUDE_CODE_SESSION_ID": "1", "CLAUDE_CODE_MESSAGING_TOKEN": "t", "CLAUDE_PID": "7"}
CLOUD = {"AWS_SECRET_ACCESS_KEY": "a", "GOOGLE_APPLICATION_CREDENTIALS": "g"}


def passed_names(environment: dict[str, str]) -> set[str]:
    """Return the names of the variables that are passed on."""
    variables = cli_variables(environment)
    assert set(variables.pop(KEPT).split(",")) == set(variables), "the wrapper gets all names and no others"
    return set(variables) & set(environment)


def test_only_variables_of_the_user_and_of_claude_are_passed_on() -> None:
    assert passed_names({**USER, **OF_CLAUDE, **OF_OTHERS, **OF_ANOTHER_SESSION, **CLOUD}) == {*USER, *OF_CLAUDE}


def test_cloud_credentials_are_passed_on_only_for_models_of_that_cloud() -> None:
    assert passed_names({**CLOUD, "CLAUDE_CODE_USE_BEDROCK": "1"}) == {
        "AWS_SECRET_ACCESS_KEY",
        "CLAUDE_CODE_USE_BEDROCK",
    }
    assert passed_names({**CLOUD, "CLAUDE_CODE_USE_VERTEX": ""}) == {"CLAUDE_CODE_USE_VERTEX"}


def test_required_variables_override_those_of_the_user() -> None:
    variables = cli_variables({"ENABLE_TOOL_SEARCH": "false", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "0"})
    assert variables["ENABLE_TOOL_SEARCH"] == "true"
    assert variables["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh")
def test_wrapper_runs_the_program_with_only_the_named_variables(tmp_path: Path) -> None:
    cli = tmp_path / "it's a cli"
    cli.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\nenv\n', encoding="utf-8")
    cli.chmod(0o700)
    folder = tmp_path / "a folder"
    wrapper = write_wrapper(folder, cli)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(wrapper.stat().st_mode) == 0o700
    assert write_wrapper(folder, cli) == wrapper
    assert [file.name for file in folder.iterdir()] == ["claude"]
    variables = {KEPT: "KEPT_ONE,PATH", "KEPT_ONE": "1", "SECRET": "2", "PWD": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [wrapper, "an argument", "$(id)"], env=variables, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.splitlines()[:2] == ["an argument", "$(id)"]
    given = {line.partition("=")[0] for line in done.stdout.splitlines()[2:]}
    assert {"KEPT_ONE", "PATH", "PWD"} <= given
    assert not {"SECRET", KEPT} & given


def test_conversation_is_found_in_any_project_directory(tmp_path: Path) -> None:
    id = str(uuid4())
    folder = tmp_path / "projects" / "-some-where"
    folder.mkdir(parents=True)
    transcript = folder / f"{id}.jsonl"
    transcript.write_text('{"type":"mode","mode":"normal"}\n', encoding="utf-8")
    (tmp_path / "x.jsonl").touch()
    assert not has_kept({"CLAUDE_CONFIG_DIR": str(tmp_path)}, id), "it has no message yet"
    transcript.write_text('{"type":"mode"}\n{"type":"user","message":{}}\n', encoding="utf-8")
    assert has_kept({"CLAUDE_CONFIG_DIR": str(tmp_path)}, id)
    assert not has_kept({"CLAUDE_CONFIG_DIR": str(tmp_path)}, str(uuid4()))
    assert not has_kept({"CLAUDE_CONFIG_DIR": str(tmp_path)}, "../x")
    assert not has_kept({"HOME": str(tmp_path)}, id)


def brief(resume: str | None = None, *, fork: bool = False) -> Brief:
    return Brief("s", "/", "default", "", (), (), resume=resume, fork=fork)


def test_start_begins_resumes_or_forks_a_conversation() -> None:
    old = str(uuid4())
    new = Start.of(brief(), is_kept=False)
    assert (new.resume, new.is_fork) == (None, False)
    assert Start.of(brief(), is_kept=False).runtime != new.runtime
    assert Start.of(brief(old), is_kept=True) == Start(old, old)
    assert Start.of(brief(old), is_kept=False) == Start(old)
    copy = Start.of(brief(old, fork=True), is_kept=True)
    assert (copy.resume, copy.is_fork) == (old, True)
    lost = Start.of(brief(old, fork=True), is_kept=False)
    assert old not in (copy.runtime, lost.runtime)
    assert (lost.resume, lost.is_fork) == (None, False)


def test_claude_code_never_gets_a_mode_that_skips_permissions() -> None:
    modes = [permission_mode(mode) for mode in ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")]
    assert modes == ["default", "default", "plan", "default", "default"]
