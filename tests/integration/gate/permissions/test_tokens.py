"""Named tokens: their default rights, what they are bound to, and their revocation."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call
from integration.web.mcp.test_bad_input import HEADERS, META
from toolcrib.model.errors import Conflict, Denied, NotFound, Unauthenticated
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

OWNER_ROUTES = (
    "/api/servers", "/api/policy/rules", "/api/policy/explain?tool=shop/sell", "/api/tokens", "/api/audit",
    "/api/settings", "/api/events", "/api/agents", "/api/bundles", "/api/approvals", "/api/tools/changes",
)  # fmt: skip


async def test_token_secret_is_shown_once_and_stored_nowhere(lab: ShopLab) -> None:
    made = await lab.owner.permissions.create_token({"name": "ide"})
    secret = made["secret"]
    assert (made["source"], made["mode"], made["mayApprove"]) == ("ide", "acceptEdits", False)
    assert secret not in str(await lab.owner.permissions.tokens())
    with pytest.raises(Conflict):
        await lab.token("ide")
    contents = [path.read_bytes() for path in lab.crib.home.root.rglob("*") if path.is_file()]
    assert contents
    assert not any(secret.encode() in content for content in contents)


async def test_client_token_reaches_only_the_mcp_endpoint(lab: ShopLab) -> None:
    secret = await lab.token("ide")
    async with lab.http(secret) as http:
        for path in (*OWNER_ROUTES, "/api/tools", "/api/tools/shop/sell"):
            assert (await http.get(path)).status_code == 404, path
    async with lab.mcp(secret, "2026-07-28") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert "shop_sell" in names
    assert "shop_close" not in names, "privileged tools are not in the default set"


async def test_app_at_level_ask_needs_approval_except_for_reads(lab: ShopLab) -> None:
    token, _ = await lab.crib.tokens.create("connect-cursor", level="ask")
    reading = await lab.crib.why("shop/look", principal=token.principal)
    assert (reading.verdict, reading.decided_by.rule) == ("allow", "level-connect-cursor")
    assert (await lab.crib.why("shop/sell", principal=token.principal)).verdict == "ask"
    other, _ = await lab.crib.tokens.create("other", mode="default")
    assert (await lab.crib.why("shop/look", principal=other.principal)).verdict == "ask"
    await lab.crib.tokens.revoke("connect-cursor")
    assert "level-connect-cursor" not in {rule.id for rule in lab.crib.permissions.list()}


async def test_owner_acting_as_a_token_has_its_rights(lab: ShopLab, tmp_path: Path) -> None:
    """A stdio front acts as the app that started it; only the owner's token may do so."""
    await lab.crib.tokens.create("connect-cursor", level="ask")
    other = await lab.token("other")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = {**HEADERS, "mcp-method": "tools/list", "toolcrib-token": "connect-cursor"}
    path = f"/mcp?cwd={tmp_path}"
    async with lab.http() as owner, lab.http(other) as guest:
        seen = (await owner.post(path, json=call, headers=headers)).json()["result"]["tools"]
        assert "shop_close" not in {tool["name"] for tool in seen}, "privileged tools are not in the default set"
        assert (await guest.post(path, json=call, headers=headers)).status_code == 403
        assert (await owner.get("/api/tokens", headers=headers)).status_code == 200, (
            "only the MCP endpoint reads the header"
        )
        await lab.crib.tokens.revoke("connect-cursor")
        refused = await owner.post(path, json=call, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "auth.invalid")


async def test_api_token_can_only_list_and_call_tools(lab: ShopLab) -> None:
    secret = await lab.token("robot", source="api")
    async with lab.http(secret) as http:
        for path in OWNER_ROUTES:
            assert (await http.get(path)).status_code in (403, 404), path
        for named in ({"source": "web"}, {"agent": "x"}, {"mode": "bypassPermissions"}, {"session": "s"}):
            assert (await http.get("/api/tools", params=named)).status_code == 403
    async with lab.rest(secret) as robot:
        refs = {tool["ref"] for tool in await robot.tools()}
        assert "shop/sell" in refs
        assert "shop/close" not in refs
        with pytest.raises(NotFound):
            await robot.call(ToolRef("shop", "close"), {})
        for attempt in (
            lambda: robot.permissions.create_token({"name": "more"}),
            lambda: robot.permissions.add_rule({"effect": "allow", "pattern": "*"}),
            lambda: robot.permissions.revoke_token("robot"),
        ):
            with pytest.raises((NotFound, Denied)):
                await attempt()
    assert lab.shop.sold == []


