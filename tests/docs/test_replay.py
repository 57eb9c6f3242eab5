"""The commands of docs/replay.md, run in order with a scripted model."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from docs.pages import commands, page
from e2e.shell import Shell
from integration.servers.loopback_registry import TINY_SERVER
from toolcrib.base.settings import Environment, Settings
from toolcrib.testing.environments import claude_environment
from toolcrib.testing.played import PlayedRunner
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.web.run import hold

SCRIPT: dict[str, Any] = {
    "default": [
        {"blocks": [{"tool": "mcp__toolcrib__list_servers", "input": {}}]},
        {"blocks": [{"text": "There is one."}]},
    ]
}
GREETER = re.sub(r'about = ".*"', 'about = "Greet somebody."', TINY_SERVER).replace('"word"', '"greet"')


async def run(line: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command line of the page, which must succeed, and return its output."""
    words = shlex.split(line, comments=True)[1:]
    done = await anyio.to_thread.run_sync(Shell(folder, environment).run, *words)
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.anyio
async def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    home = tmp_path / "crib"
    home.mkdir()
    (tmp_path / "greeter.py").write_text(GREETER, encoding="utf-8")
    toolbox = {"command": sys.executable, "args": [str(tmp_path / "greeter.py"), "Hello, Ada."]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"toolbox": toolbox}}), encoding="utf-8")
    outputs: list[str] = []
    with ScriptedModel(SCRIPT) as model:
        path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
        environment = {**claude_environment(tmp_path, model.url), "TOOLCRIB_HOME": str(home), "PATH": path}
        crib_environment = Environment(environment)
        async with hold(Settings(home=home), kind="serve", port=0, environment=crib_environment) as holding:
            holding.crib.runners.add(PlayedRunner(SCRIPT, name="claude"))
            recorded, other = "", ""
            for line in commands(page("replay")):
                filled = line.replace(" ID", f" {recorded}").replace(" OTHER", f" {other}")
                outputs.append(await run(filled.replace("~", str(tmp_path)), tmp_path, environment))
                listed = await holding.crib.sessions.list()
                recorded, other = listed[-1].id[:8], listed[0].id[:8]
    assert "There is one." in outputs[0]
    assert "completed" in outputs[1]
    assert "0 differences" in outputs[1]
    assert "completed" in outputs[3]
    assert "list_servers" in outputs[4]
    assert "CALLS = [('mcp__toolcrib__list_servers', {})]" in (tmp_path / "test_talk.py").read_text(encoding="utf-8")
    assert "list_servers" in outputs[6]
    assert re.search(r"Recorded \d+ tools and 1 calls", outputs[7])
    assert "connected" in outputs[9]
