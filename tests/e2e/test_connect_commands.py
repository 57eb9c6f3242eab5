"""`toolcrib connect` at a terminal."""

import json
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from e2e.shell import Serving, Shell
from terminal import at_terminal

CURSOR = '{\n  // mine\n  "mcpServers": {\n    "clock": {"command": "clock-server"}\n  }\n}\n'


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell whose user has Cursor."""
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(CURSOR)
    return Shell.at(tmp_path)


def test_connect_shows_a_diff_and_undo_restores_the_file(shell: Shell) -> None:
    cursor = shell.folder / ".cursor" / "mcp.json"
    with shell.serving() as serving:
        listed = {each["client"]: each["state"] for each in shell.json("connect")}
        assert (listed["cursor"], listed["zed"]) == ("not_connected", "not_installed")
        shown = shell.run("connect", "cursor", "--dry-run")
        assert f'+      "url": "{serving.url}/mcp",' in shown.stdout
        silent = shell.run("connect", "cursor", stdin="")
        assert (silent.returncode, "requires confirmation" in silent.stderr) == (2, True)
        assert serving.url in silent.stderr
        assert cursor.read_text() == CURSOR

        done = shell.run("connect", "cursor", "--yes")
        assert (done.returncode, done.stdout.startswith("Connected Cursor over HTTP")) == (0, True), done.stderr
        assert "toolcrib serve" not in done.stderr
        assert "Nothing to change" in shell.run("connect", "cursor", "--yes").stderr
        listed = shell.run("connect").stdout
        assert ("connected" in listed, "(now)" in listed) == (True, True)
        (token,) = shell.json("tokens", "list")
        assert (token["mode"], token["level"]) == ("default", "ask")
        rules = {each["id"]: each for each in shell.json("rules", "list")}
        assert {each["pattern"] for id, each in rules.items() if id.startswith("tools-")} == {"toolcrib/*", "crew/*"}
        assert len(rules) == 3
        assert shell.run("rules", "remove", "level-connect-cursor").returncode == 1

        back = shell.run("connect", "cursor", "--undo")
        assert (back.returncode, "restored" in back.stdout) == (0, True), back.stderr
        assert cursor.read_text() == CURSOR
        assert shell.json("rules", "list") == []
        assert shell.run("connect", "cursor", "--undo").returncode == 3
        chosen = shell.json("connect", "cursor", "--tools", "chosen", "--tool", "toolcrib/ping", "--yes")
        (offer,) = (each for each in chosen["offers"] if each["tools"] == chosen["tools"])
        assert (offer["tools"], offer["definitions"]) == ("chosen", 1)
        assert shell.run("connect", "cursor", "--tool", "a/b").returncode == 2


def test_connect_all_moves_the_servers_of_every_app(shell: Shell) -> None:
    (shell.folder / ".gemini").mkdir()
    with shell.serving():
        answers = shell.json("connect", "--all", "--move", "--yes")
        assert [(each["client"], each["change"]["changed"]) for each in answers] == [("cursor", True), ("gemini", True)]
        assert [each["name"] for each in answers[0]["moved"]["taken"]] == ["clock"]
        servers = {each["name"]: each for each in shell.json("mcp", "list")}
        assert servers["clock"]["sources"][0]["client"] == "toolcrib"
        assert len(servers["toolcrib"]["sources"]) == 2
        assert [each["exact"] for each in shell.json("connect", "--all", "--undo")] == [True, True]


def test_apps_are_found_on_the_path_of_the_terminal_not_of_the_crib(shell: Shell) -> None:
    program = shell.folder / "bin" / "zed"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    terminal = shell.having(PATH=f"{program.parent}:/usr/bin:/bin")
    with shell.serving():
        assert {each["client"]: each["installed"] for each in terminal.json("connect")}["zed"]
        assert not {each["client"]: each["installed"] for each in shell.json("connect")}["zed"]
        assert terminal.run("connect", "zed", "--yes").returncode == 0
        assert shell.run("connect", "amp", "--yes").returncode == 3


def test_project_connection_refuses_an_access_level(shell: Shell) -> None:
    project = replace(shell, folder=shell.folder / "project")
    project.folder.mkdir()
    with shell.serving():
        refused = project.run("connect", "cursor", "--project", "--level", "ask", "--yes")
        assert (refused.returncode, "cannot have an access level" in refused.stderr) == (2, True)
        assert "toolcrib rules ask '*' --source ide --not-read-only" in refused.stderr
        done = project.run("connect", "cursor", "--project", "--yes")
        assert (done.returncode, "decides which tools run" in done.stderr) == (0, True)


def test_stdio_connection_has_its_level_and_ends_with_its_token(shell: Shell) -> None:
    cursor = shell.folder / ".cursor" / "mcp.json"
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    with shell.serving():
        assert shell.run("connect", "cursor", "--stdio", "--yes").returncode == 0
        plain = cursor.read_text().replace("// mine", "")
        words = json.loads(plain)["mcpServers"]["toolcrib"]["args"]
        (greeted,) = map(json.loads, shell.run(*words, stdin=f"{line}\n").stdout.splitlines())
        assert greeted["result"]["serverInfo"]["name"] == "toolcrib"
        [token] = shell.json("tokens", "list")
        assert (token["name"], token["level"]) == ("connect-cursor", "ask")
        assert shell.run("tokens", "revoke", "connect-cursor").returncode == 0
        (refused,) = map(json.loads, shell.run(*words, stdin=f"{line}\n").stdout.splitlines())
        assert refused["error"]["message"] == "There is no token 'connect-cursor' in use."


def test_connect_failure_names_the_file_it_would_write(shell: Shell) -> None:
    with shell.serving():
        gone = shell.run("connect", "zed", "--yes")
        assert (gone.returncode, ".config/zed/settings.json" in gone.stderr) == (3, True)
        assert shell.run("connect", "notepad", "--yes").returncode == 3
        assert shell.run("connect", "cursor", "--agent", "nobody", "--yes").returncode == 3
    assert shell.run("connect", "cursor", "--all").returncode == 2


def test_connect_without_a_running_crib_uses_the_configured_port(shell: Shell) -> None:
    settled = shell.having(TOOLCRIB_PORT="4300")
    done = settled.run("connect", "cursor", "--yes")
    assert "toolcrib serve" in done.stderr
    assert "http://127.0.0.1:4300/mcp" in (shell.folder / ".cursor" / "mcp.json").read_text()


@pytest.mark.anyio
async def test_connect_all_at_a_terminal_asks_for_each_app_and_its_servers(shell: Shell) -> None:
    (shell.folder / ".gemini").mkdir()
    with shell.serving():
        command = shell.command("connect", "--all")
        async with at_terminal(command, shell.variables, shell.folder) as terminal:
            await terminal.until("Connect Cursor? [y/N]:")
            terminal.enter("y")
            assert "clock-server" in await terminal.until("Move its other server here? [y/N]:")
            terminal.enter("n")
            await terminal.until("Level [ask]:")
            terminal.enter("")
            await terminal.until("Connect Gemini CLI? [y/N]:")
            terminal.enter("")
            await terminal.until("Connected Cursor over HTTP")
            assert await terminal.ended() == 0
    written = (shell.folder / ".cursor" / "mcp.json").read_text()
    assert ('"toolcrib"' in written, '"clock"' in written) == (True, True)
    assert not (shell.folder / ".gemini" / "settings.json").exists()


def set_agent(serving: Serving, project: Shell, agent: str | None) -> None:
    """Set the default agent of the shell's directory."""
    token = Path(project.variables["TOOLCRIB_HOME"], "token").read_text(encoding="ascii").strip()
    body = {"path": str(project.folder), "agentId": agent}
    answer = httpx2.post(f"{serving.url}/api/projects", json=body, headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 201, answer.text


def test_project_connection_acts_as_the_projects_agent_until_undone(shell: Shell) -> None:
    project = replace(shell, folder=shell.folder / "project")
    file = project.folder / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(CURSOR)
    with shell.serving() as serving:
        set_agent(serving, project, "reviewer")
        done = project.run("connect", "cursor", "--project", "--yes")
        assert (done.returncode, "Connected Cursor as reviewer" in done.stdout) == (0, True), done.stderr
        assert "connect cursor --agent reviewer --project --undo" in done.stderr
        assert '"--agent", "reviewer"' in " ".join(file.read_text().split())
        assert "Nothing to change" in project.run("connect", "cursor", "--project", "--yes").stderr
        assert project.json("connect", "cursor", "--dry-run", "--yes")["agent"] is None
        set_agent(serving, project, None)
        assert project.json("connect", "cursor", "--project", "--undo")["exact"] is True
        assert file.read_text() == CURSOR
