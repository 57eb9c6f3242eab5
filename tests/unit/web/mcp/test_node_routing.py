"""Messages that another node handles: which of them end when their client disconnects."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx2
import pytest
from starlette.types import Message, Scope

from toolcrib.model.json import dumps
from toolcrib.model.jsonrpc import read_message
from toolcrib.model.principals import Principal
from toolcrib.nodes.forwarding import NodeClient
from toolcrib.web.forwarded import NodeProxy, node_tag
from toolcrib.web.limits import PRINCIPAL
from toolcrib.web.mcp.node_routing import NodeRouting
from toolcrib.web.mcp.sealed_state import StateSeal

pytestmark = pytest.mark.anyio

OTHER = "the-other-node"


class OtherNodes:
    """The other nodes; they respond only after a disconnected client would be noticed."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.seconds: list[float | None] = []

    async def others(self) -> list[str]:
        """Return the ids of the other nodes."""
        return [OTHER]

    async def runs(self, node: str) -> bool:
        """Return whether a node is running."""
        return node == OTHER

    @asynccontextmanager
    async def stream(self, *given: Any, seconds: float | None, **more: Any) -> AsyncGenerator[httpx2.Response]:
        """Receive a request."""
        self.seconds.append(seconds)
        await anyio.wait_all_tasks_blocked()
        await anyio.lowlevel.checkpoint()
        self.received.append(given[3])
        yield httpx2.Response(202, content=_nothing())


async def _nothing() -> AsyncGenerator[bytes]:
    yield b""


async def leave() -> Message:
    """Return the end of the client's connection."""
    return {"type": "http.disconnect"}


async def ignore(_: Message) -> None:
    """Discard a message."""


async def route(others: OtherNodes, session: str, message: dict[str, object]) -> bool:
    """Route a message of a client that has disconnected."""
    routing = NodeRouting("this-node", NodeProxy(cast("NodeClient", others)))
    body = dumps({"jsonrpc": "2.0", **message})
    scope: Scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": []}
    scope[PRINCIPAL] = Principal("owner", "owner", "ide")
    return await routing.route(scope, leave, ignore, session, read_message(body), body, ())


SESSION = StateSeal(b"key").close({"node": OTHER}, None, seconds=60)


@pytest.mark.parametrize(
    "message",
    [
        {"id": f"{node_tag(OTHER)}-1", "result": {"action": "accept"}},
        {"method": "notifications/roots/list_changed"},
    ],
)
async def test_answer_and_notification_arrive_after_their_client_disconnected(message: dict[str, object]) -> None:
    others = OtherNodes()
    assert await route(others, SESSION, message)
    assert len(others.received) == 1
    assert others.seconds[0] is not None  # a hanging node must not keep the message forever


async def test_request_ends_with_its_client() -> None:
    others = OtherNodes()
    assert await route(others, SESSION, {"id": 1, "method": "resources/subscribe", "params": {"uri": "a://b"}})
    assert others.received == []


async def test_cancellation_reaches_all_nodes_after_its_client_disconnected() -> None:
    others = OtherNodes()
    assert not await route(others, SESSION, {"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert len(others.received) == 1
    assert others.seconds[0] is not None
