"""The MCP endpoint of an agent with the official client, in both eras, over HTTP and stdio."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError

from integration.web.mcp.test_content import Notifications
from integration.web.mcp.test_endpoints import modern
from lab import Door, Lab, ModeName, eventually, make_lab
from long_tests import takes_long
from toolcrib.gate.search.search_tools import INSTRUCTIONS as HOW_TO_SEARCH
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import MODERN_VERSION
from toolcrib.web.mcp.views import INSTRUCTIONS_KEPT
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "auto"]  # a client that pins the modern version does not request instructions
DOORS = ["http", pytest.param("stdio", marks=takes_long)]
"""A stdio front starts a process; `test_official_client` always tests both."""
both_eras = pytest.mark.parametrize("era", ERAS)
both_doors = pytest.mark.parametrize("door", DOORS)

PATH = "/mcp/agents/keeper"
KEEPER: JsonObject = {
    "id": "keeper",
    "name": "Keeper",
    "systemPrompt": "You keep the lab.",
    "toolPermissions": ["lab/echo"],
    "skills": [
        {"id": "count", "name": "Counting", "description": "Count aloud.", "enabled": False, "tools": ["lab/count_to"]},
        {"id": "keys", "name": "Keys", "description": "Open it.", "enabled": False, "tools": ["lab/secret"]},
    ],
}
FIRST_LINE = "You are now Keeper. Use agentId=keeper for all agent_zoo tool usage."
PLAIN = f"{FIRST_LINE}\n\nYou keep the lab."
COUNTING = f"{PLAIN}\n\n---\n\n## Active Skills\n\n### Counting\nCount aloud."


@dataclass(frozen=True)
class KeeperCrib:
    """A running crib with the agent `keeper`, its REST client and MCP clients."""

    lab: Lab
    rest: httpx2.AsyncClient

    @asynccontextmanager
    async def keeper(
        self, door: Door, era: ModeName, notifications: Notifications | None = None, query: str = ""
    ) -> AsyncGenerator[Client]:
        """Open the official client at the keeper's endpoint."""
        async with self.lab.client(door, era, notifications, path=f"{PATH}{query}", agent="keeper") as client:
            yield client

    async def change(self, **fields: Any) -> None:
        """Replace fields of the keeper."""
        assert (await self.rest.put("/api/agents/keeper", json=fields)).status_code == 200

    async def switch(self, skill: str, enabled: bool = True) -> None:
        """Enable or disable a skill of the keeper."""
        answer = await self.rest.patch(f"/api/agents/keeper/skills/{skill}", json={"enabled": enabled})
        assert answer.status_code == 200

    async def token(self, name: str, **bound: Any) -> str:
        """Create a token and return its secret."""
        answer = await self.rest.post("/api/tokens", json={"name": name, **bound})
        assert answer.status_code == 201, answer.text
        return answer.json()["secret"]


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[KeeperCrib]:
    """A listening crib with the keeper."""
    stopped = make_lab(tmp_path)
    async with hold(stopped.settings, kind="serve") as holding:
        lab = replace(stopped, url=holding.info.url)
        async with lab.http() as rest:
            assert (await rest.post("/api/agents", json=KEEPER)).status_code == 201
            yield KeeperCrib(lab, rest)


async def names(client: Client) -> list[str]:
    return sorted(tool.name for tool in (await client.list_tools()).tools)


async def call_text(client: Client, tool: str, **arguments: Any) -> str:
    return str((await client.call_tool(tool, arguments)).content)


@both_doors
@both_eras
async def test_client_gets_the_agents_instructions_and_exactly_its_tools(
    crib: KeeperCrib, door: Door, era: ModeName
) -> None:
    async with crib.keeper(door, era) as client:
        assert client.instructions == PLAIN
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else MODERN_VERSION)
        assert await names(client) == ["lab_echo"]
        assert "found me" in await call_text(client, "lab_echo", text="found me")
        for hidden in ("lab_count_to", "lab_secret", "agent_zoo_inject", "nothing"):
            with pytest.raises(MCPError, match=f"^Unknown tool: {hidden}$"):
                await client.call_tool(hidden, {})


