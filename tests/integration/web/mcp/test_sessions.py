"""Legacy MCP sessions over HTTP: restarts, other principals, revocation, and limits."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus

from http_clients import PLAIN
from lab import Lab, eventually, make_lab
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.upstream.pool import Pool
from toolcrib.web.mcp.sessions import MOST_OF_ONE
from toolcrib.web.run import Holding, hold

pytestmark = pytest.mark.anyio

HELLO: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "test", "version": "1"},
}
ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return make_lab(tmp_path)


@asynccontextmanager
async def asking(holding: Holding, secret: str) -> AsyncGenerator[httpx2.AsyncClient]:
    headers = {"authorization": f"Bearer {secret}", **ACCEPT}
    async with httpx2.AsyncClient(
        base_url=holding.info.url, headers=headers, timeout=30, trust_env=False, verify=PLAIN
    ) as client:
        yield client


async def say(
    client: httpx2.AsyncClient, method: str, params: Any = None, session: str | None = None, path: str = "/mcp"
) -> httpx2.Response:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    if not method.startswith("notifications/"):
        message["id"] = 1
    return await client.post(path, json=message, headers={"mcp-session-id": session} if session else {})


async def begin(client: httpx2.AsyncClient, path: str = "/mcp") -> str:
    answer = await say(client, "initialize", HELLO, path=path)
    assert answer.status_code == 200, answer.text
    session = answer.headers["mcp-session-id"]
    assert (await say(client, "notifications/initialized", session=session, path=path)).status_code == 202
    return session


async def echo(client: httpx2.AsyncClient, session: str, path: str = "/mcp") -> httpx2.Response:
    return await say(client, "tools/call", {"name": "lab_echo", "arguments": {"text": "hi"}}, session, path)


async def test_mcp_session_works_after_a_restart_of_the_crib(lab: Lab) -> None:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        session = await begin(client)
        assert (await echo(client, session)).json()["result"]["structuredContent"] == {"said": "hi"}
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        assert (await echo(client, session)).json()["result"]["structuredContent"] == {"said": "hi"}
        assert (await say(client, "ping", session=session)).status_code == 200


async def test_restored_mcp_session_announces_changed_lists(lab: Lab) -> None:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        session = await begin(client)
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        announced: list[str] = []
        with anyio.fail_after(20):
            async with client.stream("GET", "/mcp", headers={"mcp-session-id": session}) as stream:
                assert stream.status_code == 200
                async for line in stream.aiter_lines():
                    announced += [line] if "list_changed" in line else []
                    if len(announced) == 3:
                        break
        assert all(
            f"notifications/{kind}/list_changed" in "".join(announced) for kind in ("tools", "prompts", "resources")
        )


async def test_concurrent_requests_restore_an_mcp_session(lab: Lab) -> None:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        session = await begin(client)
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        answers: list[int] = []

        async def call_echo() -> None:
            answers.append((await echo(client, session)).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call_echo)
        assert answers == [200] * 20


async def test_ended_mcp_session_stays_ended_after_a_restart(lab: Lab) -> None:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        session = await begin(client)
        assert (await client.delete("/mcp", headers={"mcp-session-id": session})).status_code == 200
        assert (await echo(client, session)).status_code == 404
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        assert (await echo(client, session)).status_code == 404


async def test_mcp_session_is_invalid_for_another_principal_or_endpoint(lab: Lab) -> None:
    async with hold(lab.settings, kind="serve") as holding:
        tokens = holding.crib.tokens
        (_, first), (_, second) = await tokens.create("first"), await tokens.create("second")
        async with asking(holding, first) as client:
            session = await begin(client)
            assert (await echo(client, session)).status_code == 200
            assert (await say(client, "tools/list", session=session, path="/mcp/servers/lab")).status_code == 404
    async with hold(lab.settings, kind="serve") as holding:
        for other in (second, lab.token):
            async with asking(holding, other) as client:
                assert (await echo(client, session)).status_code == 404
        tokens = holding.crib.tokens
        await tokens.revoke("first")
        async with asking(holding, first) as client:
            assert (await echo(client, session)).status_code == 401
        _, again = await tokens.create("first")
        async with asking(holding, again) as client:
            assert (await echo(client, session)).status_code == 404


@pytest.mark.parametrize("session", ["x", "A" * 5_000, "0" * 32])
async def test_unknown_mcp_session_id_is_404(lab: Lab, session: str) -> None:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        assert (await echo(client, session)).status_code == 404


async def test_revoking_a_token_ends_only_its_mcp_sessions(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def note(_: Pool, session: str) -> None:
        ended.append(session)

    monkeypatch.setattr(Pool, "end_session", note)
    async with hold(lab.settings, kind="serve") as holding:
        _, secret = await holding.crib.tokens.create("app")
        async with asking(holding, secret) as app, asking(holding, lab.token) as owner:
            own = [await begin(app) for _ in range(3)]
            other = await begin(owner)
            await holding.crib.tokens.revoke("app")
            await eventually(lambda: set(ended) == set(own))
            assert (await echo(owner, other)).status_code == 200


async def open_many_sessions(lab: Lab, number: int) -> None:
    async with hold(lab.settings, kind="serve") as holding:
        (_, greedy), (_, modest) = [await holding.crib.tokens.create(name) for name in ("greedy", "modest")]
        async with (
            asking(holding, greedy) as attacker,
            asking(holding, modest) as client,
            asking(holding, lab.token) as owner,
        ):
            client_session, owner_session = await begin(client), await begin(owner)
            attacker_sessions = [await begin(attacker) for _ in range(number)]
            assert (await echo(client, client_session)).status_code == 200
            assert (await echo(owner, owner_session)).status_code == 200
            assert (await echo(client, await begin(client))).status_code == 200
            # An evicted idle session is restored when its client returns.
            assert (await echo(attacker, attacker_sessions[0])).status_code == 200


async def test_one_token_cannot_evict_mcp_sessions_of_others(lab: Lab) -> None:
    await open_many_sessions(lab, MOST_OF_ONE + 5)


@takes_long
async def test_thousand_mcp_sessions_of_one_token_evict_no_others(lab: Lab) -> None:
    await open_many_sessions(lab, 1_100)


async def test_token_with_only_busy_mcp_sessions_is_refused_another(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.web.mcp.sessions.McpSessions.__init__.__kwdefaults__", {"most": 10, "most_of_one": 2})
    async with hold(lab.settings, kind="serve") as holding:
        _, secret = await holding.crib.tokens.create("app")
        async with (
            asking(holding, secret) as client,
            asking(holding, lab.token) as owner,
            anyio.create_task_group() as tasks,
        ):

            async def follow(session: str, *, task_status: TaskStatus[None]) -> None:
                async with client.stream("GET", "/mcp", headers={"mcp-session-id": session}) as stream:
                    assert stream.status_code == 200
                    task_status.started()
                    await anyio.sleep_forever()

            for _ in range(2):
                await tasks.start(follow, await begin(client))
            refused = await say(client, "initialize", HELLO)
            assert refused.status_code == 503
            assert refused.json()["code"] == "crib.busy"
            assert await begin(owner)
            tasks.cancel_scope.cancel()


async def test_owner_can_open_an_mcp_session_when_all_others_are_busy(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.web.mcp.sessions.McpSessions.__init__.__kwdefaults__", {"most": 2, "most_of_one": 1})
    async with hold(lab.settings, kind="serve") as holding, AsyncExitStack() as stack:
        for name in ("one", "two"):
            _, secret = await holding.crib.tokens.create(name)
            client = await stack.enter_async_context(asking(holding, secret))
            stream = client.stream("GET", "/mcp", headers={"mcp-session-id": await begin(client)})
            assert (await stack.enter_async_context(stream)).status_code == 200
        async with asking(holding, lab.token) as owner:
            assert (await echo(owner, await begin(owner))).status_code == 200


async def test_mcp_session_subscribes_to_a_limited_number_of_resources(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.web.mcp.methods.WATCHED_BY_ONE", 1)
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        session = await begin(client)
        agents = "agent-zoo://agents"
        first = await say(client, "resources/subscribe", {"uri": agents}, session)
        assert first.json()["result"] == {}
        refused = await say(client, "resources/subscribe", {"uri": f"{agents}/reviewer"}, session)
        assert "may subscribe to at most 1 resources" in refused.json()["error"]["message"]
        await say(client, "resources/unsubscribe", {"uri": agents}, session)
        again = await say(client, "resources/subscribe", {"uri": f"{agents}/reviewer"}, session)
        assert again.json()["result"] == {}
