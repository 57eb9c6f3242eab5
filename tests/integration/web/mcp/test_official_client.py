"""The official client, in both eras, over HTTP and stdio."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from mcp import MCPError

from lab import Door, Lab, ModeName, eventually, make_lab
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
DOORS: list[Door] = ["http", "stdio"]
both_eras = pytest.mark.parametrize("era", ERAS)
both_doors = pytest.mark.parametrize("door", DOORS)


@both_doors
@both_eras
async def test_python_tool_is_listed_and_called(lab: Lab, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"lab_echo", "toolcrib_ping"} <= tools.keys()
        assert tools["lab_echo"].input_schema["required"] == ["text"]
        result = await client.call_tool("lab_echo", {"text": "ab", "times": 2})
        assert (result.is_error, result.structured_content) == (False, {"said": "abab"})


@both_doors
@both_eras
async def test_ping_returns_exactly_its_fields(lab: Lab, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        answer = (await client.call_tool("toolcrib_ping", {})).structured_content
        assert answer is not None
        assert answer.keys() == {"status", "timestamp", "server"}
        assert (answer["status"], answer["server"]) == ("pong", "toolcrib")


@both_doors
@both_eras
async def test_unknown_tool_is_a_protocol_error(lab: Lab, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("lab_nothing", {})
        assert caught.value.error.code == -32602


@both_eras
async def test_privileged_tool_is_indistinguishable_from_an_unknown_one(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era) as client:
        assert "lab_secret" not in {tool.name for tool in (await client.list_tools()).tools}
        for name in ("lab_secret", "lab_nothing"):
            with pytest.raises(MCPError, match=f"^Unknown tool: {name}$"):
                await client.call_tool(name, {})


@both_eras
@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"text": 5}, "text"), ({}, "text"), ({"text": "a", "times": "2"}, "times"), ({"text": "a", "tmes": 2}, "tmes")],
)
async def test_invalid_arguments_are_an_error_result_that_names_the_field(
    lab: Lab, era: ModeName, arguments: dict[str, Any], named: str
) -> None:
    async with lab.client("http", era) as client:
        result = await client.call_tool("lab_echo", arguments)
        assert result.is_error
        assert named in str(result.content)


@both_doors
@both_eras
async def test_raising_or_hanging_tool_is_an_error_result(lab: Lab, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        raised = await client.call_tool("lab_fail", {"message": "no luck"})
        assert (raised.is_error, "no luck" in str(raised.content)) == (True, True)
        hung = await client.call_tool("lab_hang", {})
        assert (hung.is_error, "0.05 s" in str(hung.content)) == (True, True)
        assert not (await client.call_tool("lab_echo", {"text": "a"})).is_error


@both_doors
@both_eras
async def test_progress_arrives_in_order(lab: Lab, door: Door, era: ModeName) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with lab.client(door, era) as client:
        result = await client.call_tool("lab_count_to", {"end": 3}, progress_callback=on_progress)
    assert not result.is_error
    assert seen == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


@both_doors
@both_eras
async def test_cancelled_call_is_cancelled_in_the_tool(lab: Lab, door: Door, era: ModeName, tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with lab.client(door, era) as client, anyio.create_task_group() as calls:
        calls.start_soon(client.call_tool, "lab_wait_for_ever", {"note": str(note)})
        await eventually(lambda: note.exists() and note.read_text() == "started")
        calls.cancel_scope.cancel()
    await eventually(lambda: note.read_text() == "cancelled")


@both_doors
async def test_legacy_client_gets_list_changes(lab: Lab, door: Door) -> None:
    changed = anyio.Event()

    def on_message(message: object) -> None:
        if "tools/list_changed" in str(getattr(message, "method", "")):
            changed.set()

    async with lab.client(door, "legacy", on_message) as client:
        await client.list_tools()
        lab.add_module("later")
        with anyio.fail_after(10):
            await changed.wait()
        assert "later_hello" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("later_hello", {})).content


@both_doors
async def test_modern_client_gets_list_changes_while_listening(lab: Lab, door: Door) -> None:
    async with (
        lab.client(door, "2026-07-28") as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        lab.add_module("later")
        with anyio.fail_after(10):
            await anext(aiter(changes))
        assert "later_hello" in {tool.name for tool in (await client.list_tools()).tools}


@both_eras
async def test_printed_output_of_a_tool_does_not_disturb_the_protocol(lab: Lab, era: ModeName, tmp_path: Path) -> None:
    async with lab.client("stdio", era) as client:
        for _ in range(3):
            result = await client.call_tool("lab_shout", {"text": "quiet"})
            assert "QUIET" in str(result.content)


@both_eras
async def test_concurrent_clients_get_their_own_results(lab: Lab, era: ModeName) -> None:
    async def one(name: str) -> None:
        async with lab.client("http", era) as client:
            for number in range(10):
                result = await client.call_tool("lab_echo", {"text": f"{name}-{number}"})
                assert result.structured_content == {"said": f"{name}-{number}"}

    async with anyio.create_task_group() as clients:
        for name in ("a", "b", "c", "d"):
            clients.start_soon(one, name)


async def test_auto_negotiation_finds_the_modern_era(lab: Lab) -> None:
    async with lab.client("http", "auto") as client:  # pyright: ignore[reportArgumentType] one more than we test in full
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert client.server_info.name == "toolcrib"


async def test_crib_stops_promptly_while_clients_listen(tmp_path: Path) -> None:
    stopped, stop, ended = make_lab(tmp_path), anyio.Event(), anyio.Event()

    async def run(*, task_status: TaskStatus[str]) -> None:
        async with hold(stopped.settings, kind="serve") as holding:
            task_status.started(holding.info.url)
            await stop.wait()
        ended.set()

    async with anyio.create_task_group() as tasks:
        lab = replace(stopped, url=await tasks.start(run))
        async with lab.client("http", "2026-07-28") as client, client.listen(tools_list_changed=True) as changes:
            stop.set()
            with anyio.fail_after(3):
                await ended.wait()
                assert [change async for change in changes] == []
