"""`toolcrib mcp list` without a running crib reads files, starts no host, and is fast."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.shell import LIMIT, Shell
from long_tests import takes_long

TESTS = Path(__file__).parents[1]
_PROBE = """
import sys
from toolcrib.cli.main import run
sys.argv = ["toolcrib", "mcp", "list", "--json"]
try:
    run()
finally:
    loaded = [name for name in ("toolcrib.host", "toolcrib.web", "fastapi", "sqlalchemy") if name in sys.modules]
    print(loaded, file=sys.stderr)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell. No crib runs."""
    return Shell.at(tmp_path)


def add_lab(shell: Shell) -> None:
    """Configure a server that can connect."""
    entry = {"command": sys.executable, "args": ["-m", "upstreams.changing_tools"], "env": {"PYTHONPATH": str(TESTS)}}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": {"lab": entry}}), encoding="utf-8")


def test_list_without_a_crib_loads_no_host(shell: Shell) -> None:
    (shell.folder / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        cwd=shell.folder,
        env=shell.variables,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert [server["name"] for server in json.loads(done.stdout)] == ["a"]
    assert done.stderr.splitlines()[-1] == "[]"
    assert not (shell.home / "run.json").exists()


def test_list_without_a_crib_counts_tools_known_from_before(shell: Shell) -> None:
    add_lab(shell)
    assert shell.json("mcp", "list")[0]["tools"] == 0
    tools = shell.json("mcp", "test", "lab")["tools"]
    listed = shell.json("mcp", "list")[0]
    assert tools > 0
    assert (listed["state"], listed["tools"]) == ("not_checked", tools)
    assert listed["action"] == "toolcrib mcp test lab"


def test_list_beside_a_running_crib_shows_its_connections(shell: Shell) -> None:
    add_lab(shell)
    with shell.serving():
        shell.json("mcp", "test", "lab")
        assert shell.json("mcp", "list")[0]["state"] == "connected"


@takes_long
@pytest.mark.parametrize(
    ("files", "servers", "limit"), [(1, 1, 0.6), (1_000, 1, 1.5), (1, 10_000, 2.5)], ids=["one", "files", "servers"]
)
def test_list_without_a_crib_stays_within_its_cpu_time(shell: Shell, files: int, servers: int, limit: float) -> None:
    folder = shell.folder / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    for file in range(files):
        names = [f"s{file}-{number}" for number in range(servers)]
        entries = {name: {"command": "npx", "args": ["-y", name], "env": {"KEY": "${KEY}"}} for name in names}
        (folder / f"{file}.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    spent = [_cpu_seconds(shell, files * servers) for _ in range(3)]
    assert min(spent) <= limit


def _cpu_seconds(shell: Shell, expected: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        shell.command("mcp", "list", "--json"),
        cwd=shell.folder,
        env=shell.variables,
        capture_output=True,
        timeout=LIMIT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(json.loads(done.stdout)) == expected, done.stderr
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
