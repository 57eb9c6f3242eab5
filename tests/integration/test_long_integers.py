"""Integers beyond 64 bits pass unchanged through both eras of MCP, REST, approvals, the audit and lists of tools."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest

from http_clients import PLAIN
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.json import DIGITS_LIMIT
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
NUMBER = 123456789012345678901234567890
LARGEST = 10**30
ECHO = ToolRef("numbers", "echo")
KEY = "io.modelcontextprotocol"
META = f'{{"{KEY}/protocolVersion":"2026-07-28","{KEY}/clientCapabilities":{{}}}}'


@dataclass(frozen=True)
class Desk:
    """A crib with one upstream server, and two ways to ask it."""

    raw: httpx2.AsyncClient
    client: ApiClient

    async def send(self, method: str, params: str, *, modern: bool = True) -> str:
        """Send a message of MCP, byte for byte; return the answer as it came."""
        body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if modern:
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            headers |= {"mcp-name": "echo"} if method == "tools/call" else {}
        elif method != "initialize":
            headers |= {"mcp-session-id": await self.session()}
        answer = await self.raw.post("/mcp/servers/numbers", content=body, headers=headers)
        return answer.headers.get("mcp-session-id", "") if method == "initialize" else answer.text

    async def session(self) -> str:
        """The id of a new session of the legacy era."""
        about = '"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}'
        return await self.send("initialize", f"{{{about}}}", modern=False)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    """A crib that knows what its upstream offers."""
    home = prepare_home(tmp_path / "home")
    entry = {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.big_integers"],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }
    home.mcp_json.write_text(json.dumps({"mcpServers": {"numbers": entry}}), encoding="utf-8")
    environment = Environment({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    async with opened(Settings(home=home.root, port=0), environment) as desk:
        await desk.client.call(ECHO, {})
        yield desk


@asynccontextmanager
async def opened(settings: Settings, environment: Environment) -> AsyncGenerator[Desk]:
    """A crib that listens."""
    async with hold(settings, kind="serve", environment=environment) as holding:
        url, token = holding.info.url, owner_token(holding.crib.home)
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False, verify=PLAIN) as raw,
            ApiClient(url, token, source="api") as client,
        ):
            yield Desk(raw, client)


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_arguments_and_results_of_mcp_keep_every_digit(desk: Desk, *, modern: bool) -> None:
    meta = f',"_meta":{META}' if modern else ""
    params = f'{{"name":"echo","arguments":{{"number":{NUMBER},"less":{-NUMBER},"text":"{NUMBER}"}}{meta}}}'
    answer = await desk.send("tools/call", params, modern=modern)
    assert f'"structuredContent":{{"number":{NUMBER},"less":{-NUMBER},"text":"{NUMBER}"}}' in answer


async def test_the_lists_of_tools_keep_every_digit(desk: Desk) -> None:
    assert f'"maximum":{LARGEST}' in await desk.send("tools/list", f'{{"_meta":{META}}}')
    (tool,) = [each for each in await desk.client.tools() if each["name"] == "echo" and each["server"] == "numbers"]
    assert tool["inputSchema"]["properties"]["number"]["maximum"] == LARGEST


async def test_a_rest_call_and_its_record_keep_every_digit(desk: Desk) -> None:
    answer = await desk.client.call(ECHO, {"number": NUMBER})
    assert answer["structuredContent"] == {"number": NUMBER}
    records = await desk.client.audit(tool=str(ECHO))
    assert {"number": NUMBER} in [record.get("arguments") for record in records]
    assert (await desk.client.verify_audit())["ok"]


async def test_an_approval_shows_and_runs_the_exact_integer(desk: Desk) -> None:
    await desk.client.permissions.add_rule({"effect": "ask", "pattern": "numbers/*"})
    answers: list[object] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            path = "/api/tools/numbers/echo/call?mode=default"
            answer = await desk.raw.post(path, json={"arguments": {"number": NUMBER}})
            answers.append(answer.json()["structuredContent"])

        tasks.start_soon(call)
        with anyio.fail_after(30):
            while not (waiting := await desk.client.permissions.approvals(status="pending")):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert waiting[0]["arguments"] == {"number": NUMBER}
        await desk.client.permissions.answer(
            waiting[0]["id"], {"decision": "approve", "arguments": {"number": NUMBER + 1}}
        )
    assert answers == [{"number": NUMBER + 1}]


async def test_an_integer_with_too_many_digits_is_refused(desk: Desk) -> None:
    params = f'{{"name":"echo","arguments":{{"number":{"9" * (DIGITS_LIMIT + 1)}}},"_meta":{META}}}'
    answer = json.loads(await desk.send("tools/call", params))
    assert answer["error"]["code"] == -32700
    assert "digits" in answer["error"]["message"]


async def test_a_setting_of_the_crib_takes_no_integer_beyond_64_bits(desk: Desk) -> None:
    body = f'{{"effect":"deny","tool":"numbers/*","priority":{NUMBER}}}'
    answer = await desk.raw.post("/api/policy/rules", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "64 bits" in answer.text
