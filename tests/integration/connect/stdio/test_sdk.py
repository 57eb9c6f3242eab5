"""Our conversation under the official client, and opposite the official server, in both eras."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp.types as types
import pytest
from mcp.client.context import ClientRequestContext
from mcp.client.session import ClientSession
from mcp.client.subscriptions import ToolsListChanged, listen
from mcp.shared.exceptions import MCPError

from integration.connect.stdio.harness import HELLO, TESTS, upstream
from toolcrib.config.resolve import Resolved
from toolcrib.connect import Processes, StdioConnection, open_greeted, open_stdio
from toolcrib.connect.sdk import SdkDispatcher
from toolcrib.errors import Unavailable
from toolcrib.model.protocol import Era

pytestmark = pytest.mark.anyio

SERVER = Resolved(
    command=sys.executable, args=("-m", "integration.connect.stdio.sdk_server"), env={"PYTHONPATH": str(TESTS)}
)
ERAS: tuple[Era, ...] = ("legacy", "modern")


@asynccontextmanager
async def session(
    processes: Processes, era: Era, on_message: Callable[[object], object] = id
) -> AsyncGenerator[tuple[ClientSession, StdioConnection]]:
    """The official client's session on our dispatcher, negotiated in this era."""

    async def handle(message: object) -> None:
        on_message(message)

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"why": "because"})

    with anyio.fail_after(20):
        async with (
            open_stdio(processes, "sdk", SERVER) as connection,
            ClientSession(
                dispatcher=SdkDispatcher(connection), message_handler=handle, elicitation_callback=elicit
            ) as client,
        ):
            await (client.discover() if era == "modern" else client.initialize())
            yield client, connection


def text_of(result: object) -> str:
    """The text of a result."""
    assert isinstance(result, types.CallToolResult)
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_session_lists_calls_and_hears_progress_on_our_pipes(processes: Processes, era: Era) -> None:
    heard: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with session(processes, era) as (client, connection):
        assert client.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo", "count", "wait", "ask", "change"]
        assert text_of(await client.call_tool("echo", {"text": "hello"})) == "hello"
        assert text_of(await client.call_tool("count", {"text": "done"}, progress_callback=report)) == "done"
        meta = HELLO.envelope() if era == "modern" else {}
        raw = await connection.call("tools/call", {"name": "echo", "arguments": {"text": "raw"}, "_meta": meta})
        assert raw["content"] == [{"type": "text", "text": "raw"}]
        assert (connection.dropped.unknown, connection.dropped.malformed, connection.garbage.lines) == (0, 0, 0)
    assert heard == [1.0, 2.0, 3.0]


async def test_a_legacy_server_can_ask_back_and_tell_of_changes(processes: Processes) -> None:
    heard = anyio.Event()
    messages: list[object] = []

    def on_message(message: object) -> None:
        messages.append(message)
        heard.set()

    async with session(processes, "legacy", on_message) as (client, _):
        assert text_of(await client.call_tool("ask", {})) == "{'why': 'because'}"
        await client.call_tool("change", {})
        await heard.wait()
    assert isinstance(messages[0], types.ToolListChangedNotification)


async def test_a_modern_server_tells_of_changes_to_who_listens(processes: Processes) -> None:
    async with session(processes, "modern") as (client, _), listen(client, tools_list_changed=True) as subscription:
        await client.call_tool("change", {})
        assert await anext(subscription) == ToolsListChanged()


@pytest.mark.parametrize("era", ERAS)
async def test_a_time_out_of_the_session_reaches_the_server(processes: Processes, era: Era) -> None:
    async with session(processes, era) as (client, _):
        with pytest.raises(MCPError, match="timed out"):
            await client.call_tool("wait", {}, read_timeout_seconds=0.2)
        assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"


async def test_the_end_of_the_server_ends_the_sessions_calls_with_the_reason(processes: Processes) -> None:
    with anyio.fail_after(10):
        async with (
            open_stdio(processes, "quits", upstream("quits", "call")) as connection,
            ClientSession(dispatcher=SdkDispatcher(connection)) as client,
        ):
            await client.initialize()
            with pytest.raises(MCPError, match="ended with exit code 3") as caught:
                await client.call_tool("any", {})
            assert caught.value.code == types.CONNECTION_CLOSED
            with pytest.raises(MCPError):
                await client.call_tool("any", {})


async def test_the_era_is_found_without_the_sdk(processes: Processes) -> None:
    with anyio.fail_after(20):
        async with open_greeted(processes, "sdk", SERVER, HELLO) as (_, greeting):
            assert (greeting.era, greeting.version) == ("modern", "2026-07-28")
            assert greeting.server_info["name"] == "sdk"
            assert "tools" in greeting.capabilities
        async with open_greeted(processes, "sdk", SERVER, HELLO, era="legacy") as (_, greeting):
            assert (greeting.era, greeting.version) == ("legacy", "2025-11-25")
            assert greeting.server_info["name"] == "sdk"


async def test_what_is_no_mcp_server_is_told_with_what_it_said(processes: Processes) -> None:
    with anyio.fail_after(10), pytest.raises(Unavailable, match=r"known version of MCP.*error -32601") as caught:
        async with open_greeted(processes, "hangs", upstream("speaks_nothing"), HELLO):
            pass
    assert caught.value.code == "server.protocol"
