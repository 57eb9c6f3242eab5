"""Servers from npm, used through every entry point of a crib."""

from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest
from mcp_types import TextContent, TextResourceContents

from lab import ModeName
from long_tests import takes_long
from registry.crib import Crib
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ERAS: tuple[ModeName, ...] = ("legacy", "2026-07-28")


class Start(Protocol):
    """Runs a crib with this server, its arguments and its variables."""

    def __call__(self, server: str, *words: str, **variables: str) -> AbstractContextManager[Crib]: ...


@pytest.fixture
def start(node_programs: Path, tmp_path: Path) -> Start:
    def run(server: str, *words: str, **variables: str) -> AbstractContextManager[Crib]:
        command = str(node_programs / f"mcp-server-{server}")
        entry: JsonObject = {"command": command, "args": [*words], "env": variables}
        return Crib.serving_one(tmp_path, server, entry, node_programs)

    return run


@pytest.fixture
def shared(tmp_path: Path) -> Generator[Path]:
    """Create a folder with a file in it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "note.txt").write_text("Wer liest, ist nie allein.\n", encoding="utf-8")
    yield folder.resolve()


async def test_file_is_read_through_every_entry_point(start: Start, shared: Path) -> None:
    arguments = {"path": str(shared / "note.txt")}
    with start("filesystem", str(shared)) as crib:
        await crib.until_connected()
        listed = await crib.listed()
        assert listed["rest"] == listed["cli"] == listed["mcp"]
        assert {"read_text_file", "write_file", "list_directory"} <= listed["rest"]
        assert "nie allein" in await crib.by_rest("read_text_file", arguments)
        assert "nie allein" in await crib.by_command("read_text_file", arguments)
        async with crib.client() as client:
            answer = await client.call_tool("filesystem_read_text_file", arguments)
        assert answer.structured_content == {"content": "Wer liest, ist nie allein.\n"}


async def test_server_refuses_paths_outside_of_its_folder(start: Start, shared: Path) -> None:
    with start("filesystem", str(shared)) as crib:
        await crib.until_connected()
        async with crib.client() as client:
            answer = await client.call_tool("filesystem_read_text_file", {"path": "/etc/hostname"})
    assert answer.is_error
    assert isinstance(answer.content[0], TextContent)
    assert "Access denied" in answer.content[0].text


@takes_long
async def test_memory_is_shared_between_entry_points(start: Start, tmp_path: Path) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    with start("memory", MEMORY_FILE_PATH=str(tmp_path / "graph.jsonl")) as crib:
        await crib.until_connected()
        async with crib.client("2026-07-28") as client:
            made = await client.call_tool("memory_create_entities", {"entities": [ada]})
            assert not made.is_error
        assert "wrote the first program" in await crib.by_command("read_graph", {})
        assert "wrote the first program" in await crib.by_rest("search_nodes", {"query": "Ada"})


@takes_long
async def test_thought_is_counted(start: Start) -> None:
    thought = {"thought": "First.", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    with start("sequential-thinking") as crib:
        await crib.until_connected()
        assert (await crib.listed())["mcp"] == {"sequentialthinking"}
        assert '"totalThoughts": 2' in await crib.by_rest("sequentialthinking", thought)


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_prompts_and_resources_reach_the_client(start: Start, mode: ModeName) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    with start("everything") as crib:
        await crib.until_connected()
        async with crib.client(mode) as client:
            said = await client.call_tool("everything_echo", {"message": "hello"})
            assert said.content == [TextContent(text="Echo: hello")]
            work = {"duration": 0.4, "steps": 4}
            await client.call_tool("everything_trigger-long-running-operation", work, progress_callback=on_progress)
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            assert "everything_args-prompt" in prompts
            prompt = await client.get_prompt("everything_args-prompt", {"city": "Ulm"})
            resources = [resource.uri for resource in (await client.list_resources()).resources]
            read = await client.read_resource(resources[0])
    assert seen == [1, 2, 3, 4]
    assert isinstance(prompt.messages[0].content, TextContent)
    assert "Ulm" in prompt.messages[0].content.text
    assert isinstance(read.contents[0], TextResourceContents)
    assert read.contents[0].text


@takes_long
async def test_server_keeps_its_tool_names_at_its_own_address(start: Start) -> None:
    with start("everything") as crib:
        await crib.until_connected()
        async with crib.client(path="/mcp/servers/everything") as client:
            assert "get-sum" in {tool.name for tool in (await client.list_tools()).tools}
            answer = await client.call_tool("get-sum", {"a": 2, "b": 3})
            assert answer.content == [TextContent(text="The sum of 2 and 3 is 5.")]
            assert "simple-prompt" in {prompt.name for prompt in (await client.list_prompts()).prompts}
            templates = (await client.list_resource_templates()).resource_templates
            assert templates
