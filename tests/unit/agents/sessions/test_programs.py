"""Agents in the settings file: invalid tables are reported with their line; each agent gets only its own variables."""

from pathlib import Path

import pytest

from toolcrib.agents.sessions.programs import BUILT_IN, Program, Programs, read_programs
from toolcrib.model.errors import ConfigError


def test_four_built_in_agents_ask_before_they_act() -> None:
    assert sorted(BUILT_IN) == ["claude-acp", "codex", "gemini", "opencode"]
    assert all(program.mode or "ask" in str(program.env) for program in BUILT_IN.values())


def test_table_defines_the_command_mode_and_environment_of_an_agent() -> None:
    text = """
[runners.mine]
command = ["node", "a b.js"]
env = { COLOR = "no" }
variables = ["MY_KEY", "THEIR_*"]
mode = "careful"
"""
    program = read_programs(text, "f").programs["mine"]
    assert (program.command, program.mode, program.dialect) == (("node", "a b.js"), "careful", "plain")
    given = {"MY_KEY": "1", "MY_KEYS": "2", "THEIR_A": "3", "OTHER": "4", "LANG": "C", "COLOR": "yes"}
    assert program.environment(given) == {"MY_KEY": "1", "THEIR_A": "3", "LANG": "C", "COLOR": "no"}


def test_table_of_a_known_agent_overrides_only_the_given_keys() -> None:
    text = '[runners.claude-acp]\ncommand = ["here"]\n[runners.two]\nlike = "gemini"\n'
    read = read_programs(text, "f")
    known = BUILT_IN["claude-acp"]
    changed = read.programs["claude-acp"]
    assert (changed.command, changed.env, changed.dialect, changed.mode) == (("here",), known.env, "claude", "default")
    assert read.programs["two"].command == BUILT_IN["gemini"].command
    assert read.wrong == {}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[runners.x]\n", "`command` must be a list of strings"),
        ('[runners.x]\ncommand = "npx thing"\n', "`command` must be a list of strings"),
        ('[runners.x]\ncommand = ["a"]\nenv = { A = 1 }\n', "`env` must be a table of strings"),
        ('[runners.x]\ncommand = ["a"]\nvariables = ["A B"]\n', "`variables`"),
        ('[runners.x]\ncommand = ["a"]\ncomand = ["a"]\n', "did you mean `command`?"),
        ('[runners.x]\nlike = "cursor"\ncommand = ["a"]\n', "`like` must be one of"),
        ('[runners]\nx = "a"\n', "It must be a table"),
    ],
)
def test_invalid_table_is_a_problem_with_its_line(table: str, words: str) -> None:
    read = read_programs(f"port = 1\n{table}", "f.toml")
    problem = read.wrong["x"]
    assert words in problem.message
    assert (problem.code, problem.file) == ("runner.invalid", "f.toml")
    assert problem.line == (3 if table.startswith("[runners]") else 2)
    assert read.programs == {}


def test_name_of_the_claude_runtime_is_reserved() -> None:
    assert "claude" in read_programs('[runners.claude]\ncommand = ["a"]\n', "f").wrong


def test_changes_of_the_settings_file_take_effect_at_once(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.toml"
    programs = Programs(file)
    assert programs.find("mine") is None
    assert programs.find("codex") == BUILT_IN["codex"]
    file.write_text('[runners.mine]\ncommand = ["a"]\n', encoding="utf-8")
    assert programs.find("mine") == Program("mine", ("a",))
    assert programs.names() == ["claude-acp", "codex", "gemini", "mine", "opencode"]
    file.write_text("[runners.mine]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"toolcrib.toml, line 1"):
        programs.find("mine")
    file.write_text("[runners", encoding="utf-8")
    assert programs.find("mine") is None


def test_environment_of_an_enclosing_claude_session_is_not_passed_on() -> None:
    given = {
        "CLAUDE_CODE_SESSION_ID": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_API_KEY": "o",
    }
    passed = BUILT_IN["claude-acp"].environment(given)
    assert passed["ANTHROPIC_API_KEY"] == "k"
    assert not passed.keys() & {"CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "OPENAI_API_KEY"}
