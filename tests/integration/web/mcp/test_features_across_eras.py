"""Features between clients and servers of both eras: every row of the table in docs/protocol.md."""

import json
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceLink,
    Root,
    TextContent,
)

from lab import Lab, ModeName, make_lab
from toolcrib.model.json import JsonObject
from toolcrib.web.run import hold
from upstreams.translated_features import ICONS, OUTPUT

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
PAGE = TESTS.parent / "docs" / "protocol.md"


async def elicited(context: object, params: Any) -> ElicitResult:
    """Accept an elicitation."""
    if params.mode == "url":
        assert (params.message, params.url) == ("Sign in.", "https://example.com/in")
        return ElicitResult(action="decline")
    assert (params.message, list(params.requested_schema["properties"])) == ("Who are you?", ["name"])
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sampled(context: object, params: Any) -> CreateMessageResult:
    (message,) = params.messages
    assert (message.role, message.content.text, params.max_tokens) == ("user", "Say yes.", 10)
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")


async def rooted(context: object) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///work")])  # pyright: ignore[reportArgumentType] parsed from text


@asynccontextmanager
async def connected(folder: Path, client_era: ModeName, server_era: str) -> AsyncGenerator[Client]:
    """Connect a client of one era, through the crib, to a server of another."""
    stopped = make_lab(folder)
    arguments = ["-S", "-m", "upstreams.translated_features", server_era]
    server: JsonObject = {"command": sys.executable, "args": arguments, "share": "session"}
    server["env"] = {"PYTHONPATH": str(TESTS)}
    (stopped.home / "mcp.json").write_text(json.dumps({"mcpServers": {"far": server}}), encoding="utf-8")
    async with hold(stopped.settings, kind="serve") as holding:
        lab: Lab = replace(stopped, url=holding.info.url)
        async with lab.http() as http:
            assert (await http.post("/api/servers/far/test")).json()["state"] == "connected"
        async with lab.client(
            "http",
            client_era,
            elicitation_callback=elicited,
            sampling_callback=sampled,
            list_roots_callback=rooted,
        ) as client:
            yield client


async def answer(client: Client, what: str) -> JsonObject:
    result = await client.call_tool("far_ask", {"what": what})
    assert result.structured_content is not None, result
    return result.structured_content["answer"]


async def form(client: Client) -> None:
    assert await answer(client, "form") == {"action": "accept", "content": {"name": "Ada"}}


async def url(client: Client) -> None:
    assert (await answer(client, "url"))["action"] == "decline"


async def sampling(client: Client) -> None:
    assert (await answer(client, "sampling"))["content"]["text"] == "yes"


async def roots(client: Client) -> None:
    assert (await answer(client, "roots"))["roots"][0]["uri"] == "file:///work"


async def completions(client: Client) -> None:
    found = await client.complete(PromptReference(type="ref/prompt", name="far_greet"), {"name": "who", "value": "A"})
    assert found.completion.values == ["Ada"]


async def icons(client: Client) -> None:
    (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "far_ask"]
    (prompt,) = [prompt for prompt in (await client.list_prompts()).prompts if prompt.name == "far_greet"]
    (resource,) = [each for each in (await client.list_resources()).resources if str(each.uri) == "note://one"]
    for item in (tool, prompt, resource):
        (icon,) = item.icons or []
        assert (icon.src, icon.mime_type, icon.sizes) == (ICONS[0]["src"], "image/svg+xml", ["any"])


async def structured(client: Client) -> None:
    (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "far_ask"]
    assert tool.output_schema == OUTPUT
    result = await client.call_tool("far_ask", {"what": "form"})
    assert result.structured_content == {"answer": {"action": "accept", "content": {"name": "Ada"}}}


async def links(client: Client) -> None:
    (link,) = (await client.call_tool("far_link", {})).content
    assert isinstance(link, ResourceLink)
    assert (str(link.uri), link.name, link.mime_type) == ("note://one", "one", "text/plain")


CARRIED: dict[str, Callable[[Client], Awaitable[None]]] = {
    "elicitation with a form": form,
    "elicitation with a URL": url,
    "sampling": sampling,
    "roots": roots,
    "completions": completions,
    "icons": icons,
    "structured output": structured,
    "resource links": links,
}
"""The checks of the features, by name in the table."""


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
@pytest.mark.parametrize("client_era", ["legacy", "2026-07-28"])
async def test_every_feature_works_between_both_eras(tmp_path: Path, client_era: ModeName, server_era: str) -> None:
    async with connected(tmp_path, client_era, server_era) as client:
        for check in CARRIED.values():
            await check(client)


def test_table_lists_the_tested_features() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Between the eras\n")
    rows = re.findall(r"^\| ([a-zA-Z ]+) \| yes \| yes \| yes \| yes \|", section, re.MULTILINE)
    assert rows == list(CARRIED)