async def test_agent_token_has_the_tools_of_its_agent(lab: ShopLab) -> None:
    agent = await lab.owner.create_agent({"name": "Clerk", "toolPermissions": ["shop/look", "shop/close"]})
    secret = await lab.token("clerk", agent=agent["id"], mode="bypassPermissions", source="agent")
    async with lab.rest(secret) as clerk:
        assert {tool["ref"] for tool in await clerk.tools()} == {"shop/look", "shop/close"}
        await clerk.call(ToolRef("shop", "close"), {})
        with pytest.raises(NotFound):
            await clerk.call(SELL, {"what": "tea"})
        await lab.owner.change_agent(agent["id"], {"toolPermissions": []})
        assert await clerk.tools() == []
        with pytest.raises(NotFound):
            await clerk.call(ToolRef("shop", "close"), {})
    assert lab.shop.sold == [("close", 0)]
    with pytest.raises(NotFound):
        await lab.token("other", agent="no-such-agent")


async def test_agent_token_writes_only_to_the_brain_of_its_agent(lab: ShopLab) -> None:
    for name in ("Clerk", "Boss"):
        await lab.owner.create_agent({"id": name.lower(), "name": name, "toolPermissions": ["agent_zoo/*"]})
    add, change, delete = (
        ToolRef("agent_zoo", f"agent_zoo_{verb}_brain_entry") for verb in ("create", "update", "delete")
    )
    note: JsonObject = {"type": "note", "content": "Prices rose.", "pinned": True}
    contents = (await lab.owner.call(add, {"agentId": "boss", **note}))["structuredContent"]
    secret = await lab.token("clerk", agent="clerk", mode="bypassPermissions", source="agent")
    async with lab.rest(secret) as clerk:
        own = (await clerk.call(add, {"agentId": "clerk", **note}))["structuredContent"]
        other: JsonObject = {"agentId": "boss", "entryId": contents["id"]}
        for ref, arguments in (
            (add, {"agentId": "boss", **note}),
            (change, {**other, "content": "!"}),
            (delete, other),
        ):
            answer = await clerk.call(ref, arguments)
            assert (answer["isError"], answer["structuredContent"]["code"]) == (True, "INVALID_ARGUMENTS")
            assert "agentId=clerk" in answer["structuredContent"]["message"]
        query = ToolRef("agent_zoo", "agent_zoo_query_brain_entries")
        assert (await clerk.call(query, {"agentId": "boss"}))["structuredContent"]["entries"] == [contents]
        assert not (await clerk.call(delete, {"agentId": "clerk", "entryId": own["id"]}))["isError"]


async def test_revoked_token_ends_at_once_with_its_pending_calls(lab: ShopLab) -> None:
    secret = await lab.token("robot", source="api")
    async with lab.rest(secret) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
            approval = await lab.pending_approval()
            await lab.owner.permissions.revoke_token("robot")
        assert isinstance(call.raised, Unauthenticated)
        with pytest.raises(Unauthenticated):
            await robot.tools()

    async def withdrawn() -> bool:
        return (await lab.owner.permissions.approval(approval["id"]))["status"] == "withdrawn"

    await lab.until(withdrawn)
    with pytest.raises(NotFound):
        await lab.owner.permissions.revoke_token("robot")
    assert lab.shop.sold == []


async def read_to_end(response: httpx2.Response) -> None:
    """Read a stream until it ends or breaks."""
    try:
        async for _ in response.aiter_bytes():
            pass
    except httpx2.TransportError:
        pass


async def test_revoking_ends_the_open_stream_of_a_legacy_client(lab: ShopLab) -> None:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    }
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    secret = await lab.token("ide")
    async with lab.http(secret) as http:
        opened = await http.post("/mcp", json=body, headers={"accept": HEADERS["accept"]})
        named = {"mcp-session-id": opened.headers["mcp-session-id"], "accept": "text/event-stream"}
        async with http.stream("GET", "/mcp", headers=named) as stream:
            assert stream.status_code == 200
            await lab.owner.permissions.revoke_token("ide")
            with anyio.fail_after(5):
                await read_to_end(stream)
        assert (await http.get("/mcp", headers=named)).status_code == 401


async def test_revoking_ends_the_open_stream_of_a_modern_client(lab: ShopLab) -> None:
    async with lab.http(await lab.token("ide")) as http:
        params: JsonObject = {"notifications": {"toolsListChanged": True}, "_meta": META}
        body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = {name: value for name, value in HEADERS.items() if name != "mcp-name"}
        headers["mcp-method"] = "subscriptions/listen"
        async with http.stream("POST", "/mcp", json=body, headers=headers) as stream:
            assert stream.status_code == 200
            await lab.owner.permissions.revoke_token("ide")
            with anyio.fail_after(5):
                await read_to_end(stream)


async def test_tokens_cannot_read_the_events_of_the_crib(lab: ShopLab) -> None:
    for source in ("ide", "api", "agent"):
        async with lab.http(await lab.token(f"of-{source}", source=source, mayApprove=True)) as http:
            assert (await http.get("/api/events")).status_code == 404
