"""A home with tools, a crib whose agents play scripts, and commands run in a terminal or a pipe."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest

from terminal import Terminal, at_terminal
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.json import Json, JsonObject
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

LIMIT = 60.0
TOOLS = '''
"""Tools to chat about."""

from toolcrib import tool


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}."


@tool(destructive=True)
def wipe(path: str) -> str:
    """Wipe something."""
    return f"wiped {path}"
'''
_COLOURS: JsonObject = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
_SIZES: JsonObject = {
    "question": "Which sizes?",
    "header": "Sizes",
    "multiSelect": True,
    "options": [{"label": "S", "description": "small"}, {"label": "L", "description": "large"}],
}
_STORY = "Once upon a time\nthere was \x1b[31m\u202ea crib."


def _uses(tool: str, **arguments: Json) -> list[JsonObject]:
    return [{"blocks": [{"tool": tool, "input": arguments}]}, {"blocks": [{"text": "It says: {{last_tool_result}}"}]}]


SCRIPTS: Mapping[str, Json] = {
    "story": {"when": "story", "steps": [{"blocks": [{"thinking": "I make one up."}, {"text": _STORY}]}]},
    "greet": {"when": "greet", "steps": _uses("mcp__lab__greet", name="Ada")},
    "wipe": {"when": "wipe", "steps": _uses("mcp__lab__wipe", path="/x")},
    "colour": {"when": "colour", "steps": _uses("AskUserQuestion", questions=[_COLOURS, _SIZES])},
    "hang": {"when": "hang", "steps": [{"hang_s": 1000}]},
    "refuse": {"when": "refuse", "steps": [{"status": 401, "message": "invalid key"}]},
    "default": [{"blocks": [{"text": "Fine, you said that."}]}],
}


class Runtime(PlayedRunner):
    """Plays the scripts under the name of the default runtime."""

    name = "claude"


@dataclass(frozen=True)
class CommandLine:
    """Runs commands on one home, with or without a running crib."""

    folder: Path
    environment: Environment
    runtime: Runtime

    @property
    def home(self) -> Path:
        """The crib's home."""
        return self.folder / "home"

    @asynccontextmanager
    async def crib(self) -> AsyncGenerator[Holding]:
        """Run the crib in this process."""
        async with hold(Settings(home=self.home), kind="serve", port=0, environment=self.environment) as holding:
            holding.crib.runners.add(self.runtime)
            yield holding

    def client(self, holding: Holding) -> ApiClient:
        """Return an API client of the running crib."""
        return ApiClient(holding.info.url, owner_token(prepare_home(self.home)), source="cli")

    def chat(self, *arguments: str, columns: int = 100, **variables: str) -> AbstractAsyncContextManager[Terminal]:
        """Run `toolcrib chat` in a terminal."""
        return at_terminal(
            [sys.executable, "-m", "toolcrib", "chat", *arguments],
            {**self.variables, **variables},
            self.folder,
            columns=columns,
        )

    async def run(self, *arguments: str, stdin: str = "") -> CompletedProcess[bytes]:
        """Run a command without a terminal."""
        command = [sys.executable, "-m", "toolcrib", *arguments]
        with anyio.fail_after(LIMIT):
            return await anyio.run_process(
                command, input=stdin.encode(), cwd=self.folder, env=self.variables, check=False
            )

    async def json(self, *arguments: str) -> Json:
        """Run a command that must succeed and return its JSON."""
        done = await self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the commands."""
        return {**self.environment, "TOOLCRIB_HOME": str(self.home), "TOOLCRIB_PORT": "0", "PYTHONWARNINGS": "error"}


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A command line whose home has two Python tools."""
    folder = tmp_path.resolve()
    (folder / "home" / "tools").mkdir(parents=True)
    (folder / "home" / "tools" / "lab.py").write_text(TOOLS, encoding="utf-8")
    return CommandLine(folder, bare_environment(folder), Runtime(SCRIPTS))
