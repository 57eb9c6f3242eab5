"""Real apps report themselves that they reach the crib they were connected to."""

import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.servers.coding_apps import QUIET_OPENCODE, output_of
from lab import Lab
from long_tests import takes_long
from toolcrib.agents.sessions.claude.program import find_cli
from toolcrib.base.settings import Settings
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.store.audit import Filters
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.testing.scripted_model.variables import claude_variables
from toolcrib.web.run import Holding, hold

pytestmark = pytest.mark.anyio

IS_ENABLED = bool(os.environ.keys() & {"TOOLCRIB_TEST_ALL", "CI"}) and shutil.which("npm") is not None
CLIENTS = {
    "codex": (["mcp", "list", "--json"], '"auth_status": "bearer_token"'),
    "gemini": (["mcp", "list"], "✓ toolcrib"),
    "opencode": (["mcp", "list"], "✓ toolcrib"),
}
"""The arguments with which each app lists its servers, and its output for a connected crib."""


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Holding]:
    """A crib on a machine without any app."""
    environment = bare_environment(tmp_path)
    async with hold(Settings(home=tmp_path / "crib"), kind="serve", port=0, environment=environment) as holding:
        yield holding


async def test_claude_code_reports_the_crib_and_an_agent_as_connected(crib: Holding, tmp_path: Path) -> None:
    try:
        claude = find_cli(bare_environment(tmp_path))
    except Unavailable as error:
        pytest.skip(error.message)
    await crib.crib.clients.connect(AppConnectRequest("claude-code"), anyway=True)
    await crib.crib.clients.connect(AppConnectRequest("claude-code", agent="reviewer"))
    output = await output_of(
        [str(claude), "mcp", "list"], tmp_path, DISABLE_AUTOUPDATER="1", DISABLE_TELEMETRY="1", IS_SANDBOX="1"
    )
    lines = [line for line in output.splitlines() if line.startswith("toolcrib")]
    assert [line.split(":")[0] for line in lines] == ["toolcrib", "toolcrib-reviewer"], output
    assert all("Connected" in line for line in lines), output


async def test_inspector_lists_tools_with_the_written_entry(crib: Holding, tmp_path: Path, node_programs: Path) -> None:
    done = await crib.crib.clients.connect(AppConnectRequest("cursor"), anyway=True)
    entry = json.loads(await anyio.Path(done.change.file).read_text())["mcpServers"]["toolcrib"]
    command = [str(node_programs / "mcp-inspector"), "--cli", entry["url"], "--method", "tools/list"]
    command += ["--header", f"Authorization: {entry['headers']['Authorization']}"]
    path = os.pathsep.join((str(node_programs), bare_environment(tmp_path)["PATH"]))
    output = await output_of(command, tmp_path, PATH=path)
    assert "toolcrib_ping" in output, output


@pytest.mark.skipif(not IS_ENABLED, reason="Installs a gigabyte with npm: in CI, or with TOOLCRIB_TEST_ALL=1.")
@pytest.mark.parametrize("client", CLIENTS)
async def test_app_reports_the_crib_as_connected(
    crib: Holding, tmp_path: Path, client_programs: Path, client: str
) -> None:
    if client == "gemini":  # reads nothing in a folder that is not trusted
        settings = tmp_path / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text('{"security": {"folderTrust": {"enabled": false}}}', encoding="utf-8")
    await crib.crib.clients.connect(AppConnectRequest(client), anyway=True)
    words, expected = CLIENTS[client]
    output = await output_of([str(client_programs / client), *words], tmp_path, **QUIET_OPENCODE)
    assert expected in output, output


LISTED_BY = {
    "claude-code": (None, ["mcp", "list"]),
    "codex": ("codex", ["mcp", "list"]),
    "gemini": ("gemini", ["mcp", "list"]),
    "opencode": ("opencode", ["mcp", "list"]),
    "copilot-cli": ("copilot", ["mcp", "list"]),
    "qwen": ("qwen", ["mcp", "list"]),
    "kilo": ("kilo", ["mcp", "list"]),
    "factory": ("droid", ["mcp", "list"]),
}
"""The program of each app, and the arguments with which it lists its servers."""


