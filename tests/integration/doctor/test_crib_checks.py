"""Checks of a running crib: failing servers with their reasons, modules, rules, tokens and connected apps."""

import json
import sys
from pathlib import Path

import pytest

from integration.doctor.faulty_machines import Machine
from long_tests import takes_long
from toolcrib.base.home import owner_token
from toolcrib.base.settings import Environment, Settings
from toolcrib.doctor.crib_checks import ask
from toolcrib.doctor.finding import Finding
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.servers.crib_entry import own_command
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

pytestmark = pytest.mark.anyio

SERVERS: dict[str, tuple[str, str]] = {
    "package": ("npm error code E404\n'no-such-server' is not in this registry.", "package not found in the registry"),
    "engine": ("npm warn EBADENGINE Unsupported engine { required: 'node >=26' }", "another version of Node.js"),
    "key": ("Error: API_KEY environment variable is required", "a required value is missing"),
}
"""What a server prints when it fails, and the reason that the finding states."""


async def findings_of(holding: Holding) -> list[Finding]:
    """Return the findings of a running crib that are not ok."""
    async with ApiClient(holding.info.url, owner_token(holding.crib.home), source="cli") as client:
        return [each for each in await ask(client) if each.severity != "ok"]


@takes_long
async def test_sound_crib_has_no_findings(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    settings = Settings(home=machine.home.root)
    async with hold(settings, kind="command", port=0, environment=Environment(machine.variables)) as holding:
        assert await findings_of(holding) == []


@takes_long
async def test_each_problem_of_a_crib_is_a_finding_with_its_reason_and_fix(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    script = "import sys; sys.stderr.write({!r}); sys.exit(1)"
    servers: dict[str, object] = {
        name: {"type": "stdio", "command": sys.executable, "args": ["-c", script.format(output)]}
        for name, (output, _) in SERVERS.items()
    }
    servers["gone"] = {"type": "stdio", "command": "no-such-server"}
    machine.home.mcp_json.write_text(json.dumps({"mcpServers": servers}))
    (machine.home.tools / "broken.py").write_text("import nothing_of_this_name\n")
    machine.home.settings_file.write_text('[[rules]]\neffect = "perhaps"\npattern = "*"\n')
    machine.write(".cursor/mcp.json", "{}")
    machine.write(".gemini/settings.json", "{}")
    settings = Settings(home=machine.home.root, port=4242)
    async with hold(settings, kind="command", port=0, environment=Environment(machine.variables)) as holding:
        crib = holding.crib
        await crib.clients.connect(AppConnectRequest("cursor", level="ask"))
        await crib.clients.connect(AppConnectRequest("gemini", level="ask"))
        cursor = tmp_path / "user" / ".cursor" / "mcp.json"
        cursor.write_text(cursor.read_text().replace("4242", "4300"))
        machine.write(".gemini/settings.json", "{}")
        found = await findings_of(holding)
    by_check = {(each.check, each.severity): each for each in found}
    assert set(by_check) == {
        ("servers", "error"),
        ("tools", "error"),
        ("rules", "error"),
        ("tokens", "note"),
        ("connections", "warning"),
    }
    failing = {each.message: each for each in found if each.check == "servers"}
    for name, (_, reason) in SERVERS.items():
        assert any(f'"{name}" did not start' in message and reason in message for message in failing), failing
    gone = failing['Server "gone" did not start: command not found.']
    assert gone.evidence is not None
    assert gone.evidence.count("did not start") == 1
    assert all(each.fix for each in found)
    assert "nothing_of_this_name" in by_check["tools", "error"].message
    assert by_check["tokens", "note"].fix == "toolcrib tokens revoke connect-gemini"
    assert by_check["connections", "warning"].fix == "toolcrib connect cursor"


async def test_apps_without_a_confirmed_level_are_findings_until_they_have_one(tmp_path: Path) -> None:
    machine = Machine.at(tmp_path)
    machine.write(".cursor/mcp.json", "{}")
    machine.write(".gemini/settings.json", "{}")
    settings = Settings(home=machine.home.root, port=4242)
    async with hold(settings, kind="command", port=0, environment=Environment(machine.variables)) as holding:
        await holding.crib.clients.connect(AppConnectRequest("cursor"))
        command = {"command": str(own_command()[0]), "args": ["stdio", "--home", str(machine.home.root)]}
        machine.write(".gemini/settings.json", json.dumps({"mcpServers": {"toolcrib": command}}))
        fixes = {each.check: each.fix for each in await findings_of(holding) if "never confirmed" in each.message}
        ask_first = "toolcrib rules ask '*' --source ide --not-read-only"
        assert fixes == {"tokens": "toolcrib connect cursor --level ask", "connections": ask_first}
        await holding.crib.clients.connect(AppConnectRequest("cursor", level="app"))
        async with ApiClient(holding.info.url, owner_token(holding.crib.home), source="cli") as client:
            where = {"sources": ["ide"], "readOnly": False}
            await client.permissions.add_rule({"effect": "ask", "pattern": "*", "where": where})
        assert [each for each in await findings_of(holding) if "never confirmed" in each.message] == []
