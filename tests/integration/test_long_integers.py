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
class NumbersCrib:
    """A crib with one upstream server, its API client and a plain HTTP client."""

    http: httpx2.AsyncClient
    api: ApiClient

    async def send(self, method: str, params: str, *, modern: bool = True) -> str:
        """Send an MCP message as written; return the text of the response."""
        body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if modern:
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            headers |= {"mcp-name": "echo"} if method == "tools/call" else {}
        elif method != "initialize":
            headers |= {"mcp-session-id": await self.session()}
        answer = await self.http.post("/mcp/servers/numbers", content=body, headers=headers)
        return answer.headers.get("mcp-session-id", "") if method == "initialize" else answer.text

    async def session(self) -> str:
        """Open a session of the legacy era and return its id."""
        about = '"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}'
        return await self.send("initialize", f"{{{about}}}", modern=False)


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncGenerator[NumbersCrib]:
    """A crib that has listed the tools of its upstream."""
    home = prepare_home(tmp_path / "home")
    entry = {
        "command": sys.executable,
        "args": ["-S", "-m", "upstreams.big_integers"],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }
    home.mcp_json.write_text(json.dumps({"mcpServers": {"numbers": entry}}), encoding="utf-8")
    environment = Environment({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    async with open_numbers(Settings(home=home.root, port=0), environment) as numbers:
        await numbers.api.call(ECHO, {})
        yield numbers


@asynccontextmanager
async def open_numbers(settings: Settings, environment: Environment) -> AsyncGenerator[NumbersCrib]:
    """Run a crib on a free port."""
    async with hold(settings, kind="serve", environment=environment) as holding:
        url, token = holding.info.url, owner_token(holding.crib.home)
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False, verify=PLAIN) as http,
            ApiClient(url, token, source="api") as api,
        ):
            yield NumbersCrib(http, api)


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_arguments_and_results_of_mcp_keep_every_digit(numbers: NumbersCrib, *, modern: bool) -> None:
    meta = f',"_meta":{META}' if modern else ""
    params = f'{{"name":"echo","arguments":{{"number":{NUMBER},"less":{-NUMBER},"text":"{NUMBER}"}}{meta}}}'
    answer = await numbers.send("tools/call", params, modern=modern)
    assert f'"structuredContent":{{"number":{NUMBER},"less":{-NUMBER},"text":"{NUMBER}"}}' in answer


async def test_lists_of_tools_keep_every_digit(numbers: NumbersCrib) -> None:
    assert f'"maximum":{LARGEST}' in await numbers.send("tools/list", f'{{"_meta":{META}}}')
    (tool,) = [each for each in await numbers.api.tools() if each["name"] == "echo" and each["server"] == "numbers"]
    assert tool["inputSchema"]["properties"]["number"]["maximum"] == LARGEST


async def test_rest_call_and_its_audit_record_keep_every_digit(numbers: NumbersCrib) -> None:
    answer = await numbers.api.call(ECHO, {"number": NUMBER})
    assert answer["structuredContent"] == {"number": NUMBER}
    records = await numbers.api.audit(tool=str(ECHO))
    assert {"number": NUMBER} in [record.get("arguments") for record in records]
    assert (await numbers.api.verify_audit())["ok"]


async def test_approval_shows_the_exact_integer_and_runs_the_edited_one(numbers: NumbersCrib) -> None:
    await numbers.api.permissions.add_rule({"effect": "ask", "pattern": "numbers/*"})
    answers: list[object] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            path = "/api/tools/numbers/echo/call?mode=default"
            answer = await numbers.http.post(path, json={"arguments": {"number": NUMBER}})
            answers.append(answer.json()["structuredContent"])

        tasks.start_soon(call)
        with anyio.fail_after(30):
            while not (waiting := await numbers.api.permissions.approvals(status="pending")):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert waiting[0]["arguments"] == {"number": NUMBER}
        await numbers.api.permissions.answer(
            waiting[0]["id"], {"decision": "approve", "arguments": {"number": NUMBER + 1}}
        )
    assert answers == [{"number": NUMBER + 1}]


async def test_integer_with_too_many_digits_is_refused(numbers: NumbersCrib) -> None:
    params = f'{{"name":"echo","arguments":{{"number":{"9" * (DIGITS_LIMIT + 1)}}},"_meta":{META}}}'
    answer = json.loads(await numbers.send("tools/call", params))
    assert answer["error"]["code"] == -32700
    assert "digits" in answer["error"]["message"]


async def test_settings_of_the_crib_refuse_integers_beyond_64_bits(numbers: NumbersCrib) -> None:
    body = f'{{"effect":"deny","tool":"numbers/*","priority":{NUMBER}}}'
    answer = await numbers.http.post("/api/policy/rules", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "64 bits" in answer.text
