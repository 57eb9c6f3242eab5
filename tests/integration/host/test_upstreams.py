"""A crib with upstream servers, from the definition in a file to a call."""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lab import eventually
from toolcrib import bridge
from toolcrib.base.home import HolderKind, owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.errors import Conflict, InvalidRequest, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


def definition(*words: str, **more: object) -> JsonObject:
    """Return the definition of a test server."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.legacy", *(words or ("plain",))],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
        **more,
    }


class Workspace:
    """A home, and a crib on it."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.user.mkdir()
        self.settings = Settings(home=prepare_home(folder / "home").root, port=0)
        self.environment = Environment({"HOME": str(self.user), "PATH": "/usr/bin:/bin"})

    def write(self, **servers: JsonObject) -> None:
        """Write these servers to the crib's own file."""
        file = self.settings.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    @asynccontextmanager
    async def crib(self, kind: HolderKind = "serve") -> AsyncGenerator[tuple[Holding, ApiClient]]:
        """Run a crib and open an API client of its owner."""
        async with (
            hold(self.settings, kind=kind, environment=self.environment) as holding,
            ApiClient(holding.info.url, owner_token(holding.crib.home), source="api") as client,
        ):
            yield holding, client


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A home without servers."""
    return Workspace(tmp_path)


async def pid_of(client: ApiClient, server: str) -> int:
    """Return the process id that a server reports."""
    answer = await client.call(ToolRef(server, "pid"), {})
    assert not answer["isError"], answer
    return int(answer["content"][0]["text"])


async def until_state(client: ApiClient, server: str, state: str) -> JsonObject:
    """Wait until a server has this state; check again at every event."""
    with anyio.fail_after(20):
        async for _ in client.events(0):
            if (found := await client.server(server))["state"] == state:
                return found
    raise AssertionError(f"The crib ended before {server} was {state}.")


async def until_started(client: ApiClient, tool: str) -> None:
    """Wait until a call has left its intent. No event announces it."""
    for _ in range(1_000):
        if await client.audit(tool=tool):
            return
        await anyio.sleep(0.02)
    raise AssertionError(f"{tool} was not called in time.")


async def test_configured_server_has_its_tools_in_every_list_and_calls_are_recorded(workspace: Workspace) -> None:
    workspace.write(legacy=definition())
    async with workspace.crib() as (_, client):
        found = await until_state(client, "legacy", "connected")
        assert found["tools"] == 10
        assert found["latencyMs"] >= 0
        assert "10 tools" in found["sentence"]
        await client.test_server("legacy")  # returns after the catalog has its tools
        assert "legacy_echo" in {tool["exposedName"] for tool in await client.tools()}
        assert (await client.tools(query="legacy echo"))[0]["ref"] == "legacy/echo"
        answer = await client.call(ToolRef("legacy", "echo"), {"text": "hello"})
        assert answer["structuredContent"] == {"text": "hello"}
        records = await client.audit(tool="echo")
        assert [record["phase"] for record in records] == ["outcome", "intent"]


async def test_killed_server_fails_only_its_own_calls_and_restarts(workspace: Workspace) -> None:
    workspace.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with workspace.crib() as (_, client):
        one, two = await pid_of(client, "one"), await pid_of(client, "two")
        ended: list[JsonObject] = []
        async with anyio.create_task_group() as calls:

            async def hang() -> None:
                ended.append(await client.call(ToolRef("one", "sleep"), {}))

            calls.start_soon(hang)
            await until_started(client, "sleep")
            os.kill(one, signal.SIGKILL)
            assert await pid_of(client, "two") == two
        assert ended[0]["isError"]
        assert ended[0]["content"][0]["text"].startswith("MCP error: ")
        await until_state(client, "one", "connected")
        assert await pid_of(client, "one") != one
        assert await pid_of(client, "two") == two


async def test_changed_definition_restarts_only_its_server(workspace: Workspace) -> None:
    workspace.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with workspace.crib() as (_, client):
        one, two = await pid_of(client, "one"), await pid_of(client, "two")
        workspace.write(one=definition("plain", "3"), two=definition("plain", "2"))
        await client.reload_servers()
        assert await pid_of(client, "one") != one
        assert await pid_of(client, "two") == two
        workspace.write(two=definition("plain", "2"))
        await client.reload_servers()
        assert not [tool for tool in await client.tools() if tool["server"] == "one"]
        await eventually(lambda: not Path(f"/proc/{one}").exists())


async def test_known_tools_are_listed_after_a_restart_and_the_server_starts_on_use(
    workspace: Workspace,
) -> None:
    workspace.write(legacy=definition())
    async with workspace.crib() as (_, client):
        await until_state(client, "legacy", "connected")
    async with workspace.crib() as (_, client):
        found = await client.server("legacy")
        assert (found["state"], found["tools"]) == ("not_checked", 10)
        assert "pid" not in found
        await pid_of(client, "legacy")
        await until_state(client, "legacy", "connected")


async def test_command_connects_only_the_servers_it_uses(workspace: Workspace) -> None:
    workspace.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with workspace.crib("command") as (_, client):
        problems = await client.tool_problems()
        assert [problem["code"] for problem in problems] == ["server.not_checked", "server.not_checked"]
        await pid_of(client, "one")
        await until_state(client, "one", "connected")
        assert (await client.server("two"))["state"] == "not_checked"


async def test_failed_server_reports_exit_code_stderr_and_next_step(workspace: Workspace) -> None:
    code = "import sys; print('no key was given', file=sys.stderr); sys.exit(3)"
    workspace.write(broken={"command": sys.executable, "args": ["-c", code]}, fine=definition())
    async with workspace.crib() as (_, client):
        tested = await client.test_server("broken")
        assert (tested["state"], tested["exitCode"], tested["stderr"]) == ("failed", 3, ["no key was given"])
        assert "exit code 3" in tested["lastError"]
        assert "no key" not in tested["lastError"], "stderr is a member of its own"
        assert tested["action"] == "toolcrib mcp test broken"
        await pid_of(client, "fine")
        with pytest.raises(Unavailable, match="broken"):
            await client.call(ToolRef("broken", "anything"), {})


async def test_server_that_cannot_be_connected_reports_the_reason(workspace: Workspace) -> None:
    workspace.write(off=definition(enabled=False), wrong={"command": "x", "url": "http://127.0.0.1:9/"})
    async with workspace.crib() as (_, client):
        with pytest.raises(Conflict, match=r'Server "off" is disabled. Run toolcrib mcp enable off first.'):
            await client.test_server("off")
        with pytest.raises(InvalidRequest, match="Invalid server config"):
            await client.test_server("wrong")
        with pytest.raises(InvalidRequest, match="has no sign-in"):
            workspace.write(local=definition())
            await client.sign_in("local")


async def test_servers_of_a_project_are_visible_only_from_the_project(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(everywhere=definition())
    project = tmp_path / "project"
    (project / ".toolcrib").mkdir(parents=True)
    (project / ".git").mkdir()
    file = project / ".toolcrib" / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"here": definition("plain", "here")}}), encoding="utf-8")
    async with workspace.crib() as (holding, client):
        await client.trust_path(
            str(project), [each["question"]["digest"] for each in await client.trust_path(str(project))]
        )
        token = owner_token(holding.crib.home)
        async with ApiClient(holding.info.url, token, source="api", cwd=str(project)) as inside:
            assert await pid_of(inside, "here") != await pid_of(inside, "everywhere")
            assert await pid_of(inside, "everywhere") == await pid_of(client, "everywhere")
            assert {tool["server"] for tool in await inside.tools()} >= {"here", "everywhere"}
        assert "here" not in {tool["server"] for tool in await client.tools()}
        await client.untrust_path(str(project))
        async with ApiClient(holding.info.url, token, source="api", cwd=str(project)) as inside:
            assert "here" not in {tool["server"] for tool in await inside.tools()}


@pytest.mark.parametrize("runs", [False, True], ids=["alone", "beside a running crib"])
async def test_bridge_returns_callable_tools_and_the_errors_of_failed_servers(workspace: Workspace, runs: bool) -> None:
    workspace.write(legacy=definition(), broken={"command": "no-such-program-anywhere"})

    async def use() -> None:
        tools, errors = await bridge.discover_and_load(
            workspace.user, settings=workspace.settings, environment=workspace.environment
        )
        async with tools:
            echo = tools.named("mcp_legacy_echo")
            assert echo is not None
            assert echo.ref == ToolRef("legacy", "echo")
            result = await echo(text="over the bridge")
            assert result.structured_content == {"text": "over the bridge"}
            assert errors.keys() == {"broken"}
            assert "no-such-program-anywhere" in errors["broken"]

    if not runs:
        await use()
        return
    async with workspace.crib():
        await use()


async def test_shared_legacy_server_sees_no_client_capabilities(workspace: Workspace) -> None:
    workspace.write(shop=definition())
    async with workspace.crib() as (_, client):
        answer = await client.call(ToolRef("shop", "abilities"), {})
    assert answer["structuredContent"]["abilities"] == {}
