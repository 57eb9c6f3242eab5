"""List changes on the stream of a legacy session are never lost."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from integration.web.mcp.test_sessions import asking, begin, say
from lab import Lab, make_lab
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return make_lab(tmp_path)


@asynccontextmanager
async def serving(lab: Lab) -> AsyncGenerator[httpx2.AsyncClient]:
    async with hold(lab.settings, kind="serve") as holding, asking(holding, lab.token) as client:
        yield client


async def deny(client: httpx2.AsyncClient) -> str:
    """Hide a tool and return the rule's id."""
    made = await client.post("/api/policy/rules", json={"effect": "deny", "pattern": "lab/echo"})
    return str(made.json()["id"])


async def allow(client: httpx2.AsyncClient, rule: str) -> None:
    """Remove the rule."""
    assert (await client.delete(f"/api/policy/rules/{rule}")).status_code == 200


async def lists_echo(client: httpx2.AsyncClient, session: str) -> bool:
    """Return whether the tool is listed."""
    return "lab_echo" in (await say(client, "tools/list", session=session)).text


async def wait_for_change(stream: httpx2.Response) -> None:
    """Wait for the announcement."""
    assert stream.status_code == 200
    with anyio.fail_after(20):
        async for line in stream.aiter_lines():
            if CHANGED in line:
                return
    pytest.fail("the stream ended")


async def test_change_before_the_stream_opens_is_announced_on_it(lab: Lab) -> None:
    async with serving(lab) as client:
        session = await begin(client)
        assert await lists_echo(client, session)
        await deny(client)
        async with client.stream("GET", "/mcp", headers={"mcp-session-id": session}) as stream:
            await wait_for_change(stream)


async def _change_on_new_stream(client: httpx2.AsyncClient, headers: dict[str, str]) -> int:
    async with client.stream("GET", "/mcp", headers=headers) as stream:
        if stream.status_code == 200:
            await wait_for_change(stream)
        return stream.status_code


async def test_reverted_change_is_announced_to_a_client_that_listed_in_between(lab: Lab) -> None:
    async with serving(lab) as client:
        session = await begin(client)
        async with client.stream("GET", "/mcp", headers={"mcp-session-id": session}) as stream:
            lines = stream.aiter_lines()

            async def wait_for_line() -> None:
                with anyio.fail_after(20):
                    async for line in lines:
                        if CHANGED in line:
                            return

            rule = await deny(client)
            await wait_for_line()
            # Announcements are half a second apart, so the crib compares the lists after both changes.
            await allow(client, rule)
            assert await lists_echo(client, session)
            await deny(client)
            await wait_for_line()


@pytest.mark.parametrize("is_resumed", [True, False])
async def test_change_while_the_stream_is_closed_is_announced_after_reopening(lab: Lab, is_resumed: bool) -> None:
    async with serving(lab) as client:
        session, other = await begin(client), await begin(client)
        headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        async with client.stream("GET", "/mcp", headers={"mcp-session-id": other}) as witness:
            lines = witness.aiter_lines()
            async with client.stream("GET", "/mcp", headers=headers) as stream:
                rule = await deny(client)
                last = await _change_id(stream.aiter_lines())
                await _change_id(lines)
            await allow(client, rule)
            await _change_id(lines)  # the change was announced while the first stream was closed
        again = headers | ({"last-event-id": last} if is_resumed else {})
        with anyio.fail_after(20):
            while (
                status := await _change_on_new_stream(client, again)
            ) == 409:  # until the crib has noticed the closed stream
                pass
        assert status == 200


async def _change_id(lines: AsyncIterator[str]) -> str:
    """Wait for the announcement and return the id of its event."""
    last = ""
    with anyio.fail_after(20):
        async for line in lines:
            last = line.removeprefix("id:").strip() if line.startswith("id:") else last
            if CHANGED in line:
                return last
    pytest.fail("the stream ended")
