"""What a start imports before it is ready: each module costs every start, also those that do not use it."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.shell import LIMIT, Shell

MARK = "imports "
PROBE = f"""
import sys

class Imports:
    @staticmethod
    def find_spec(name, path, target=None):
        print("{MARK}" + name, file=sys.stderr, flush=True)

sys.meta_path.insert(0, Imports)
from toolcrib.cli.entry import run
run()
"""
HTTP_CLIENTS = {
    "httpx2", "httpcore2", "toolcrib.upstream.http.handshake", "toolcrib.upstream.oauth.sign_in",
    "toolcrib.upstream.oauth.token_refresh",
}  # fmt: skip
FILES = {
    "ruamel.yaml", "tomlkit", "toolcrib.servers.transfer", "toolcrib.servers.export", "toolcrib.servers.dangers",
    "toolcrib.servers.apps.apps", "toolcrib.servers.registry.registry",
    "toolcrib.servers.secrets.definition_secrets",
}  # fmt: skip
SERVE = HTTP_CLIENTS | FILES | {
    "mcp", "alembic", "psycopg", "rich", "pydantic_monty",
    "toolcrib.agents.sessions.acp.runtime", "toolcrib.agents.sessions.claude.runtime",
    "toolcrib.agents.notify.web_push", "toolcrib.agents.sessions.recording.model_endpoint",
    "toolcrib.agents.symbols.index", "toolcrib.agents.zoo.input", "toolcrib.gate.approvals.display",
    "toolcrib.gate.policy.explain", "toolcrib.gate.search.search", "toolcrib.host.session_replays",
    "toolcrib.host.telemetry.otlp.exporter", "toolcrib.host.telemetry.prometheus", "toolcrib.web.api.routes",
    "toolcrib.web.console.app",
}  # fmt: skip
LIST = HTTP_CLIENTS | FILES | {
    "asyncio", "fastapi", "keyring", "pydantic", "rich", "sqlalchemy", "starlette", "toolcrib.host", "toolcrib.web",
    "uvicorn",
}  # fmt: skip
HELP = LIST | {"anyio", "toolcrib.base.settings"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell.at(tmp_path)


def imports(shell: Shell, *arguments: str, until: str | None = None) -> set[str]:
    """What a command imports, to its end or until it prints a line with this word."""
    with subprocess.Popen(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=shell.folder,
        env=shell.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        found: set[str] = set()
        for line in process.stdout:
            if line.startswith(MARK):
                found.add(line.removeprefix(MARK).strip())
            elif until is not None and until in line:
                process.terminate()
                process.communicate(timeout=LIMIT)
                return found
        assert process.wait(LIMIT) == 0
        assert until is None
        return found


def test_crib_is_ready_before_it_imports_what_few_starts_use(shell: Shell) -> None:
    found = imports(shell, "serve", "--json", until='"ready"')
    assert "toolcrib.web.run" in found
    assert sorted(found & SERVE) == []


def test_list_without_a_crib_imports_neither_pydantic_nor_an_event_loop(shell: Shell) -> None:
    found = imports(shell, "mcp", "list", "--json")
    assert "toolcrib.cli.mcp.offline" in found
    assert sorted(found & LIST) == []


def test_help_imports_commands_only(shell: Shell) -> None:
    found = imports(shell, "--help")
    assert "toolcrib.cli.mcp.commands" in found
    assert sorted(found & HELP) == []
