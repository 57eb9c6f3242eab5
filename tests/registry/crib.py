"""A crib with one third-party server, used like a user does: a running program, the command line, REST and `/mcp`."""

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deadlines import stretched
from e2e.shell import Serving, Shell
from http_clients import PLAIN
from lab import ModeName
from toolcrib.model.json import JsonObject


@dataclass(frozen=True)
class Crib:
    """A running crib with one server."""

    server: str
    shell: Shell
    serving: Serving

    @classmethod
    @contextmanager
    def serving_one(cls, folder: Path, server: str, entry: JsonObject, path: Path) -> "Generator[Crib]":
        """Run a crib with this entry in its file. `path` is the PATH of its programs."""
        shell = Shell.at(folder).having(PATH=f"{path}:/usr/bin:/bin")
        (shell.home / "mcp.json").write_text(json.dumps({"mcpServers": {server: entry}}), encoding="utf-8")
        with shell.serving() as serving:
            yield cls(server, shell, serving)

    def _http(self) -> dict[str, Any]:
        token = (self.shell.home / "token").read_text(encoding="utf-8").strip()
        return {"headers": {"authorization": f"Bearer {token}"}, "timeout": 30, "trust_env": False, "verify": PLAIN}

    async def until_connected(self) -> None:
        """Wait until the server is connected."""
        server: JsonObject = {}
        async with httpx2.AsyncClient(base_url=self.serving.url, **self._http()) as http:
            with anyio.move_on_after(30):
                while server.get("state") != "connected":
                    server = (await http.get(f"/api/servers/{self.server}")).json()
                    await anyio.sleep(0.05)
        assert server.get("state") == "connected", server

    async def listed(self) -> dict[str, set[str]]:
        """Return the names of the server's tools, by entry point."""
        async with httpx2.AsyncClient(base_url=self.serving.url, **self._http()) as http:
            rest = (await http.get("/api/tools", params={"server": self.server})).json()
        command = await anyio.to_thread.run_sync(lambda: self.shell.json("tools", "list", "--server", self.server))
        async with self.client() as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
        return {
            "rest": {tool["name"] for tool in rest},
            "cli": {tool["name"] for tool in command},
            "mcp": {tool["name"] for tool in rest if tool["exposedName"] in shown},
        }

    async def by_rest(self, tool: str, arguments: Mapping[str, object]) -> str:
        """Call over REST and return the text of the answer."""
        async with httpx2.AsyncClient(base_url=self.serving.url, **self._http()) as http:
            answer = await http.post(f"/api/tools/{self.server}/{tool}/call", json={"arguments": arguments})
        assert answer.status_code == 200, answer.text
        return _text(answer.json())

    async def by_command(self, tool: str, arguments: Mapping[str, object]) -> str:
        """Call from the command line and return the text of the answer."""
        words = ("tools", "call", f"{self.server}/{tool}", json.dumps(arguments))
        return _text(await anyio.to_thread.run_sync(lambda: self.shell.json(*words)))

    @asynccontextmanager
    async def client(self, mode: ModeName = "legacy", path: str = "/mcp") -> AsyncGenerator[Client]:
        """Connect the official client to one of the crib's MCP addresses."""
        async with httpx2.AsyncClient(**self._http()) as http:
            transport = streamable_http_client(f"{self.serving.url}{path}", http_client=http)
            async with Client(transport, mode=mode, read_timeout_seconds=stretched(30)) as client:
                yield client


def _text(result: JsonObject) -> str:
    assert result["isError"] is False, result
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
