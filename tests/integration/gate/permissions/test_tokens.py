"""Named tokens: what they may do unless the owner says otherwise, what they are bound to, and how they end."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from integration.gate.permissions.answering import SELL, Desk, calling
from integration.web.mcp.test_bad_input import HEADERS, META
from toolcrib.model.errors import Conflict, Denied, NotFound, Unauthenticated
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

pytestmark = pytest.mark.anyio

OWNERS = (
    "/api/servers", "/api/policy/rules", "/api/policy/explain?tool=shop/sell", "/api/tokens", "/api/audit",
    "/api/settings", "/api/events", "/api/agents", "/api/bundles", "/api/approvals", "/api/tools/changes",
)  # fmt: skip


async def test_a_token_is_told_once_and_kept_in_no_form_that_could_be_used(desk: Desk) -> None:
    made = await desk.owner.permissions.create_token({"name": "ide"})
    secret = made["secret"]
    assert (made["source"], made["mode"], made["mayApprove"]) == ("ide", "acceptEdits", False)
    assert secret not in str(await desk.owner.permissions.tokens())
    with pytest.raises(Conflict):
        await desk.token("ide")
    kept = [path.read_bytes() for path in desk.crib.home.root.rglob("*") if path.is_file()]
    assert kept
    assert not any(secret.encode() in content for content in kept)


async def test_a_token_of_an_mcp_client_reaches_the_endpoint_and_nothing_else(desk: Desk) -> None:
    secret = await desk.token("ide")
    async with desk.http(secret) as http:
        for path in (*OWNERS, "/api/tools", "/api/tools/shop/sell"):
            assert (await http.get(path)).status_code == 404, path
    async with desk.mcp(secret, "2026-07-28") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert "shop_sell" in names
    assert "shop_close" not in names, "privileged tools are not in the default set"


async def test_app_at_level_ask_reads_unasked_and_everything_else_asks(desk: Desk) -> None:
    token, _ = await desk.crib.tokens.create("connect-cursor", level="ask")
    reading = await desk.crib.why("shop/look", principal=token.principal)
    assert (reading.verdict, reading.decided_by.rule) == ("allow", "level-connect-cursor")
    assert (await desk.crib.why("shop/sell", principal=token.principal)).verdict == "ask"
    other, _ = await desk.crib.tokens.create("other", mode="default")
    assert (await desk.crib.why("shop/look", principal=other.principal)).verdict == "ask"
    await desk.crib.tokens.revoke("connect-cursor")
    assert "level-connect-cursor" not in {rule.id for rule in desk.crib.permissions.list()}


async def test_owner_who_acts_as_a_token_has_its_level_and_names_a_directory(desk: Desk, tmp_path: Path) -> None:
    """As a stdio front does for the app that started it. Nobody else may."""
    await desk.crib.tokens.create("connect-cursor", level="ask")
    other = await desk.token("other")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = {**HEADERS, "mcp-method": "tools/list", "toolcrib-token": "connect-cursor"}
    path = f"/mcp?cwd={tmp_path}"
    async with desk.http() as owner, desk.http(other) as guest:
        seen = (await owner.post(path, json=call, headers=headers)).json()["result"]["tools"]
        assert "shop_close" not in {tool["name"] for tool in seen}, "privileged tools are not in the default set"
        assert (await guest.post(path, json=call, headers=headers)).status_code == 403
        assert (await owner.get("/api/tokens", headers=headers)).status_code == 200, "only the MCP endpoint knows it"
        await desk.crib.tokens.revoke("connect-cursor")
        refused = await owner.post(path, json=call, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "auth.invalid")


async def test_a_token_of_a_program_lists_and_calls_and_nothing_else(desk: Desk) -> None:
    secret = await desk.token("robot", source="api")
    async with desk.http(secret) as http:
        for path in OWNERS:
            assert (await http.get(path)).status_code in (403, 404), path
        for named in ({"source": "web"}, {"agent": "x"}, {"mode": "bypassPermissions"}, {"session": "s"}):
            assert (await http.get("/api/tools", params=named)).status_code == 403
    async with desk.rest(secret) as robot:
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
    assert desk.shop.sold == []


async def test_a_token_of_an_agent_has_what_the_agent_has(desk: Desk) -> None:
    agent = await desk.owner.create_agent({"name": "Clerk", "toolPermissions": ["shop/look", "shop/close"]})
    secret = await desk.token("clerk", agent=agent["id"], mode="bypassPermissions", source="agent")
    async with desk.rest(secret) as clerk:
        assert {tool["ref"] for tool in await clerk.tools()} == {"shop/look", "shop/close"}
        await clerk.call(ToolRef("shop", "close"), {})
        with pytest.raises(NotFound):
            await clerk.call(SELL, {"what": "tea"})
        await desk.owner.change_agent(agent["id"], {"toolPermissions": []})
        assert await clerk.tools() == []
        with pytest.raises(NotFound):
            await clerk.call(ToolRef("shop", "close"), {})
    assert desk.shop.sold == [("close", 0)]
    with pytest.raises(NotFound):
        await desk.token("nobody", agent="no-such-agent")


async def test_a_token_of_an_agent_writes_into_that_agents_brain_and_no_other(desk: Desk) -> None:
    for name in ("Clerk", "Boss"):
        await desk.owner.create_agent({"id": name.lower(), "name": name, "toolPermissions": ["agent_zoo/*"]})
    add, change, delete = (
        ToolRef("agent_zoo", f"agent_zoo_{verb}_brain_entry") for verb in ("create", "update", "delete")
    )
    note: JsonObject = {"type": "note", "content": "Prices rose.", "pinned": True}
    kept = (await desk.owner.call(add, {"agentId": "boss", **note}))["structuredContent"]
    secret = await desk.token("clerk", agent="clerk", mode="bypassPermissions", source="agent")
    async with desk.rest(secret) as clerk:
        own = (await clerk.call(add, {"agentId": "clerk", **note}))["structuredContent"]
        other: JsonObject = {"agentId": "boss", "entryId": kept["id"]}
        for ref, arguments in (
            (add, {"agentId": "boss", **note}),
            (change, {**other, "content": "!"}),
            (delete, other),
        ):
            answer = await clerk.call(ref, arguments)
            assert (answer["isError"], answer["structuredContent"]["code"]) == (True, "INVALID_ARGUMENTS")
            assert "agentId=clerk" in answer["structuredContent"]["message"]
        query = ToolRef("agent_zoo", "agent_zoo_query_brain_entries")
        assert (await clerk.call(query, {"agentId": "boss"}))["structuredContent"]["entries"] == [kept]
        assert not (await clerk.call(delete, {"agentId": "clerk", "entryId": own["id"]}))["isError"]


async def test_a_revoked_token_ends_at_once_with_what_waits_under_it(desk: Desk) -> None:
    secret = await desk.token("robot", source="api")
    async with desk.rest(secret) as robot:
        async with calling(lambda: robot.call(SELL, {"what": "tea"})) as call:
            question = await desk.question()
            await desk.owner.permissions.revoke_token("robot")
        assert isinstance(call.raised, Unauthenticated)
        with pytest.raises(Unauthenticated):
            await robot.tools()

    async def withdrawn() -> bool:
        return (await desk.owner.permissions.approval(question["id"]))["status"] == "withdrawn"

    await desk.until(withdrawn)
    with pytest.raises(NotFound):
        await desk.owner.permissions.revoke_token("robot")
    assert desk.shop.sold == []


async def ends(response: httpx2.Response) -> None:
    """Read a stream to its end, which may be an abrupt one."""
    try:
        async for _ in response.aiter_bytes():
            pass
    except httpx2.TransportError:
        pass


async def test_revoking_cuts_the_open_stream_of_a_legacy_client(desk: Desk) -> None:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    }
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    secret = await desk.token("ide")
    async with desk.http(secret) as http:
        opened = await http.post("/mcp", json=body, headers={"accept": HEADERS["accept"]})
        named = {"mcp-session-id": opened.headers["mcp-session-id"], "accept": "text/event-stream"}
        async with http.stream("GET", "/mcp", headers=named) as stream:
            assert stream.status_code == 200
            await desk.owner.permissions.revoke_token("ide")
            with anyio.fail_after(5):
                await ends(stream)
        assert (await http.get("/mcp", headers=named)).status_code == 401


async def test_revoking_cuts_the_open_stream_of_a_modern_client(desk: Desk) -> None:
    async with desk.http(await desk.token("ide")) as http:
        params: JsonObject = {"notifications": {"toolsListChanged": True}, "_meta": META}
        body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = {name: value for name, value in HEADERS.items() if name != "mcp-name"}
        headers["mcp-method"] = "subscriptions/listen"
        async with http.stream("POST", "/mcp", json=body, headers=headers) as stream:
            assert stream.status_code == 200
            await desk.owner.permissions.revoke_token("ide")
            with anyio.fail_after(5):
                await ends(stream)


async def test_the_events_of_the_crib_are_the_owners_alone(desk: Desk) -> None:
    for source in ("ide", "api", "agent"):
        async with desk.http(await desk.token(f"of-{source}", source=source, mayApprove=True)) as http:
            assert (await http.get("/api/events")).status_code == 404
