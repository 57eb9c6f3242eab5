"""The built-in server `agent_zoo`: its tools, prompts and resources."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from integration.agents.zoo.zoo_harness import ZooHarness, open_zoo_harness
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
class ZooServer:
    """A zoo and its server."""

    harness: ZooHarness
    source: AgentZooSource

    async def call(self, tool: str, **arguments: Any) -> CallResult:
        """Call a tool."""
        run = self.source.prepare(tool, arguments, canonical(arguments))
        result = await run(CONTEXT)
        (part,) = result.content
        assert part["type"] == "text"
        assert orjson.loads(part["text"]) == result.structured_content
        return result

    async def result_of(self, tool: str, **arguments: Any) -> JsonObject:
        """Return the structured result of a tool that must succeed."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result
        return result.structured_content

    async def error_code_of(self, tool: str, **arguments: Any) -> str:
        """Return the error code of a tool that must fail."""
        result = await self.call(tool, **arguments)
        assert result.is_error
        assert result.structured_content["error"] is True
        assert result.structured_content["message"]
        return result.structured_content["code"]

    async def request(self, method: ContentMethod, **params: Any) -> JsonObject:
        """Send a content request."""
        return await self.source.request(method, params, CONTEXT)

    async def read(self, uri: str) -> Any:
        """Return the parsed content of a resource."""
        (content,) = (await self.request("resources/read", uri=uri))["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "application/json")
        return orjson.loads(content["text"])

    async def request_error_code(self, method: ContentMethod, **params: Any) -> int:
        """Return the error code of a content request that must fail."""
        with pytest.raises(ProtocolError) as raised:
            await self.request(method, **params)
        return raised.value.code


@pytest.fixture
async def zoo_server(sqlite_url: str) -> AsyncGenerator[ZooServer]:
    """Open a zoo with its starters."""
    async with open_zoo_harness(sqlite_url) as harness, AgentZooSource(harness.zoo) as source:
        yield ZooServer(harness, source)


async def test_tools_have_the_documented_names(zoo_server: ZooServer) -> None:
    source: ContentSource = zoo_server.source
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


async def test_inject_has_the_documented_schema(zoo_server: ZooServer) -> None:
    (inject,) = [tool for tool in zoo_server.source.tools() if tool.ref.tool == "agent_zoo_inject"]
    assert inject.input_schema["required"] == ["agentId"]
    assert inject.input_schema["properties"]["format"]["enum"] == ["compiled", "structured"]
    assert inject.marks.read_only


async def test_agent_is_listed_injected_and_inspected(zoo_server: ZooServer) -> None:
    await zoo_server.harness.create(
        name="A", id="a", systemPrompt="P", skills=[{"id": "s", "name": "S", "description": "D"}]
    )
    listed = await zoo_server.result_of("agent_zoo_list_agents")
    assert {"id": "a", "name": "A"} in listed["agents"]
    assert await zoo_server.result_of("agent_zoo_inject", agentId="a") == {
        "agentId": "a",
        "agentName": "A",
        "prompt": "You are now A. Use agentId=a for all agent_zoo tool usage.\n\n"
        "P\n\n---\n\n## Active Skills\n\n### S\nD",
    }
    assert await zoo_server.result_of("agent_zoo_inject", agentId="a", format="structured") == {
        "agentId": "a",
        "agentName": "A",
        "systemPrompt": "P",
        "skills": [{"id": "s", "name": "S", "description": "D"}],
    }
    whole = await zoo_server.result_of("agent_zoo_get_agent", agentId="a")
    assert whole["brainEntries"] == []
    assert whole["toolPermissions"] is None


async def test_brain_entries_are_managed_over_mcp(zoo_server: ZooServer) -> None:
    made = await zoo_server.result_of(
        "agent_zoo_create_brain_entry", agentId="writer", type="decision", content="x", tags=["t"],
        metadata={"source": "manual", "workspaceId": "w"},
    )  # fmt: skip
    assert made["metadata"] == {"source": "mcp", "sessionId": "session-1", "workspaceId": "w"}
    changed = await zoo_server.result_of(
        "agent_zoo_update_brain_entry", agentId="writer", entryId=made["id"], pinned=True, metadata={"source": "auto"}
    )
    assert changed == made | {"pinned": True}
    found = await zoo_server.result_of("agent_zoo_query_brain_entries", agentId="writer", tags=["t"], pinned=True)
    assert found == {"agentId": "writer", "entries": [changed]}
    assert await zoo_server.result_of("agent_zoo_query_brain_entries", agentId="writer", type="note") == {
        "agentId": "writer",
        "entries": [],
    }
    gone = await zoo_server.result_of("agent_zoo_delete_brain_entry", agentId="writer", entryId=made["id"])
    assert gone == {"success": True, "entryId": made["id"]}


async def test_every_failure_is_an_error_result_with_its_code(zoo_server: ZooServer) -> None:
    missing = await zoo_server.call("agent_zoo_inject", agentId="xyz")
    assert missing.structured_content == {
        "error": True,
        "code": "AGENT_NOT_FOUND",
        "message": "Agent with ID 'xyz' not found.",
    }
    assert await zoo_server.error_code_of("agent_zoo_get_agent", agentId="xyz") == "AGENT_NOT_FOUND"
    assert await zoo_server.error_code_of("agent_zoo_inject", agentId="writer", format="xml") == "INVALID_FORMAT"
    assert await zoo_server.error_code_of("agent_zoo_inject") == "INVALID_ARGUMENTS"
    assert await zoo_server.error_code_of("agent_zoo_inject", agentId=5) == "INVALID_ARGUMENTS"
    assert await zoo_server.error_code_of("agent_zoo_list_agents", other=1) == "INVALID_ARGUMENTS"
    entry = {"agentId": "writer", "type": "note", "content": "x"}
    assert (
        await zoo_server.error_code_of("agent_zoo_create_brain_entry", **entry | {"agentId": "xyz"})
        == "AGENT_NOT_FOUND"
    )
    assert (
        await zoo_server.error_code_of("agent_zoo_create_brain_entry", **entry | {"type": "dream"})
        == "INVALID_ARGUMENTS"
    )
    assert (
        await zoo_server.error_code_of("agent_zoo_create_brain_entry", **entry | {"content": ""}) == "INVALID_ARGUMENTS"
    )
    assert (
        await zoo_server.error_code_of("agent_zoo_create_brain_entry", **entry | {"content": "\x00"})
        == "INVALID_ARGUMENTS"
    )
    where = {"agentId": "writer", "entryId": "nope"}
    assert await zoo_server.error_code_of("agent_zoo_update_brain_entry", **where, pinned=True) == "ENTRY_NOT_FOUND"
    assert await zoo_server.error_code_of("agent_zoo_delete_brain_entry", **where) == "ENTRY_NOT_FOUND"
    assert (
        await zoo_server.error_code_of("agent_zoo_query_brain_entries", agentId="writer", dateFrom="soon")
        == "INVALID_ARGUMENTS"
    )
    with pytest.raises(NotFound):
        zoo_server.source.prepare("no_such_tool", {}, b"{}")


async def test_tool_handlers_are_plain_functions(zoo_server: ZooServer) -> None:
    zoo, context = zoo_server.harness.zoo, Context(Principal("owner", "owner", "api"), "1")
    assert isinstance(await agent_zoo_inject("writer", zoo=zoo, context=context), dict)
    assert isinstance(await agent_zoo_inject("xyz", zoo=zoo, context=context), CallResult)
    assert isinstance(await agent_zoo_list_agents(zoo=zoo), dict)


async def test_every_listed_resource_can_be_read(zoo_server: ZooServer) -> None:
    entry_id = await zoo_server.harness.remember("writer", "x", tags=["t"], pinned=True)
    uris = [item.key for item in zoo_server.source.resources()]
    assert uris[0] == ROOT == "agent-zoo://agents"
    assert "agent-zoo://agents/writer" in uris
    assert "agent-zoo://agents/writer/brain" in uris
    for uri in uris:
        assert await zoo_server.read(uri)
    listed = (await zoo_server.read(ROOT))["agents"]
    for agent in listed:
        assert (await zoo_server.read(agent["uri"]))["id"] == agent["id"]
    brain = await zoo_server.read(f"{ROOT}/writer/brain")
    assert [entry["content"] for entry in brain["entries"]] == ["x"]
    assert await zoo_server.read(f"{ROOT}/writer/brain/{entry_id}") == brain["entries"][0]
    assert (await zoo_server.read(f"{ROOT}/writer/brain?tags=a,t&pinned=true"))["entries"] == brain["entries"]
    assert (await zoo_server.read(f"{ROOT}/writer/brain?type=decision"))["entries"] == []


MISSING = [
    f"{ROOT}/unknown", f"{ROOT}/writer/brain/nope", f"{ROOT}/writer/soul", "agent-zoo://x", "file:///etc", 5, None,
]  # fmt: skip


@pytest.mark.parametrize("uri", MISSING)
async def test_unknown_resource_is_not_found(zoo_server: ZooServer, uri: object) -> None:
    assert await zoo_server.request_error_code("resources/read", uri=uri) == RESOURCE_NOT_FOUND


async def test_invalid_filter_is_refused(zoo_server: ZooServer) -> None:
    assert (
        await zoo_server.request_error_code("resources/read", uri=f"{ROOT}/writer/brain?dateTo=soon") == INVALID_PARAMS
    )


async def test_each_agent_has_one_prompt_with_its_name(zoo_server: ZooServer) -> None:
    names = {item.key for item in zoo_server.source.prompts()}
    assert names == {f"{PROMPT}{agent.id}" for agent in await zoo_server.harness.zoo.list()}
    for item in zoo_server.source.prompts():
        assert plain_name("prompt", ToolRef(item.server, item.key)) == item.key
        assert item.definition["title"].startswith("Use Agent: ")
        got = await zoo_server.request("prompts/get", name=item.key)
        (message,) = got["messages"]
        injected = await zoo_server.harness.zoo.inject(item.key.removeprefix(PROMPT))
        assert message == {"role": "user", "content": {"type": "text", "text": injected["prompt"]}}
    assert len(PROMPT) + 50 <= 64
    assert AGENT_ID.endswith("{0,49}$")


async def test_prompt_accepts_only_the_known_formats(zoo_server: ZooServer) -> None:
    name = f"{PROMPT}writer"
    got = await zoo_server.request("prompts/get", name=name, arguments={"format": "structured"})
    assert orjson.loads(got["messages"][0]["content"]["text"])["agentId"] == "writer"
    assert await zoo_server.request_error_code("prompts/get", name=name, arguments={"format": "xml"}) == INVALID_PARAMS
    assert await zoo_server.request_error_code("prompts/get", name=f"{PROMPT}unknown") == INVALID_PARAMS
    assert await zoo_server.request_error_code("prompts/get") == INVALID_PARAMS
    assert await zoo_server.request_error_code("logging/setLevel", level="info") == METHOD_NOT_FOUND


async def test_prompt_and_resource_arguments_are_completed(zoo_server: ZooServer) -> None:
    entry_id = await zoo_server.harness.remember("writer", "x")

    async def values(name: str, prefix: str, **context: str) -> list[str]:
        result_of = await zoo_server.request(
            "completion/complete", argument={"name": name, "value": prefix}, context={"arguments": context}
        )
        completion = result_of["completion"]
        assert completion["total"] == len(completion["values"])
        return completion["values"]

    assert await values("format", "str") == ["structured"]
    assert await values("agentId", "wr") == ["writer"]
    assert await values("entryId", "", agentId="writer") == [entry_id]
    assert await values("entryId", "", agentId="unknown") == []
    assert await values("entryId", "") == []
    assert await values("other", "") == []
    assert (await zoo_server.request("completion/complete"))["completion"]["values"] == []


async def test_lists_follow_the_zoo_and_changes_name_their_resources(zoo_server: ZooServer) -> None:
    before = list(zoo_server.source.prompts())
    await zoo_server.harness.create(name="A", id="a")
    assert f"{ROOT}/a/brain" in [item.key for item in zoo_server.source.resources()]
    after = list(zoo_server.source.prompts())
    assert [item for item in after if item.key != f"{PROMPT}a"] == before
    entry_id = await zoo_server.harness.remember("a", "x")
    entry = f"{ROOT}/a/brain/{entry_id}"
    await zoo_server.request("resources/subscribe", uri=entry)
    assert await zoo_server.request_error_code("resources/subscribe", uri=f"{ROOT}/unknown") == RESOURCE_NOT_FOUND
    assert zoo_server.source.updated({"agentId": "a", "change": "brain"}) == (f"{ROOT}/a", f"{ROOT}/a/brain", entry)
    await zoo_server.request("resources/unsubscribe", uri=entry)
    assert zoo_server.source.updated({"agentId": "a", "change": "brain"}) == (f"{ROOT}/a", f"{ROOT}/a/brain")
    assert zoo_server.source.updated({"agentId": "a", "change": "changed"}) == (ROOT, f"{ROOT}/a")
    await zoo_server.harness.zoo.delete("a", by="test")
    assert list(zoo_server.source.prompts()) == before


async def test_renamed_agent_is_listed_with_its_new_name(zoo_server: ZooServer) -> None:
    await zoo_server.harness.update("writer", name="Scribe")
    titles = {item.key: item.definition["title"] for item in zoo_server.source.prompts()}
    assert titles[f"{PROMPT}writer"] == "Use Agent: Scribe"
