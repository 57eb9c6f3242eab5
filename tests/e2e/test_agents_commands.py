"""`toolcrib agents` beside a running crib, as text and as JSON."""

import json
from collections.abc import Generator

import pytest

from e2e.shell import Shell

FIRST = "You are now Code Wizard. Use agentId=code-wizard for all agent_zoo tool usage."
SUBAGENT = "---\nname: helper\ndescription: Helps.\ntools: Read\n---\nHelp.\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """Run a crib that commands join."""
    person = Shell.at(tmp_path_factory.mktemp("zoo"))
    with person.serving():
        yield person


def output_of(shell: Shell, *arguments: str, stdin: str | None = None) -> str:
    """Run a command, which must succeed, and return its output."""
    done = shell.run("agents", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def code(shell: Shell, *arguments: str) -> int:
    """Run a command, which must fail with a message and without a traceback, and return its exit code."""
    done = shell.run("agents", *arguments)
    assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode


def test_agent_is_created_edited_injected_compared_restored_and_deleted(shell: Shell) -> None:
    created = output_of(shell, "create", "--name", "Code Wizard", "--prompt-file", "-", stdin="Be concise.\n")
    assert created == "Created code-wizard (Code Wizard), version 1.\n"
    assert output_of(shell, "inject", "code-wizard") == f"{FIRST}\n\nBe concise.\n"
    skills = {"skills": [{"id": "ts", "name": "TS", "description": "Strict.", "enabled": False}]}
    (shell.folder / "skills.json").write_text(json.dumps(skills), encoding="utf-8")
    output_of(shell, "edit", "code-wizard", "--file", "skills.json", "--enable", "ts", "--tool", "git/*", "--brain")
    shown = shell.json("agents", "show", "code-wizard")
    assert (shown["skills"][0]["enabled"], shown["includeBrain"]) == (True, True)
    assert (shown["toolPermissions"], shown["version"]) == (["git/*"], 3)
    assert output_of(shell, "inject", "code-wizard").endswith("---\n\n## Active Skills\n\n### TS\nStrict.\n")
    assert json.loads(output_of(shell, "inject", "code-wizard", "--format", "structured"))["skills"][0]["id"] == "ts"
    words = output_of(shell, "show", "code-wizard")
    assert "tools:   git/*" in words
    assert "tokens (estimate)" in words
    assert "code-wizard  Code Wizard" in output_of(shell, "list")
    history = output_of(shell, "history", "code-wizard")
    assert [line.split()[:2] for line in history.splitlines()[1:]] == [
        ["3", "changed"],
        ["2", "changed"],
        ["1", "created"],
    ]
    assert '+      "enabled": true' in output_of(shell, "history", "code-wizard", "3")
    assert "version 4" in output_of(shell, "restore", "code-wizard", "1")
    assert output_of(shell, "delete", "code-wizard").startswith("Deleted code-wizard.")
    assert code(shell, "show", "code-wizard") == 3
    assert "version 6" in output_of(shell, "restore", "code-wizard", "4")


def test_file_with_a_stale_version_is_refused(shell: Shell) -> None:
    before = shell.json("agents", "show", "tester")
    (shell.folder / "tester.json").write_text(json.dumps(before), encoding="utf-8")
    output_of(shell, "edit", "tester", "--description", "New.", "--listing", "search", "--tool-tokens", "4000")
    assert code(shell, "edit", "tester", "--file", "tester.json") == 1
    after = shell.json("agents", "show", "tester")
    assert (after["description"], after["listing"], after["toolTokens"]) == ("New.", "search", 4000)


def test_agent_is_cloned_and_created_from_a_template(shell: Shell) -> None:
    assert "mine (My Writer)" in output_of(shell, "clone", "writer", "--name", "My Writer", "--id", "mine")
    created = shell.json("agents", "create", "--name", "Scribe", "--template", "writer")
    assert created["systemPrompt"] == shell.json("agents", "show", "writer")["systemPrompt"]


def test_agents_are_imported_from_files_and_folders_and_exported(shell: Shell) -> None:
    folder = shell.folder / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.md").write_text(SUBAGENT, encoding="utf-8")
    (folder / "broken.md").write_text("nothing", encoding="utf-8")
    assert "would import helper (helper)" in output_of(shell, "import", str(folder), "--dry-run")
    done = shell.run("agents", "import", str(folder))
    assert done.stdout == "took helper (helper)\n"
    assert "broken.md: The file is neither JSON nor Markdown" in done.stderr
    assert "tools: Read\n---\n\nHelp.\n" in output_of(shell, "export", "helper", "--format", "claude")
    out = shell.folder / "out"
    assert output_of(shell, "export", "helper", "--format", "claude", "--output", str(out)) == (
        f"wrote {out}/.claude/agents/helper.md\n"
    )
    assert code(shell, "export", "helper", "--format", "claude", "--output", str(out)) == 2
    exported = output_of(shell, "export", "helper")
    assert "took helper-2" in output_of(shell, "import", "-", stdin=exported)
    skill = shell.folder / "pdf" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("---\nname: pdf\ndescription: Fill.\n---\nBody.", encoding="utf-8")
    assert output_of(shell, "import", str(skill), "--agent", "helper") == "took skill pdf into helper\n"
    assert "# pdf/SKILL.md" not in output_of(shell, "export", "helper", "--format", "skills")


def test_failed_agents_command_has_a_distinct_exit_code(shell: Shell) -> None:
    assert code(shell, "create") == 2
    assert code(shell, "create", "--name", "x", "--mode", "yolo") == 2
    assert code(shell, "create", "--name", "x", "--id", "writer") == 1
    assert code(shell, "edit", "writer") == 2
    assert code(shell, "inject", "nobody") == 3
    assert code(shell, "inject", "writer", "--format", "xml") == 2
    assert code(shell, "export", "writer", "--format", "xml") == 2
    assert code(shell, "import", "no-such-file.md") == 2
    assert code(shell, "import", "x.md", "--agent", "nobody") in (2, 3)
    assert code(shell, "restore", "writer", "99") == 3
    assert shell.run("agents", "import", "-", stdin="nothing").returncode == 1
