"""The FastMCP client against a running crib: the core in both eras, skills and tasks."""

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from integration.web.mcp.test_skills import write_skill
from lab import Lab, ModeName, make_lab
from long_tests import takes_long
from programs import installed
from toolcrib.model.json import JsonObject
from toolcrib.web.run import hold

pytestmark = [pytest.mark.anyio, takes_long]

TESTS = Path(__file__).parents[1]
DRIVER = Path(__file__).parent / "fastmcp_driver.py"
SLOW = '''
import anyio
from toolcrib import tool

@tool
async def slow(seconds: float) -> str:
    """Wait, then answer."""
    await anyio.sleep(seconds)
    return "waited"
'''


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[Lab]:
    stopped = make_lab(tmp_path)
    stopped.add_module("slow", SLOW)
    write_skill(tmp_path / "billing", "Refunds of billing.")
    servers: JsonObject = {}
    for name, words in (
        ("far", ["upstreams.translated_features", "legacy"]),
        ("jobs", ["upstreams.tasks"]),
        ("billing", ["upstreams.skills", str(tmp_path / "billing")]),
    ):
        env = {"PYTHONPATH": str(TESTS)}
        servers[name] = {"command": sys.executable, "args": ["-S", "-m", *words], "env": env, "share": "session"}
    (stopped.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    async with hold(stopped.settings, kind="serve") as holding:
        lab = replace(stopped, url=holding.info.url)
        async with lab.http() as http:
            for name in servers:
                assert (await http.post(f"/api/servers/{name}/test")).json()["state"] == "connected"
        yield lab


async def drive(lab: Lab, era: ModeName, home: Path, config: pytest.Config) -> JsonObject:
    """Run the FastMCP client with an empty environment and its own home. Returns what it received."""
    python = installed("fastmcp", config) / "bin" / "python"
    command = [str(python), "-I", str(DRIVER), f"{lab.url}/mcp", lab.token, era]
    with anyio.fail_after(120):
        done = await anyio.run_process(command, env={"PATH": "/usr/bin:/bin", "HOME": str(home)}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_fastmcp_client_uses_the_core_and_modern_extensions(
    lab: Lab, era: ModeName, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seen = await drive(lab, era, tmp_path, pytestconfig)
    assert {"lab_echo", "far_ask", "jobs_greet"} <= set(seen["tools"])
    assert ("far_greet" in seen["prompts"], "note://one" in seen["resources"]) == (True, True)
    assert (seen["completion"], seen["counted"]) == (["Ada"], ["counted to 3", [1, 2, 3]])
    assert (seen["echo"], seen["error"]) == ({"said": "hello"}, True)
    assert seen["form"] == {"action": "accept", "content": {"name": "Ada"}}
    assert seen["url"]["action"] == "decline"
    assert seen["sampling"]["content"]["text"] == "yes"
    assert seen["roots"]["roots"][0]["uri"] == "file:///work"
    if era != "legacy":
        assert seen["skills"]["skill://billing/refunds/SKILL.md"] == "refunds"
        assert (len(seen["skill"]), "Refunds of billing." in seen["file"]) == (2, True)
        assert (seen["waited"], seen["asked"]) == ("computed it", "deleted")
        assert (seen["task"], seen["cancelled"]) == (["working", "waited"], "cancelled")
