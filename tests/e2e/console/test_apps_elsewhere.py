"""MCP Apps through `/mcp` in another host: the web Inspector, with its sandbox proxy, in a real browser."""

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from e2e.shell import LIMIT, Serving, Shell
from long_tests import takes_long
from toolcrib.model.json import JsonObject

TESTS = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "app_pages"
PAGE = """<!doctype html><title>{0}</title><h1>{0}</h1><button id=act>Act</button><script>
BRIDGE
start();
act.onclick = async () => put("acted", await ask("tools/call", {{name: "write_{0}", arguments: {{}}}}));
</script>"""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell with two servers whose pages have the same URI."""
    shell = Shell.at(tmp_path_factory.mktemp("person"))
    servers: JsonObject = {}
    bridge = (PAGES / "bridge.js").read_text(encoding="utf-8")
    for name in ("maps", "weather"):
        schema: JsonObject = {"inputSchema": {"type": "object"}}
        tools: list[JsonObject] = [
            {"name": "show", **schema, "_meta": {"ui": {"resourceUri": "ui://panel"}}},
            {"name": f"write_{name}", **schema},
        ]
        text = PAGE.format(name).replace("BRIDGE", bridge)
        contents = {"ui://panel": {"mimeType": "text/html;profile=mcp-app", "text": text}}
        file = shell.folder / f"{name}.json"
        file.write_text(json.dumps({"tools": tools, "contents": contents}), encoding="utf-8")
        arguments = ["-S", "-m", "upstreams.json_file", str(file)]
        servers[name] = {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(TESTS)}}
    (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return shell


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in opened]


@contextmanager
def inspector(programs: Path, home: Path, crib: Serving, token: str, era: str) -> Generator[str]:
    """Run the web Inspector for this crib. Yields its address."""
    home.mkdir()
    names = ("CLIENT_PORT", "MCP_SANDBOX_PORT", "MCP_APP_ORIGIN_PORT")
    ports = {name: str(port) for name, port in zip(names, free_ports(3), strict=True)}
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "MCP_AUTO_OPEN_ENABLED": "false", **ports}
    way = ["--server-url", f"{crib.url}/mcp", "--transport", "http", "--protocol-era", era]
    command = [str(programs / "mcp-inspector"), "--web", *way, "--header", f"Authorization: Bearer {token}"]
    with subprocess.Popen(command, env=environment, cwd=home, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            found = (re.search(r"http://127\.0\.0\.1:\d+\S*TOKEN=\w+", line) for line in process.stdout)
            yield next(each for each in found if each)[0]
        finally:
            watchdog.cancel()
            process.terminate()


@takes_long
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_shows_apps_and_their_calls_pass_the_gate(
    person: Shell, crib: Serving, browser: Browser, node_programs: Path, tmp_path: Path, era: str
) -> None:
    token = (person.home / "token").read_text(encoding="utf-8").strip()
    with inspector(node_programs, tmp_path / "user", crib, token, era) as url, browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        page.get_by_role("switch").first.check(force=True)
        page.get_by_text("Apps", exact=True).click()
        for name in ("maps", "weather"):
            page.get_by_text(f"{name}_show").first.click()
            app = page.frame_locator("iframe").frame_locator("iframe")  # the proxy's frame, then the page's own
            expect(app.get_by_role("heading")).to_have_text(name)
            expect(app.locator("#tool-result")).to_contain_text("called show")
            app.get_by_role("button", name="Act").click()
            expect(app.locator("#acted")).to_contain_text(f"called write_{name}")
    records: list[JsonObject] = json.loads(person.run("audit", "--json").stdout)
    assert {"write_maps", "write_weather"} <= {record["tool"] for record in records}
