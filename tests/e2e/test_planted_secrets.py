"""Secrets of a server's definition in what commands print, and in the log at its most detailed level."""

import json
import sys
from pathlib import Path

from e2e.shell import LIMIT, Shell
from integration.host.test_planted_secrets import GOSSIP, HEADER, KEYRING, VARIABLE
from long_tests import takes_long

ARGUMENT = "walnut lynx 7741 softly"
COMMANDS = (
    "mcp list",
    "mcp get gossip",
    "mcp get remote",
    "mcp test gossip",
    "mcp test remote",
    "mcp secrets",
    "audit",
)


@takes_long
def test_no_command_and_no_debug_log_prints_a_secret(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path).having(TOOLCRIB_LOG_LEVEL="debug")
    program = tmp_path / "gossip.py"
    program.write_text(GOSSIP)
    variables = {"SERVICE_PASSWORD": VARIABLE, "STORED_PASSWORD": "${keyring:PLANTED}"}
    words = ["-S", str(program), "--password", ARGUMENT]
    remote = {"url": f"http://127.0.0.1:9/mcp?api_key={HEADER}", "headers": {"Authorization": f"Bearer {HEADER}"}}
    servers = {"gossip": {"command": sys.executable, "args": words, "env": variables}, "remote": remote}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    printed: dict[str, str] = {}
    with shell.serving() as serving:
        assert shell.run("mcp", "secrets", "set", "PLANTED", stdin=KEYRING).returncode == 0
        assert shell.run("mcp", "test", "gossip").returncode == 0
        result = shell.run("tools", "call", "gossip/gossip", json.dumps({"said": VARIABLE}))
        assert VARIABLE in result.stdout  # results are not masked, so the server has the secret
        for command in COMMANDS:
            done = shell.run(*command.split(), "--json")
            assert done.returncode in (0, 1, 4, 5), (command, done.stderr)
            printed[command] = done.stdout + done.stderr
        serving.process.terminate()
        printed["log"] = "".join(serving.process.communicate(timeout=LIMIT))
    secrets = {"variable": VARIABLE, "keyring": KEYRING, "header": HEADER, "argument": ARGUMENT}
    assert [(name, place) for place, text in printed.items() for name, each in secrets.items() if each in text] == []
    assert " DEBUG " in printed["log"]
