"""The zoo in the official client, in both eras: injection, prompts, resources and notifications."""

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
class ZooLab:
    """A listening crib and its REST client."""

    lab: Lab
    rest: httpx2.AsyncClient


@pytest.fixture
async def zoo_lab(tmp_path: Path) -> AsyncGenerator[ZooLab]:
    """Run a crib with the starter agents."""
    lab = make_lab(tmp_path)
    async with hold(lab.settings, kind="serve") as holding:
        lab = replace(lab, url=holding.info.url)
        async with lab.http() as rest:
            yield ZooLab(lab, rest)


async def result_of(client: Client, tool: str, **arguments: Json) -> JsonObject:
    """Return the result of a zoo tool; its text and structured content are the same."""
    result = await client.call_tool(tool, arguments)
    (part,) = result.content
    assert isinstance(part, TextContent)
    assert json.loads(part.text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content


@both_eras
async def test_agents_are_listed_and_injected_in_both_formats(zoo_lab: ZooLab, era: ModeName) -> None:
    async with zoo_lab.lab.client("http", era) as client:
        listed = await result_of(client, "agent_zoo_list_agents")
        assert {"id": "reviewer", "name": "Code Reviewer"} in listed["agents"]
        first = await result_of(client, "agent_zoo_inject", agentId="reviewer")
        assert first["prompt"].startswith(
            "You are now Code Reviewer. Use agentId=reviewer for all agent_zoo tool usage."
        )
        second = await result_of(client, "agent_zoo_inject", agentId="writer")
        assert second["agentName"] == "Documentation Writer"
        parts = await result_of(client, "agent_zoo_inject", agentId="writer", format="structured")
        assert parts.keys() == {"agentId", "agentName", "systemPrompt", "skills"}


@both_eras
async def test_failures_are_error_results_with_a_code(zoo_lab: ZooLab, era: ModeName) -> None:
    async with zoo_lab.lab.client("http", era) as client:
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
async def test_every_listed_prompt_and_resource_can_be_read(zoo_lab: ZooLab, era: ModeName) -> None:
    async with zoo_lab.lab.client("http", era) as client:
        entry = await result_of(
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
async def test_changes_over_rest_are_visible_to_the_client_at_once(zoo_lab: ZooLab, era: ModeName) -> None:
    async with zoo_lab.lab.client("http", era) as client:
        assert (await zoo_lab.rest.post("/api/agents", json={"name": "New One"})).status_code == 201
        assert "agent_zoo_use_new-one" in [each.name for each in (await client.list_prompts()).prompts]
        assert {"id": "new-one", "name": "New One"} in (await result_of(client, "agent_zoo_list_agents"))["agents"]
        assert (await zoo_lab.rest.delete("/api/agents/new-one")).status_code == 200
        assert "agent_zoo_use_new-one" not in [each.name for each in (await client.list_prompts()).prompts]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # only in the legacy era
async def test_legacy_client_is_notified_of_changed_agents(zoo_lab: ZooLab) -> None:
    messages: list[str] = []
    async with zoo_lab.lab.client("http", "legacy", lambda message: messages.append(method_and_uri(message))) as client:
        await client.list_prompts()
        await client.subscribe_resource(WRITER)  # pyright: ignore[reportDeprecated] only in the legacy era
        await zoo_lab.rest.put("/api/agents/writer", json={"name": "Scribe"})
        for expected in ("notifications/prompts/list_changed", f"notifications/resources/updated {WRITER}"):
            await eventually(lambda expected=expected: expected in messages)


async def test_modern_client_is_notified_of_changed_agents_and_brains(zoo_lab: ZooLab) -> None:
    brain = f"{WRITER}/brain"
    async with (
        zoo_lab.lab.client("http", "2026-07-28") as client,
        client.listen(prompts_list_changed=True) as prompts,
        client.listen(resource_subscriptions=[brain]) as memories,
    ):
        await zoo_lab.rest.post("/api/agents", json={"name": "New"})
        await zoo_lab.rest.post("/api/agents/writer/brain", json={"type": "note", "content": "x"})
        with anyio.fail_after(10):
            await anext(aiter(prompts))
            assert getattr(await anext(aiter(memories)), "uri", None) == brain


async def test_enabled_skill_grants_its_tools(zoo_lab: ZooLab) -> None:
    body: JsonObject = {
        "name": "Narrow", "toolPermissions": ["agent_zoo/*"],
        "skills": [{"id": "lab", "name": "Lab", "enabled": False, "tools": ["lab/echo"]}],
    }  # fmt: skip
    await zoo_lab.rest.post("/api/agents", json=body)

    async def visible_servers() -> set[str]:
        result_of = await zoo_lab.rest.get("/api/tools", params={"agent": "narrow", "source": "ide"})
        return {tool["server"] for tool in result_of.json()}

    assert await visible_servers() == {"agent_zoo"}
    await zoo_lab.rest.patch("/api/agents/narrow/skills/lab", json={"enabled": True})
    assert await visible_servers() == {"agent_zoo", "lab"}
    await zoo_lab.rest.delete("/api/agents/narrow")
    assert await visible_servers() == set()


def method_and_uri(message: object) -> str:
    method, params = getattr(message, "method", ""), getattr(message, "params", None)
    return f"{method} {getattr(params, 'uri', '')}".strip()
