"""The zoo in a real client, in both eras: injected into a fresh chat, switched, inspected, and all of it read."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.types import PromptReference, TextContent, TextResourceContents

from lab import Lab, ModeName, eventually, make_lab
from toolcrib.model.json import Json, JsonObject
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
WRITER = "agent-zoo://agents/writer"
both_eras = pytest.mark.parametrize("era", ERAS)


@dataclass(frozen=True)
class Chat:
    """A crib that listens, and a way to its REST."""

    lab: Lab
    rest: httpx2.AsyncClient


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncGenerator[Chat]:
    """A running crib with the starters."""
    stopped = make_lab(tmp_path)
    async with hold(stopped.settings, kind="serve") as holding:
        lab = replace(stopped, url=holding.info.url)
        async with lab.http() as rest:
            yield Chat(lab, rest)


async def answer(client: Client, tool: str, **arguments: Json) -> JsonObject:
    """What a tool of the zoo answers; text and structured content are the same."""
    result = await client.call_tool(tool, arguments)
    (part,) = result.content
    assert isinstance(part, TextContent)
    assert json.loads(part.text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content


@both_eras
async def test_an_agent_is_injected_into_a_fresh_chat_switched_and_inspected(chat: Chat, era: ModeName) -> None:
    async with chat.lab.client("http", era) as client:
        listed = await answer(client, "agent_zoo_list_agents")
        assert {"id": "reviewer", "name": "Code Reviewer"} in listed["agents"]
        first = await answer(client, "agent_zoo_inject", agentId="reviewer")
        assert first["prompt"].startswith(
            "You are now Code Reviewer. Use agentId=reviewer for all agent_zoo tool usage."
        )
        second = await answer(client, "agent_zoo_inject", agentId="writer")
        assert second["agentName"] == "Documentation Writer"
        parts = await answer(client, "agent_zoo_inject", agentId="writer", format="structured")
        assert parts.keys() == {"agentId", "agentName", "systemPrompt", "skills"}


@both_eras
async def test_failures_are_results_with_a_code(chat: Chat, era: ModeName) -> None:
    async with chat.lab.client("http", era) as client:
        for arguments, code in (
            ({"agentId": "xyz"}, "AGENT_NOT_FOUND"),
            ({"agentId": "writer", "format": "xml"}, "INVALID_FORMAT"),
            ({}, "INVALID_ARGUMENTS"),
        ):
            result = await client.call_tool("agent_zoo_inject", arguments)
            assert result.is_error
            assert result.structured_content is not None
            assert result.structured_content["code"] == code


@both_eras
async def test_every_listed_prompt_and_resource_can_be_had(chat: Chat, era: ModeName) -> None:
    async with chat.lab.client("http", era) as client:
        entry = await answer(
            client, "agent_zoo_create_brain_entry", agentId="writer", type="note", content="Short sentences."
        )
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert "agent-zoo://agents/writer/brain" in uris
        for uri in (*uris, f"agent-zoo://agents/writer/brain/{entry['id']}"):
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, TextResourceContents)
            assert json.loads(content.text)
        names = [each.name for each in (await client.list_prompts()).prompts]
        assert "agent_zoo_use_writer" in names
        for name in names:
            (message,) = (await client.get_prompt(name)).messages
            assert isinstance(message.content, TextContent)
            assert message.content.text.startswith("You are now ")
        reference = PromptReference(type="ref/prompt", name="agent_zoo_use_writer")
        completed = await client.complete(reference, {"name": "format", "value": "c"})
        assert completed.completion.values == ["compiled"]


@both_eras
async def test_what_rest_changes_the_client_sees_at_once(chat: Chat, era: ModeName) -> None:
    async with chat.lab.client("http", era) as client:
        assert (await chat.rest.post("/api/agents", json={"name": "New One"})).status_code == 201
        assert "agent_zoo_use_new-one" in [each.name for each in (await client.list_prompts()).prompts]
        assert {"id": "new-one", "name": "New One"} in (await answer(client, "agent_zoo_list_agents"))["agents"]
        assert (await chat.rest.delete("/api/agents/new-one")).status_code == 200
        assert "agent_zoo_use_new-one" not in [each.name for each in (await client.list_prompts()).prompts]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # the legacy era has it
async def test_a_legacy_client_hears_of_changed_agents(chat: Chat) -> None:
    heard: list[str] = []
    async with chat.lab.client("http", "legacy", lambda message: heard.append(_told(message))) as client:
        await client.list_prompts()
        await client.subscribe_resource(WRITER)  # pyright: ignore[reportDeprecated] the legacy era has it
        await chat.rest.put("/api/agents/writer", json={"name": "Scribe"})
        for wanted in ("notifications/prompts/list_changed", f"notifications/resources/updated {WRITER}"):
            await eventually(lambda wanted=wanted: wanted in heard)


async def test_a_modern_client_hears_of_changed_agents_and_brains(chat: Chat) -> None:
    brain = f"{WRITER}/brain"
    async with (
        chat.lab.client("http", "2026-07-28") as client,
        client.listen(prompts_list_changed=True) as prompts,
        client.listen(resource_subscriptions=[brain]) as memories,
    ):
        await chat.rest.post("/api/agents", json={"name": "New"})
        await chat.rest.post("/api/agents/writer/brain", json={"type": "note", "content": "x"})
        with anyio.fail_after(10):
            await anext(aiter(prompts))
            assert getattr(await anext(aiter(memories)), "uri", None) == brain


async def test_an_agent_sees_what_it_was_given_and_a_switched_skill_grants_its_tools(chat: Chat) -> None:
    body: JsonObject = {
        "name": "Narrow", "toolPermissions": ["agent_zoo/*"],
        "skills": [{"id": "lab", "name": "Lab", "enabled": False, "tools": ["lab/echo"]}],
    }  # fmt: skip
    await chat.rest.post("/api/agents", json=body)

    async def seen() -> set[str]:
        answer = await chat.rest.get("/api/tools", params={"agent": "narrow", "source": "ide"})
        return {tool["server"] for tool in answer.json()}

    assert await seen() == {"agent_zoo"}
    await chat.rest.patch("/api/agents/narrow/skills/lab", json={"enabled": True})
    assert await seen() == {"agent_zoo", "lab"}
    await chat.rest.delete("/api/agents/narrow")
    assert await seen() == set()


def _told(message: object) -> str:
    method, params = getattr(message, "method", ""), getattr(message, "params", None)
    return f"{method} {getattr(params, 'uri', '')}".strip()
