"""`toolcrib agents` as a person uses it: beside a crib that runs, in words and in JSON."""

import json
from collections.abc import Generator

import pytest

from e2e.shell import Shell

FIRST = "You are now Code Wizard. Use agentId=code-wizard for all agent_zoo tool usage."
SUBAGENT = "---\nname: helper\ndescription: Helps.\ntools: Read\n---\nHelp.\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """A person beside a crib that runs, which commands join."""
    person = Shell.at(tmp_path_factory.mktemp("zoo"))
    with person.serving():
        yield person


def said(shell: Shell, *arguments: str, stdin: str | None = None) -> str:
    """What a command says; it has to succeed."""
    done = shell.run("agents", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def code(shell: Shell, *arguments: str) -> int:
    """The exit code of a command that fails with words and without a trace."""
    done = shell.run("agents", *arguments)
    assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode


def test_an_agent_is_made_changed_injected_compared_and_deleted(shell: Shell) -> None:
    made = said(shell, "create", "--name", "Code Wizard", "--prompt-file", "-", stdin="Be concise.\n")
    assert made == "Created code-wizard (Code Wizard), version 1.\n"
    assert said(shell, "inject", "code-wizard") == f"{FIRST}\n\nBe concise.\n"
    skills = {"skills": [{"id": "ts", "name": "TS", "description": "Strict.", "enabled": False}]}
    (shell.folder / "skills.json").write_text(json.dumps(skills), encoding="utf-8")
    said(shell, "edit", "code-wizard", "--file", "skills.json", "--enable", "ts", "--tool", "git/*", "--brain")
    shown = shell.json("agents", "show", "code-wizard")
    assert (shown["skills"][0]["enabled"], shown["includeBrain"]) == (True, True)
    assert (shown["toolPermissions"], shown["version"]) == (["git/*"], 3)
    assert said(shell, "inject", "code-wizard").endswith("---\n\n## Active Skills\n\n### TS\nStrict.\n")
    assert json.loads(said(shell, "inject", "code-wizard", "--format", "structured"))["skills"][0]["id"] == "ts"
    words = said(shell, "show", "code-wizard")
    assert "tools:   git/*" in words
    assert "tokens (estimate)" in words
    assert "code-wizard  Code Wizard" in said(shell, "list")
    history = said(shell, "history", "code-wizard")
    assert [line.split()[:2] for line in history.splitlines()[1:]] == [
        ["3", "changed"],
        ["2", "changed"],
        ["1", "created"],
    ]
    assert '+      "enabled": true' in said(shell, "history", "code-wizard", "3")
    assert "version 4" in said(shell, "restore", "code-wizard", "1")
    assert said(shell, "delete", "code-wizard").startswith("Deleted code-wizard.")
    assert code(shell, "show", "code-wizard") == 3
    assert "version 6" in said(shell, "restore", "code-wizard", "4")


def test_a_stale_version_in_a_file_is_refused(shell: Shell) -> None:
    before = shell.json("agents", "show", "tester")
    (shell.folder / "tester.json").write_text(json.dumps(before), encoding="utf-8")
    said(shell, "edit", "tester", "--description", "New.", "--listing", "search", "--tool-tokens", "4000")
    assert code(shell, "edit", "tester", "--file", "tester.json") == 1
    after = shell.json("agents", "show", "tester")
    assert (after["description"], after["listing"], after["toolTokens"]) == ("New.", "search", 4000)


def test_an_agent_is_cloned_and_made_from_a_template(shell: Shell) -> None:
    assert "mine (My Writer)" in said(shell, "clone", "writer", "--name", "My Writer", "--id", "mine")
    made = shell.json("agents", "create", "--name", "Scribe", "--template", "writer")
    assert made["systemPrompt"] == shell.json("agents", "show", "writer")["systemPrompt"]


def test_agents_are_taken_from_files_and_folders_and_written_back(shell: Shell) -> None:
    folder = shell.folder / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.md").write_text(SUBAGENT, encoding="utf-8")
    (folder / "broken.md").write_text("nothing", encoding="utf-8")
    assert "would import helper (helper)" in said(shell, "import", str(folder), "--dry-run")
    done = shell.run("agents", "import", str(folder))
    assert done.stdout == "took helper (helper)\n"
    assert "broken.md: The file is neither JSON nor Markdown" in done.stderr
    assert "tools: Read\n---\n\nHelp.\n" in said(shell, "export", "helper", "--format", "claude")
    out = shell.folder / "out"
    assert said(shell, "export", "helper", "--format", "claude", "--output", str(out)) == (
        f"wrote {out}/.claude/agents/helper.md\n"
    )
    assert code(shell, "export", "helper", "--format", "claude", "--output", str(out)) == 2
    exported = said(shell, "export", "helper")
    assert "took helper-2" in said(shell, "import", "-", stdin=exported)
    skill = shell.folder / "pdf" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("---\nname: pdf\ndescription: Fill.\n---\nBody.", encoding="utf-8")
    assert said(shell, "import", str(skill), "--agent", "helper") == "took skill pdf into helper\n"
    assert "# pdf/SKILL.md" not in said(shell, "export", "helper", "--format", "skills")


def test_what_cannot_be_done_is_said_with_its_exit_code(shell: Shell) -> None:
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
