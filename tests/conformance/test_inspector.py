"""The command line of the MCP Inspector against a running crib, in both eras."""

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from lab import Lab, make_lab
from long_tests import takes_long
from toolcrib.model.json import Json, JsonObject
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
ERAS = pytest.mark.parametrize("era", [pytest.param("legacy", marks=takes_long), "modern"])


def upstream(module: str, *arguments: str) -> JsonObject:
    command: JsonObject = {"command": sys.executable, "args": ["-S", "-m", module, *arguments]}
    return command | {"env": {"PYTHONPATH": str(TESTS)}}


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[Lab]:
    """Run a crib with servers of skills, apps, prompts and resources."""
    stopped = make_lab(tmp_path)
    skill = tmp_path / "billing" / "refunds"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: refunds\ndescription: Refunds.\n---\n\n# Refunds\n", encoding="utf-8")
    (skill / "table.md").write_text("| day | share |\n", encoding="utf-8")
    servers: JsonObject = {"billing": upstream("upstreams.skills", str(tmp_path / "billing"))}
    csp: JsonObject = {"connectDomains": ["https://api.example.com"]}
    for name in ("maps", "weather"):
        page: JsonObject = {"mimeType": "text/html;profile=mcp-app", "text": "<p>", "_meta": {"ui": {"csp": csp}}}
        tool: JsonObject = {"name": "show", "inputSchema": {"type": "object"}}
        tool["_meta"] = {"ui": {"resourceUri": "ui://panel"}}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"tools": [tool], "contents": {"ui://panel": page}}), encoding="utf-8")
        servers[name] = upstream("upstreams.json_file", str(file))
    servers["far"] = upstream("upstreams.translated_features", "modern")
    (stopped.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    async with hold(stopped.settings, kind="serve") as holding:
        lab = replace(stopped, url=holding.info.url)
        async with lab.http() as http:
            for name in servers:
                assert (await http.post(f"/api/servers/{name}/test")).json()["state"] == "connected"
        yield lab


async def run(programs: Path, home: Path, *arguments: str) -> str:
    """Run the Inspector with an empty environment and its own home. Returns its output."""
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home)}
    command = [str(programs / "mcp-inspector"), "--cli", *arguments]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, env=environment, cwd=home, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode()


async def inspect(programs: Path, home: Path, *arguments: str) -> Json:
    return json.loads(await run(programs, home, *arguments))


def over_http(lab: Lab, era: str) -> tuple[str, ...]:
    header = f"Authorization: Bearer {lab.token}"
    return (f"{lab.url}/mcp", "--transport", "http", "--protocol-era", era, "--header", header)


@ERAS
async def test_inspector_lists_and_calls_over_http(lab: Lab, node_programs: Path, tmp_path: Path, era: str) -> None:
    way = over_http(lab, era)
    listed = await inspect(node_programs, tmp_path, *way, "--method", "tools/list")
    assert "lab_echo" in {tool["name"] for tool in listed["tools"]}
    call = ("--method", "tools/call", "--tool-name", "lab_echo", "--tool-arg", "text=hello")
    assert (await inspect(node_programs, tmp_path, *way, *call))["structuredContent"] == {"said": "hello"}


async def test_inspector_lists_and_calls_over_stdio(lab: Lab, node_programs: Path, tmp_path: Path) -> None:
    way = (sys.executable, "-m", "toolcrib", "stdio", "--home", str(lab.home))
    listed = await inspect(node_programs, tmp_path, *way, "--method", "tools/list")
    assert "toolcrib_ping" in {tool["name"] for tool in listed["tools"]}
    call = ("--method", "tools/call", "--tool-name", "toolcrib_ping")
    assert (await inspect(node_programs, tmp_path, *way, *call))["structuredContent"]["status"] == "pong"


@ERAS
async def test_inspector_lists_prompts_and_reads_resources(
    lab: Lab, node_programs: Path, tmp_path: Path, era: str
) -> None:
    way = over_http(lab, era)
    listed = await inspect(node_programs, tmp_path, *way, "--method", "prompts/list")
    assert "far_greet" in {prompt["name"] for prompt in listed["prompts"]}
    listed = await inspect(node_programs, tmp_path, *way, "--method", "resources/list")
    assert "note://one" in {resource["uri"] for resource in listed["resources"]}
    read = await inspect(node_programs, tmp_path, *way, "--method", "resources/read", "--uri", "ui://weather/panel")
    assert read["contents"][0]["mimeType"] == "text/html;profile=mcp-app"


@ERAS
async def test_inspector_finds_the_app_of_each_tool(lab: Lab, node_programs: Path, tmp_path: Path, era: str) -> None:
    way = (*over_http(lab, era), "--advertise-apps", "--app-info", "--method", "tools/call")
    for server, uri in (("maps", "ui://panel"), ("weather", "ui://weather/panel")):
        info = await inspect(node_programs, tmp_path, *way, "--tool-name", f"{server}_show")
        assert info["resourceUri"] == uri
        assert info["csp"] == {"connectDomains": ["https://api.example.com"]}


async def test_inspector_verifies_every_skill(lab: Lab, node_programs: Path, tmp_path: Path) -> None:
    """Run the Inspector's own checks of SEP-2640 on each manifest, and on each file by size and digest."""
    way = (*over_http(lab, "modern"), "--verify", "--require-digests")
    reports = await run(node_programs, tmp_path, *way, "--method", "skills/list")
    by_uri = {report["uri"]: report for report in map(json.loads, reports.splitlines())}
    assert any(uri.startswith("skill://agent_zoo/") for uri in by_uri)
    uri = "skill://billing/refunds/SKILL.md"
    got = await inspect(node_programs, tmp_path, *way, "--method", "skills/get", "--uri", uri)
    for report in (*by_uri.values(), got):
        assert (report["ok"], report["outcome"]) == (True, "verified"), report
        # Several agents may have a skill of the same name. The specification allows it; the Inspector reports it.
        assert {found["code"] for found in report["conformance"]} <= {"duplicate-name"}, report
    assert [file["uri"] for file in got["files"]] == [uri, "skill://billing/refunds/table.md"], got
