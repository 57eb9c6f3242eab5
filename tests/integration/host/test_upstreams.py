"""A crib with upstream servers, whole: from a definition in a file to a call, and what can go wrong on the way."""

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
    """One of the small servers, as it stands in a file."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.legacy", *(words or ("plain",))],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
        **more,
    }


class Bench:
    """A person with a home, and a crib on it."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.user.mkdir()
        self.settings = Settings(home=prepare_home(folder / "home").root, port=0)
        self.environment = Environment({"HOME": str(self.user), "PATH": "/usr/bin:/bin"})

    def write(self, **servers: JsonObject) -> None:
        """Have these servers in our own file."""
        file = self.settings.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    @asynccontextmanager
    async def crib(self, kind: HolderKind = "serve") -> AsyncGenerator[tuple[Holding, ApiClient]]:
        """A crib that listens, and its owner."""
        async with (
            hold(self.settings, kind=kind, environment=self.environment) as holding,
            ApiClient(holding.info.url, owner_token(holding.crib.home), source="api") as client,
        ):
            yield holding, client


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A person with a home."""
    return Bench(tmp_path)


async def pid_of(client: ApiClient, server: str) -> int:
    """The process of a server, by its own word."""
    answer = await client.call(ToolRef(server, "pid"), {})
    assert not answer["isError"], answer
    return int(answer["content"][0]["text"])


async def until_state(client: ApiClient, server: str, state: str) -> JsonObject:
    """Wait until a server stands like this: look, then look again at every event."""
    with anyio.fail_after(20):
        async for _ in client.events(0):
            if (found := await client.server(server))["state"] == state:
                return found
    raise AssertionError(f"The crib ended before {server} was {state}.")


async def until_started(client: ApiClient, tool: str) -> None:
    """Wait until a call left its intent, which nobody announces."""
    for _ in range(1_000):
        if await client.audit(tool=tool):
            return
        await anyio.sleep(0.02)
    raise AssertionError(f"{tool} was not called in time.")


async def test_a_server_in_a_file_is_tools_in_every_list_and_a_call_leaves_its_records(bench: Bench) -> None:
    bench.write(legacy=definition())
    async with bench.crib() as (_, client):
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


async def test_a_killed_server_fails_its_own_calls_only_and_comes_back_by_itself(bench: Bench) -> None:
    bench.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with bench.crib() as (_, client):
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


async def test_a_changed_definition_restarts_its_own_server_and_no_other(bench: Bench) -> None:
    bench.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with bench.crib() as (_, client):
        one, two = await pid_of(client, "one"), await pid_of(client, "two")
        bench.write(one=definition("plain", "3"), two=definition("plain", "2"))
        await client.reload_servers()
        assert await pid_of(client, "one") != one
        assert await pid_of(client, "two") == two
        bench.write(two=definition("plain", "2"))
        await client.reload_servers()
        assert not [tool for tool in await client.tools() if tool["server"] == "one"]
        await eventually(lambda: not Path(f"/proc/{one}").exists())


async def test_after_a_restart_known_tools_are_there_at_once_and_the_server_starts_when_it_is_used(
    bench: Bench,
) -> None:
    bench.write(legacy=definition())
    async with bench.crib() as (_, client):
        await until_state(client, "legacy", "connected")
    async with bench.crib() as (_, client):
        found = await client.server("legacy")
        assert (found["state"], found["tools"]) == ("not_checked", 10)
        assert "pid" not in found
        await pid_of(client, "legacy")
        await until_state(client, "legacy", "connected")


async def test_a_command_of_its_own_connects_only_what_it_is_asked_for(bench: Bench) -> None:
    bench.write(one=definition("plain", "1"), two=definition("plain", "2"))
    async with bench.crib("command") as (_, client):
        problems = await client.tool_problems()
        assert [problem["code"] for problem in problems] == ["server.not_checked", "server.not_checked"]
        await pid_of(client, "one")
        await until_state(client, "one", "connected")
        assert (await client.server("two"))["state"] == "not_checked"


async def test_a_failed_server_tells_exit_code_last_words_and_what_to_do(bench: Bench) -> None:
    code = "import sys; print('no key was given', file=sys.stderr); sys.exit(3)"
    bench.write(broken={"command": sys.executable, "args": ["-c", code]}, fine=definition())
    async with bench.crib() as (_, client):
        tested = await client.test_server("broken")
        assert (tested["state"], tested["exitCode"], tested["stderr"]) == ("failed", 3, ["no key was given"])
        assert "exit code 3" in tested["lastError"]
        assert "no key" not in tested["lastError"], "what it wrote stands beside, not in the sentence"
        assert tested["action"] == "toolcrib mcp test broken"
        await pid_of(client, "fine")
        with pytest.raises(Unavailable, match="broken"):
            await client.call(ToolRef("broken", "anything"), {})


async def test_what_may_not_be_connected_says_why(bench: Bench) -> None:
    bench.write(off=definition(enabled=False), wrong={"command": "x", "url": "http://127.0.0.1:9/"})
    async with bench.crib() as (_, client):
        with pytest.raises(Conflict, match=r'Server "off" is disabled. Run toolcrib mcp enable off first.'):
            await client.test_server("off")
        with pytest.raises(InvalidRequest, match="Invalid server config"):
            await client.test_server("wrong")
        with pytest.raises(InvalidRequest, match="has no sign-in"):
            bench.write(local=definition())
            await client.sign_in("local")


async def test_the_servers_of_a_project_are_for_those_who_ask_from_it(bench: Bench, tmp_path: Path) -> None:
    bench.write(everywhere=definition())
    project = tmp_path / "project"
    (project / ".toolcrib").mkdir(parents=True)
    (project / ".git").mkdir()
    file = project / ".toolcrib" / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"here": definition("plain", "here")}}), encoding="utf-8")
    async with bench.crib() as (holding, client):
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


@pytest.mark.parametrize("runs", [False, True], ids=["alone", "beside a crib that runs"])
async def test_the_bridge_gives_tools_that_can_be_called_and_why_others_are_missing(bench: Bench, runs: bool) -> None:
    bench.write(legacy=definition(), broken={"command": "no-such-program-anywhere"})

    async def use() -> None:
        tools, errors = await bridge.discover_and_load(
            bench.user, settings=bench.settings, environment=bench.environment
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
    async with bench.crib():
        await use()


async def test_shared_legacy_server_sees_no_client_capabilities(bench: Bench) -> None:
    bench.write(shop=definition())
    async with bench.crib() as (_, client):
        answer = await client.call(ToolRef("shop", "abilities"), {})
    assert answer["structuredContent"]["abilities"] == {}