@both_eras
async def test_instructions_reflect_the_current_agent(crib: KeeperCrib, era: ModeName) -> None:
    await crib.switch("count")
    await crib.change(includeBrain=True, contextRefs=["docs/lab.md"])
    entry = {"type": "decision", "content": "Doors stay shut.", "pinned": True}
    assert (await crib.rest.post("/api/agents/keeper/brain", json=entry)).status_code == 201
    whole = f"{COUNTING}\n\n## Memory\n\n- [decision] Doors stay shut.\n\n## Context\n\n- docs/lab.md"
    async with crib.keeper("http", era) as client:
        assert client.instructions == whole
        assert (await crib.rest.get("/api/agents/keeper/inject")).json()["prompt"] == whole
    await crib.change(systemPrompt="", includeBrain=False)
    await crib.switch("count", enabled=False)
    async with crib.keeper("http", era) as client:
        assert client.instructions == FIRST_LINE


async def test_modern_client_sees_changed_instructions_without_reconnecting(crib: KeeperCrib) -> None:
    async with crib.keeper("http", "auto") as client:
        assert client.instructions == PLAIN
        await crib.switch("count")
        assert (await client.session.send_discover(MODERN_VERSION))["instructions"] == COUNTING
        assert await names(client) == ["lab_count_to", "lab_echo"]


@both_doors
@both_eras
async def test_prompt_of_an_agent_is_never_truncated(crib: KeeperCrib, door: Door, era: ModeName) -> None:
    long = "Mind the gäp. " * (15 * INSTRUCTIONS_KEPT // 14)
    await crib.change(systemPrompt=long)
    async with crib.keeper(door, era) as client:
        assert client.instructions == f"{FIRST_LINE}\n\n{long.strip()}"


@both_doors
async def test_list_change_after_enabling_a_skill_reaches_only_the_agents_clients(crib: KeeperCrib, door: Door) -> None:
    notifications, elsewhere = Notifications(), Notifications()
    async with (
        crib.keeper(door, "legacy", notifications) as old,
        crib.lab.client("http", "legacy", elsewhere) as other,
        crib.keeper(door, "auto") as new,
        new.listen(tools_list_changed=True) as changes,
    ):
        await other.list_tools()
        await crib.switch("keys")
        with anyio.fail_after(10):
            await anext(aiter(changes))
        await eventually(lambda: notifications.has("notifications/tools/list_changed"))
        for client in (old, new):
            assert await names(client) == ["lab_echo", "lab_secret"]
            assert "opened" in await call_text(client, "lab_secret")
        assert "lab_secret" not in await names(other)
        assert not elsewhere.has("notifications/tools/list_changed")


@both_doors
@both_eras
async def test_revoked_permission_makes_a_tool_unknown(crib: KeeperCrib, door: Door, era: ModeName) -> None:
    async with crib.keeper(door, era) as client:
        assert "before" in await call_text(client, "lab_echo", text="before")
        await crib.change(toolPermissions=[])
        with pytest.raises(MCPError, match=r"^Unknown tool: lab_echo$"):
            await client.call_tool("lab_echo", {"text": "after"})
        assert await names(client) == []
        await crib.change(toolPermissions=["lab/*"])
        assert "again" in await call_text(client, "lab_echo", text="again")


@both_eras
async def test_deny_rule_hides_a_tool_from_the_agents_clients(crib: KeeperCrib, era: ModeName) -> None:
    async with crib.keeper("http", era) as client:
        rule = {"effect": "deny", "pattern": "lab/echo"}
        assert (await crib.rest.post("/api/policy/rules", json=rule)).status_code == 201
        assert await names(client) == []


@both_eras
async def test_prompts_and_resources_come_from_permitted_servers(crib: KeeperCrib, era: ModeName) -> None:
    async with crib.keeper("http", era) as client:
        assert (await client.list_prompts()).prompts == []
        assert (await client.list_resources()).resources == []
        await crib.change(toolPermissions=["agent_zoo/agent_zoo_list_agents"])
        assert "agent_zoo_use_keeper" in [prompt.name for prompt in (await client.list_prompts()).prompts]
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "agent-zoo://agents/keeper" in uris
        assert (await client.read_resource("agent-zoo://agents/keeper")).contents


@both_eras
async def test_search_mode_finds_only_permitted_tools(crib: KeeperCrib, era: ModeName) -> None:
    async with crib.keeper("http", era, query="?tools=search") as client:
        assert client.instructions == f"{PLAIN}\n\n{HOW_TO_SEARCH}"
        assert await names(client) == ["call_tool", "find_tools"]
        for query, refs in (("say", ["lab/echo"]), ("count", []), ("secret", []), ("ping", [])):
            found = await client.call_tool("find_tools", {"query": query})
            assert found.structured_content is not None
            assert [each["ref"] for each in found.structured_content["tools"]] == refs
        with pytest.raises(MCPError, match=r"^Unknown tool: lab/count_to$"):
            await client.call_tool("call_tool", {"ref": "lab/count_to", "arguments": {"end": 1}})


@both_eras
async def test_audit_names_the_agent_and_the_directory_of_a_call(
    crib: KeeperCrib, era: ModeName, tmp_path: Path
) -> None:
    async with crib.keeper("http", era, query=f"?cwd={tmp_path}") as client:
        assert client.instructions == PLAIN
        await client.call_tool("lab_echo", {"text": "a"})
    records = (await crib.rest.get("/api/audit")).json()
    principals = [record["principal"] for record in records if record["server"] == "lab"]
    assert {(each["name"], each["source"], each["agent"]) for each in principals} == {("owner", "ide", "keeper")}
    assert {each["cwd"] for each in principals} == {str(await anyio.Path(tmp_path).resolve())}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/mcp/agents/missing", "agent.unknown"),
        ("/mcp/agents/Keeper", "agent.unknown"),
        ("/mcp/agents/%2e%2e", "agent.unknown"),
        ("/mcp/agents/keeper/", "route.unknown"),
        ("/mcp/agents/", "route.unknown"),
        ("/mcp/agents", "route.unknown"),
    ],
)
async def test_unknown_agent_path_is_404(crib: KeeperCrib, path: str, code: str) -> None:
    answer = await modern(crib.lab, path, "tools/list")
    assert (answer["status"], answer["code"]) == (404, code)


