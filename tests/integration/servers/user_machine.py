"""A user's machine: app files with servers, a project with a `.mcp.json`, and a crib."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from change_recorders import Unrecorded
from deadlines import stretched
from http_clients import PLAIN
from toolcrib.base.home import Home, owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject
from toolcrib.servers.servers import Servers
from toolcrib.web.run import Holding, hold

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ"

CURSOR = """{
  // my own servers
  "mcpServers": {
    "github": {
      "url": "https://api.example.com/mcp", // remote
      "headers": {"Authorization": "Bearer ghp_0123456789abcdefghijABCDEFGHIJ"},
    },
    "files": {"command": "npx", "args": ["-y", "files-server@1.2.3"]},
  },
}
"""
PROJECT = """{
  "mcpServers": {
    "build": {
      "command": "sh",
      "args": ["-c", "make serve"],
      "env": {"BUILD_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ"}
    }
  }
}
"""


@dataclass
class UserMachine:
    """The directories of the machine, and the events that the crib published."""

    root: Path
    events: list[tuple[HostEventKind, JsonObject]] = field(default_factory=list[tuple[HostEventKind, JsonObject]])

    @classmethod
    def at(cls, root: Path) -> "UserMachine":
        """Create a user with a Cursor file, and a repository with a `.mcp.json`."""
        root = root.resolve()
        machine = cls(root)
        machine.write(machine.cursor, CURSOR)
        machine.write(machine.project / ".mcp.json", PROJECT)
        (machine.project / ".git").mkdir()
        machine.subdirectory.mkdir(parents=True)
        return machine

    @property
    def user(self) -> Path:
        """The user's home directory."""
        return self.root / "user"

    @property
    def cursor(self) -> Path:
        """The file of Cursor."""
        return self.user / ".cursor" / "mcp.json"

    @property
    def project(self) -> Path:
        """The root of the repository."""
        return self.root / "project"

    @property
    def subdirectory(self) -> Path:
        """A directory deep in the repository."""
        return self.project / "src" / "deep"

    @property
    def home(self) -> Home:
        """The home of the crib."""
        return prepare_home(self.root / "crib")

    @property
    def environment(self) -> Environment:
        """The complete environment."""
        return Environment({"HOME": str(self.user), "PATH": "/usr/bin:/bin"})

    def write(self, file: Path, text: str) -> Path:
        """Write a file, with its directories."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def own_file(self) -> JsonObject:
        """Return the content of the crib's own file."""
        return json.loads(self.home.mcp_json.read_text(encoding="utf-8"))

    def open_servers(self) -> Servers:
        """Return the servers of the crib."""
        return Servers(
            self.home, self.environment, self.user, lambda kind, data: self.events.append((kind, data)), Unrecorded()
        )

    @asynccontextmanager
    async def serving(self) -> "AsyncGenerator[Serving]":
        """Run the crib on the network."""
        settings = Settings(home=self.home.root)
        # A command connects no server by itself: these tests are about definitions.
        async with hold(settings, kind="command", port=0, environment=self.environment) as holding:
            headers = {"authorization": f"Bearer {owner_token(self.home)}"}
            url = holding.info.url
            async with httpx2.AsyncClient(
                base_url=url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
            ) as client:
                yield Serving(holding, client, str(self.subdirectory))


@dataclass(frozen=True, slots=True)
class Serving:
    """A listening crib, and a client whose requests come from inside the project."""

    holding: Holding
    client: httpx2.AsyncClient
    cwd: str

    async def request(self, method: str, path: str, *, body: object = None, **params: str) -> httpx2.Response:
        """Send a request under `/api/servers` from inside the project."""
        whole = {"cwd": self.cwd, **params}
        if body is None:
            return await self.client.request(method, f"/api/servers{path}", params=whole)
        return await self.client.request(method, f"/api/servers{path}", params=whole, json=body)
