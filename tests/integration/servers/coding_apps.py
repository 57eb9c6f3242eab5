"""Coding apps as clients of a crib, each with its own HOME and the scripted model. Not a test itself."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from toolcrib.agents.sessions.claude.program import find_cli
from toolcrib.model.json import JsonObject
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.testing.scripted_model.variables import claude_variables

NOWHERE = "http://127.0.0.1:9"
LOOPBACK_ONLY = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1,localhost"}
"""Proxy variables that keep a program from other machines, if the program respects them."""
QUIET_OPENCODE = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}


async def output_of(command: list[str], folder: Path, **variables: str) -> str:
    """Return the output of an app in an environment with this HOME."""
    environment = {**bare_environment(folder), **variables}
    with anyio.fail_after(60):
        done = await anyio.run_process(
            command, cwd=folder, env=environment, check=False, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    return done.stdout.decode("utf-8", "replace")


@dataclass(frozen=True)
class CodingApp:
    """An app with the scripted model. `prefix` precedes the names of the crib's tools."""

    name: str
    prefix: str
    command: list[str]
    folder: Path
    model: ScriptedModel
    variables: dict[str, str] = field(default_factory=dict[str, str])

    async def work(self, *calls: tuple[str, JsonObject]) -> str:
        """Let the model make these calls of the crib's tools, and return the app's output."""
        steps: list[JsonObject] = [{"blocks": [{"tool": f"{self.prefix}{name}", "input": it}]} for name, it in calls]
        self.model.scripts["work"] = [*steps, {"blocks": [{"text": "It said: {{last_tool_result}}"}]}]
        return await output_of([*self.command, "Do it. [[script:work]]"], self.folder, **self.variables)

    def offered(self) -> set[str]:
        """Return the crib's tools that the model was offered."""
        names = {tool for request in self.model.requests for tool in request.tools}
        return {name.removeprefix(self.prefix) for name in names if name.startswith(self.prefix)}

    def results(self) -> list[str]:
        """Return the results of the calls, in order, as the model received them."""
        return [
            json.dumps(block["content"], ensure_ascii=False)
            for message in self.model.bodies[-1]["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ]


def claude_code(folder: Path, model: ScriptedModel) -> CodingApp:
    """Return Claude Code. Raises `Unavailable` if it is not installed."""
    command = [str(find_cli(bare_environment(folder))), "--permission-mode", "bypassPermissions", "-p"]
    return CodingApp("claude-code", "mcp__toolcrib__", command, folder, model, claude_variables(model.url))


def opencode(folder: Path, model: ScriptedModel, programs: Path) -> CodingApp:
    """Return opencode, with the scripted model as Anthropic's API."""
    provider: JsonObject = {"options": {"baseURL": f"{model.url}/v1", "apiKey": "scripted"}, "models": {"scripted": {}}}
    settings = folder / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"provider": {"anthropic": provider}}), encoding="utf-8")
    command = [str(programs / "opencode"), "run", "--model", "anthropic/scripted"]
    return CodingApp("opencode", "toolcrib_", command, folder, model, {**LOOPBACK_ONLY, **QUIET_OPENCODE})