@both_eras
async def test_deleted_agent_is_unknown_to_open_clients_until_restored(crib: KeeperCrib, era: ModeName) -> None:
    async with crib.keeper("stdio", era) as client:
        assert "here" in await call_text(client, "lab_echo", text="here")
        assert (await crib.rest.delete("/api/agents/keeper")).status_code == 200
        for _ in range(2):
            with pytest.raises(MCPError, match="Agent with ID 'keeper' not found"):
                await client.call_tool("lab_echo", {"text": "gone"})
        assert (await crib.rest.post("/api/agents/keeper/revisions/1/restore")).status_code == 200
        assert "back" in await call_text(client, "lab_echo", text="back")


async def test_deleting_an_agent_sends_a_list_change(crib: KeeperCrib) -> None:
    notifications = Notifications()
    async with (
        crib.keeper("http", "legacy", notifications) as old,
        crib.keeper("http", "auto") as new,
        new.listen(tools_list_changed=True) as changes,
    ):
        await old.list_tools()
        await crib.rest.delete("/api/agents/keeper")
        with anyio.fail_after(10):
            await anext(aiter(changes))
        await eventually(lambda: notifications.has("notifications/tools/list_changed"))


async def test_token_of_an_agent_reaches_only_its_own_endpoint(crib: KeeperCrib) -> None:
    own = {"authorization": f"Bearer {await crib.token('own', agent='keeper')}"}
    free = {"authorization": f"Bearer {await crib.token('free')}"}
    listed = await modern(crib.lab, PATH, "tools/list", extra=own)
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["lab_echo"]
    assert (await modern(crib.lab, PATH, "server/discover", extra=own))["result"]["instructions"] == PLAIN
    for path, who in (("/mcp/agents/reviewer", own), ("/mcp/agents/nobody", own), ("/mcp", own), (PATH, free)):
        answer = await modern(crib.lab, path, "tools/list", extra=who)
        assert (answer["status"], answer["code"]) == (404, "route.unknown")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/agents/reviewer", f"{PATH}?tools=search"])
async def test_mcp_session_of_an_agent_is_invalid_at_other_endpoints(crib: KeeperCrib, path: str) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    accept = {"accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    opened = await crib.rest.post(PATH, json=body, headers=accept)
    session = accept | {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await crib.rest.post(PATH, json=initialized, headers=session)).status_code == 202
    assert (await crib.rest.post(PATH, json=listing, headers=session)).status_code == 200
    assert (await crib.rest.post(path, json=listing, headers=session)).status_code == 404


@both_eras
async def test_stdio_front_of_an_agent_holds_the_home_itself(tmp_path: Path, era: ModeName) -> None:
    lab = make_lab(tmp_path)
    async with lab.client("stdio", era, agent="reviewer") as client:
        assert (client.instructions or "").startswith("You are now Code Reviewer. Use agentId=reviewer ")
        assert "alone" in await call_text(client, "lab_echo", text="alone")
