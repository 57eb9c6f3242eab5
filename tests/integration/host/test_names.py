"""An untrusted repository cannot evade or redirect rules with its names for servers."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


def definition(number: str) -> JsonObject:
    return {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.legacy", "plain", number],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }


class Workspace:
    """A home with servers of its own, and repositories beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(home=prepare_home(folder / "home").root, port=0)
        self.environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})

    def write_servers(self, **servers: JsonObject) -> None:
        file = self.settings.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    def add_repository(self, name: str, **servers: JsonObject) -> Path:
        path = self.folder / name
        (path / ".git").mkdir(parents=True, exist_ok=True)
        (path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        return path.resolve()

    @asynccontextmanager
    async def crib(self) -> AsyncGenerator[Holding]:
        async with hold(self.settings, kind="serve", environment=self.environment) as holding:
            yield holding


@asynccontextmanager
async def open_client(holding: Holding, cwd: Path | None = None) -> AsyncGenerator[ApiClient]:
    """Open an API client of the owner in a directory."""
    place = str(cwd) if cwd is not None else None
    async with ApiClient(holding.info.url, owner_token(holding.crib.home), source="api", cwd=place) as client:
        yield client


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


async def test_deny_rule_holds_under_another_name_in_a_repository(workspace: Workspace) -> None:
    workspace.write_servers(prod=definition("1"))
    project = workspace.add_repository("project", harmless=definition("1"))
    async with workspace.crib() as holding, open_client(holding, project) as client:
        answer = await client.call(ToolRef("harmless", "echo"), {"text": "a"})
        assert not answer["isError"]
        (record, *_) = await client.audit(tool="echo")
        assert record["server"] == "prod"
        assert {tool["server"] for tool in await client.tools() if tool["name"] == "echo"} == {"prod"}
        assert {tool["server"] for tool in await client.tools(server="harmless")} == {"prod"}
        await client.permissions.add_rule({"effect": "deny", "pattern": "prod/*"})
        for name in ("prod", "harmless"):
            with pytest.raises(Denied):
                await client.call(ToolRef(name, "echo"), {"text": "a"})
            explained = await client.permissions.explain(f"{name}/echo")
            assert (explained["verdict"], explained["ref"]) == ("hidden", "prod/echo")


async def test_rule_on_the_name_in_a_repository_holds_for_the_server_everywhere(workspace: Workspace) -> None:
    workspace.write_servers(prod=definition("1"))
    project = workspace.add_repository("project", harmless=definition("1"))
    async with workspace.crib() as holding, open_client(holding, project) as client:
        await client.test_server("prod")  # a listing waits for no server
        await client.permissions.add_rule({"effect": "deny", "pattern": "harmless/*"})
        explained = await client.permissions.explain("prod/echo")
        assert explained["verdict"] == "hidden"
        assert "matches through the name harmless in" in explained["decidedBy"]["reason"]
        assert str(project / ".mcp.json") in explained["decidedBy"]["reason"]


async def test_permission_for_a_name_does_not_cover_a_server_renamed_to_it(workspace: Workspace) -> None:
    workspace.write_servers(prod=definition("1"))
    project = workspace.add_repository("project", notes=definition("1"))
    async with workspace.crib() as holding, open_client(holding, project) as client:
        await client.test_server("prod")
        agent = await client.create_agent({"name": "Clerk", "toolPermissions": ["notes/*"]})
        as_agent = holding.crib.principals.owner("api", agent=agent["id"], cwd=str(project))
        listed = holding.crib.gate.listing(await holding.crib.placed(as_agent)).tools
        assert [str(tool.ref) for tool in listed] == []
        with pytest.raises(Denied):
            await holding.crib.gate.call(as_agent, ToolRef("notes", "echo"), {"text": "a"}, door="library")


async def test_deny_rule_holds_in_another_trusted_project_with_another_name(workspace: Workspace) -> None:
    first = workspace.add_repository("first", prod=definition("1"))
    second = workspace.add_repository("second", harmless=definition("1"))
    async with workspace.crib() as holding:
        async with open_client(holding, first) as client:
            await client.trust_server("prod")
            await client.permissions.add_rule({"effect": "deny", "pattern": "prod/*"})
        async with open_client(holding, second) as client:
            await client.trust_server("harmless")
            with pytest.raises(Denied):
                await client.call(ToolRef("harmless", "echo"), {"text": "a"})


async def test_deny_rule_holds_under_a_name_trusted_after_a_restart(workspace: Workspace) -> None:
    first = workspace.add_repository("first", prod=definition("1"))
    second = workspace.add_repository("second", harmless=definition("1"))
    async with workspace.crib() as holding, open_client(holding, first) as client:
        await client.trust_server("prod")
        await client.permissions.add_rule({"effect": "deny", "pattern": "prod/*"})
    async with workspace.crib() as again, open_client(again, second) as client:
        await client.trust_server("harmless")
        with pytest.raises(Denied):
            await client.call(ToolRef("harmless", "echo"), {"text": "a"})


async def test_repository_server_with_a_taken_name_is_shadowed_and_not_called(workspace: Workspace) -> None:
    workspace.write_servers(notes=definition("1"))
    project = workspace.add_repository("project", notes=definition("2"))
    async with workspace.crib() as holding, open_client(holding, project) as client:
        server = await client.server("notes")
        assert [source["scope"] for source in server["sources"]] == ["user"]
        answer = await client.call(ToolRef("notes", "echo"), {"text": "a"})
        assert not answer["isError"]
        shadowed = next(each for each in await client.servers() if each["state"] == "shadowed")
        assert shadowed["shadowedBy"] == "notes"
        with pytest.raises((Denied, NotFound)):
            await client.call(ToolRef(shadowed["alias"], "echo"), {"text": "a"})


async def test_repository_in_the_working_directory_does_not_replace_a_module(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m` imports from the directory it is started in."""
    workspace.write_servers(notes=definition("1"))
    project = workspace.add_repository("project")
    ran = project / "ran"
    (project / "upstreams").mkdir()
    (project / "upstreams" / "legacy.py").write_text(f"open({str(ran)!r}, 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(project)
    async with workspace.crib() as holding, open_client(holding, project) as client:
        answer = await client.call(ToolRef("notes", "echo"), {"text": "a"})
        assert not answer["isError"]
    assert not ran.exists()
