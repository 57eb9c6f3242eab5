"""The built-in server `agent_zoo`: its tools, its prompts and its resources, as a client meets them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from integration.agents.zoo.zoos import Keeper, keeping
from toolcrib.builtin.agent_zoo.source import PROMPT, ROOT, AgentZooSource
from toolcrib.builtin.agent_zoo.tools import agent_zoo_inject, agent_zoo_list_agents
from toolcrib.gate.catalog.naming import plain_name
from toolcrib.model.agents import AGENT_ID
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolcrib.model.sources import CallContext, ContentMethod, ContentSource, ProtocolError
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.tools import Context

pytestmark = pytest.mark.anyio

CONTEXT = CallContext(Principal("session", "s", "ide", agent="writer", session="session-1"), "call-1")


@dataclass
class World:
    """A zoo and the server on it."""

    keeper: Keeper
    source: AgentZooSource

    async def call(self, tool: str, **arguments: Any) -> CallResult:
        """Call a tool."""
        run = self.source.prepare(tool, arguments, canonical(arguments))
        result = await run(CONTEXT)
        (part,) = result.content
        assert part["type"] == "text"
        assert orjson.loads(part["text"]) == result.structured_content
        return result

    async def answer(self, tool: str, **arguments: Any) -> JsonObject:
        """Call a tool that works."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result
        return result.structured_content

    async def code(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails; gives the code."""
        result = await self.call(tool, **arguments)
        assert result.is_error
        assert result.structured_content["error"] is True
        assert result.structured_content["message"]
        return result.structured_content["code"]

    async def ask(self, method: ContentMethod, **params: Any) -> JsonObject:
        """Ask for content."""
        return await self.source.request(method, params, CONTEXT)

    async def read(self, uri: str) -> Any:
        """What a resource holds."""
        (content,) = (await self.ask("resources/read", uri=uri))["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "application/json")
        return orjson.loads(content["text"])

    async def refused(self, method: ContentMethod, **params: Any) -> int:
        """Ask for what is not there; gives the code."""
        with pytest.raises(ProtocolError) as raised:
            await self.ask(method, **params)
        return raised.value.code


@pytest.fixture
async def world(sqlite_url: str) -> AsyncGenerator[World]:
    """A zoo with its starters."""
    async with keeping(sqlite_url) as keeper, AgentZooSource(keeper.zoo) as source:
        yield World(keeper, source)


async def test_the_tools_have_exactly_the_agreed_names_everywhere(world: World) -> None:
    source: ContentSource = world.source
    names = [tool.ref.tool for tool in source.tools()]
    assert names == [
        f"agent_zoo_{name}"
        for name in (
            "inject", "list_agents", "get_agent", "create_brain_entry", "update_brain_entry", "delete_brain_entry",
            "query_brain_entries",
        )
    ]  # fmt: skip
    assert [plain_name("endpoint", tool.ref) for tool in source.tools()] == names
    assert (source.name, source.kind, source.problems()) == ("agent_zoo", "builtin", ())
    assert isinstance(source, ContentSource)


async def test_the_schema_of_inject_is_the_agreed_one(world: World) -> None:
    (inject,) = [tool for tool in world.source.tools() if tool.ref.tool == "agent_zoo_inject"]
    assert inject.input_schema["required"] == ["agentId"]
    assert inject.input_schema["properties"]["format"]["enum"] == ["compiled", "structured"]
    assert inject.marks.read_only


async def test_an_agent_is_listed_injected_and_inspected(world: World) -> None:
    await world.keeper.create(name="A", id="a", systemPrompt="P", skills=[{"id": "s", "name": "S", "description": "D"}])
    listed = await world.answer("agent_zoo_list_agents")
    assert {"id": "a", "name": "A"} in listed["agents"]
    assert await world.answer("agent_zoo_inject", agentId="a") == {
        "agentId": "a",
        "agentName": "A",
        "prompt": "You are now A. Use agentId=a for all agent_zoo tool usage.\n\n"
        "P\n\n---\n\n## Active Skills\n\n### S\nD",
    }
    assert await world.answer("agent_zoo_inject", agentId="a", format="structured") == {
        "agentId": "a",
        "agentName": "A",
        "systemPrompt": "P",
        "skills": [{"id": "s", "name": "S", "description": "D"}],
    }
    whole = await world.answer("agent_zoo_get_agent", agentId="a")
    assert whole["brainEntries"] == []
    assert whole["toolPermissions"] is None


async def test_a_brain_is_written_changed_queried_and_cleared_over_mcp(world: World) -> None:
    made = await world.answer(
        "agent_zoo_create_brain_entry", agentId="writer", type="decision", content="x", tags=["t"],
        metadata={"source": "manual", "workspaceId": "w"},
    )  # fmt: skip
    assert made["metadata"] == {"source": "mcp", "sessionId": "session-1", "workspaceId": "w"}
    changed = await world.answer(
        "agent_zoo_update_brain_entry", agentId="writer", entryId=made["id"], pinned=True, metadata={"source": "auto"}
    )
    assert changed == made | {"pinned": True}
    found = await world.answer("agent_zoo_query_brain_entries", agentId="writer", tags=["t"], pinned=True)
    assert found == {"agentId": "writer", "entries": [changed]}
    assert await world.answer("agent_zoo_query_brain_entries", agentId="writer", type="note") == {
        "agentId": "writer",
        "entries": [],
    }
    gone = await world.answer("agent_zoo_delete_brain_entry", agentId="writer", entryId=made["id"])
    assert gone == {"success": True, "entryId": made["id"]}


async def test_every_failure_is_an_answer_with_its_code(world: World) -> None:
    missing = await world.call("agent_zoo_inject", agentId="xyz")
    assert missing.structured_content == {
        "error": True,
        "code": "AGENT_NOT_FOUND",
        "message": "Agent with ID 'xyz' not found.",
    }
    assert await world.code("agent_zoo_get_agent", agentId="xyz") == "AGENT_NOT_FOUND"
    assert await world.code("agent_zoo_inject", agentId="writer", format="xml") == "INVALID_FORMAT"
    assert await world.code("agent_zoo_inject") == "INVALID_ARGUMENTS"
    assert await world.code("agent_zoo_inject", agentId=5) == "INVALID_ARGUMENTS"
    assert await world.code("agent_zoo_list_agents", other=1) == "INVALID_ARGUMENTS"
    entry = {"agentId": "writer", "type": "note", "content": "x"}
    assert await world.code("agent_zoo_create_brain_entry", **entry | {"agentId": "xyz"}) == "AGENT_NOT_FOUND"
    assert await world.code("agent_zoo_create_brain_entry", **entry | {"type": "dream"}) == "INVALID_ARGUMENTS"
    assert await world.code("agent_zoo_create_brain_entry", **entry | {"content": ""}) == "INVALID_ARGUMENTS"
    assert await world.code("agent_zoo_create_brain_entry", **entry | {"content": "\x00"}) == "INVALID_ARGUMENTS"
    where = {"agentId": "writer", "entryId": "nope"}
    assert await world.code("agent_zoo_update_brain_entry", **where, pinned=True) == "ENTRY_NOT_FOUND"
    assert await world.code("agent_zoo_delete_brain_entry", **where) == "ENTRY_NOT_FOUND"
    assert await world.code("agent_zoo_query_brain_entries", agentId="writer", dateFrom="soon") == "INVALID_ARGUMENTS"
    with pytest.raises(NotFound):
        world.source.prepare("no_such_tool", {}, b"{}")


async def test_the_handlers_are_plain_functions(world: World) -> None:
    zoo, context = world.keeper.zoo, Context(Principal("owner", "owner", "api"), "1")
    assert isinstance(await agent_zoo_inject("writer", zoo=zoo, context=context), dict)
    assert isinstance(await agent_zoo_inject("xyz", zoo=zoo, context=context), CallResult)
    assert isinstance(await agent_zoo_list_agents(zoo=zoo), dict)


async def test_every_listed_resource_can_be_read(world: World) -> None:
    entry_id = await world.keeper.remember("writer", "x", tags=["t"], pinned=True)
    uris = [item.key for item in world.source.resources()]
    assert uris[0] == ROOT == "agent-zoo://agents"
    assert "agent-zoo://agents/writer" in uris
    assert "agent-zoo://agents/writer/brain" in uris
    for uri in uris:
        assert await world.read(uri)
    listed = (await world.read(ROOT))["agents"]
    for agent in listed:
        assert (await world.read(agent["uri"]))["id"] == agent["id"]
    brain = await world.read(f"{ROOT}/writer/brain")
    assert [entry["content"] for entry in brain["entries"]] == ["x"]
    assert await world.read(f"{ROOT}/writer/brain/{entry_id}") == brain["entries"][0]
    assert (await world.read(f"{ROOT}/writer/brain?tags=a,t&pinned=true"))["entries"] == brain["entries"]
    assert (await world.read(f"{ROOT}/writer/brain?type=decision"))["entries"] == []


MISSING = [
    f"{ROOT}/nobody", f"{ROOT}/writer/brain/nope", f"{ROOT}/writer/soul", "agent-zoo://x", "file:///etc", 5, None,
]  # fmt: skip


@pytest.mark.parametrize("uri", MISSING)
async def test_a_resource_that_is_not_there_is_said_to_be_so(world: World, uri: object) -> None:
    assert await world.refused("resources/read", uri=uri) == RESOURCE_NOT_FOUND


async def test_a_filter_that_cannot_be_read_is_refused(world: World) -> None:
    assert await world.refused("resources/read", uri=f"{ROOT}/writer/brain?dateTo=soon") == INVALID_PARAMS


async def test_there_is_one_prompt_for_each_agent_under_exactly_its_name(world: World) -> None:
    names = {item.key for item in world.source.prompts()}
    assert names == {f"{PROMPT}{agent.id}" for agent in await world.keeper.zoo.list()}
    for item in world.source.prompts():
        assert plain_name("prompt", ToolRef(item.server, item.key)) == item.key
        assert item.definition["title"].startswith("Use Agent: ")
        got = await world.ask("prompts/get", name=item.key)
        (message,) = got["messages"]
        injected = await world.keeper.zoo.inject(item.key.removeprefix(PROMPT))
        assert message == {"role": "user", "content": {"type": "text", "text": injected["prompt"]}}
    assert len(PROMPT) + 50 <= 64
    assert AGENT_ID.endswith("{0,49}$")


async def test_a_prompt_takes_a_format_and_refuses_others(world: World) -> None:
    name = f"{PROMPT}writer"
    got = await world.ask("prompts/get", name=name, arguments={"format": "structured"})
    assert orjson.loads(got["messages"][0]["content"]["text"])["agentId"] == "writer"
    assert await world.refused("prompts/get", name=name, arguments={"format": "xml"}) == INVALID_PARAMS
    assert await world.refused("prompts/get", name=f"{PROMPT}nobody") == INVALID_PARAMS
    assert await world.refused("prompts/get") == INVALID_PARAMS
    assert await world.refused("logging/setLevel", level="info") == METHOD_NOT_FOUND


async def test_arguments_are_completed(world: World) -> None:
    entry_id = await world.keeper.remember("writer", "x")

    async def values(name: str, begun: str, **context: str) -> list[str]:
        answer = await world.ask(
            "completion/complete", argument={"name": name, "value": begun}, context={"arguments": context}
        )
        completion = answer["completion"]
        assert completion["total"] == len(completion["values"])
        return completion["values"]

    assert await values("format", "str") == ["structured"]
    assert await values("agentId", "wr") == ["writer"]
    assert await values("entryId", "", agentId="writer") == [entry_id]
    assert await values("entryId", "", agentId="nobody") == []
    assert await values("entryId", "") == []
    assert await values("other", "") == []
    assert (await world.ask("completion/complete"))["completion"]["values"] == []


async def test_lists_follow_the_zoo_and_changes_name_the_resources_they_touch(world: World) -> None:
    before = list(world.source.prompts())
    await world.keeper.create(name="A", id="a")
    assert f"{ROOT}/a/brain" in [item.key for item in world.source.resources()]
    after = list(world.source.prompts())
    assert [item for item in after if item.key != f"{PROMPT}a"] == before
    entry_id = await world.keeper.remember("a", "x")
    entry = f"{ROOT}/a/brain/{entry_id}"
    await world.ask("resources/subscribe", uri=entry)
    assert await world.refused("resources/subscribe", uri=f"{ROOT}/nobody") == RESOURCE_NOT_FOUND
    assert world.source.updated({"agentId": "a", "change": "brain"}) == (f"{ROOT}/a", f"{ROOT}/a/brain", entry)
    await world.ask("resources/unsubscribe", uri=entry)
    assert world.source.updated({"agentId": "a", "change": "brain"}) == (f"{ROOT}/a", f"{ROOT}/a/brain")
    assert world.source.updated({"agentId": "a", "change": "changed"}) == (ROOT, f"{ROOT}/a")
    await world.keeper.zoo.delete("a", by="test")
    assert list(world.source.prompts()) == before


async def test_an_agent_that_is_renamed_is_listed_under_its_new_name(world: World) -> None:
    await world.keeper.update("writer", name="Scribe")
    titles = {item.key: item.definition["title"] for item in world.source.prompts()}
    assert titles[f"{PROMPT}writer"] == "Use Agent: Scribe"