@takes_long
@pytest.mark.parametrize("client", LISTED_BY)
async def test_app_lists_the_servers_exported_to_its_file(
    crib: Holding, tmp_path: Path, client: str, request: pytest.FixtureRequest
) -> None:
    servers = crib.crib.servers
    await servers.add("program", {"type": "stdio", "command": "/bin/echo", "args": ["hi"], "env": {"A": "b"}})
    await servers.add("address", {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-A": "b"}})
    done = (await servers.export_to(client, ["program", "address"])).to_json()
    assert [each["name"] for each in done["taken"]] == ["program", "address"]
    if client == "gemini":  # lists nothing in a folder that is not trusted
        trusted = tmp_path / ".gemini" / "trustedFolders.json"
        trusted.write_text(json.dumps({str(tmp_path): "TRUST_FOLDER"}), encoding="utf-8")
    program, arguments = LISTED_BY[client]
    node = request.getfixturevalue("node_programs")
    path = os.pathsep.join((str(node), bare_environment(tmp_path)["PATH"]))
    quiet = {
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
        "PATH": path,
        **QUIET_OPENCODE,
    }
    if program is None:
        command = str(find_cli(bare_environment(tmp_path)))
    else:
        programs = "client_programs" if program in ("codex", "gemini", "opencode") else "app_programs"
        command = str(request.getfixturevalue(programs) / program)
    output = await output_of([command, *arguments], tmp_path, **quiet)
    assert "program" in output and "address" in output, output


LONG_STEPS: list[JsonObject] = [
    {"blocks": [{"tool": "mcp__toolcrib__jobs_slow_compute", "input": {"label": "pi", "seconds": 2}}]},
    {"blocks": [{"text": "It said: {{last_tool_result}}"}]},
]


@takes_long
async def test_claude_code_without_tasks_waits_for_the_approval_and_the_result(crib: Holding, tmp_path: Path) -> None:
    try:
        claude = find_cli(bare_environment(tmp_path))
    except Unavailable as error:
        pytest.skip(error.message)
    tests = Path(__file__).parents[2]
    job: JsonObject = {"command": sys.executable, "args": ["-S", "-m", "upstreams.tasks"]}  # answers with a task
    await crib.crib.servers.add("jobs", {**job, "env": {"PYTHONPATH": str(tests)}})
    await crib.crib.clients.connect(AppConnectRequest("claude-code"), anyway=True)
    command = [str(claude), "-p", "Compute pi.", "--permission-mode", "bypassPermissions"]
    output: list[str] = []
    async with Lab(Settings(home=tmp_path / "crib"), crib.info.url).http() as http:
        assert (await http.post("/api/servers/jobs/test")).json()["state"] == "connected"
        rule = {"effect": "ask", "pattern": "jobs/slow_compute"}
        assert (await http.post("/api/policy/rules", json=rule)).status_code == 201
        with ScriptedModel({"default": LONG_STEPS}) as model:

            async def work() -> None:
                output.append(await output_of(command, tmp_path, **claude_variables(model.url)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                pending: list[JsonObject] = []
                with anyio.fail_after(60):
                    while not pending:
                        pending = (await http.get("/api/approvals")).json()
                (approval,) = pending
                assert (approval["tool"], approval["status"]) == ("slow_compute", "pending")
                answer = {"decision": "approve", "scope": "once"}
                assert (await http.post(f"/api/approvals/{approval['id']}", json=answer)).status_code == 200
    assert "computed pi" in output[0], output
    (outcome,) = await crib.crib.audit.find(Filters(server="jobs", tool="slow_compute", phase="outcome"))
    assert outcome["durationMs"] >= 2_000
