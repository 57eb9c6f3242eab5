"""Which node of a cluster handles an MCP request. Most requests are handled by the node that receives them.

What lives in the memory of one node is reached there: a parked call, a question to a legacy client, and the event
stream and subscriptions of a legacy session. The node is part of the state that the client carries. It is read without
checking the seal: the receiving node checks it, and requests go to live nodes only.

If the node has ended, the request is handled here, as after a restart: a legacy session is restored, and state that is
lost is reported as expired.
"""

import logging
from collections.abc import Container
from typing import Final

from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json
from toolcrib.model.jsonrpc import Message
from toolcrib.web.forwarded import TAG_LENGTH, NodeProxy, node_tag
from toolcrib.web.mcp.sealed_state import peek

logger = logging.getLogger(__name__)

_IN_STREAM: Final = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
"""Requests about what a legacy session receives on its event stream."""
_CANCELLED: Final = "notifications/cancelled"


class NodeRouting:
    """Finds the node of a request and forwards requests."""

    def __init__(self, node: str, proxy: NodeProxy) -> None:
        self.node = node
        self.tag = node_tag(node)
        self._proxy = proxy

    async def route(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        session_id: str,
        message: Message,
        body: bytes,
        running: Container[tuple[str, Json]],
    ) -> bool:
        """Forward a message that another node handles; return False if this one does.

        A call that is cancelled may run on any node: if it is not `running` here, all of them are notified. Answers and
        notifications count even if their client does not wait for the response.
        """
        node = await self._node_for(scope, session_id, message)
        if node is not None:
            waits = bool(message.method) and message.id is not None
            await self._proxy.forward(node, scope, body, receive if waits else None, send)
        elif message.method == _CANCELLED and session_id:
            call = message.params.get("requestId")
            if not isinstance(call, str | int) or (session_id, call) not in running:
                await self._forward_to_others(scope, body)
        return node is not None

    async def route_stream(self, scope: Scope, receive: Receive, send: Send, session_id: str) -> bool:
        """Forward the request for a session's stream to its node, and the end of a session to all nodes.

        Returns False if this node handles the request too.
        """
        if scope["method"] == "DELETE":
            await self._forward_to_others(scope, b"")
            return False
        node = await self._node_for(scope, session_id)
        if node is not None:
            await self._proxy.forward(node, scope, b"", receive, send)
        return node is not None

    async def _node_for(self, scope: Scope, session_id: str, message: Message | None = None) -> str | None:
        """Return the other node that handles a request, or None if this one does. GET requests have no message."""
        named = self._named_node(session_id, message)
        if named is None or named in (self.node, self.tag):
            return None
        node = await self._proxy.node_tagged(named) if len(named) == TAG_LENGTH else named
        return node if node is not None and await self._proxy.serves(scope, node) else None

    def _named_node(self, session_id: str, message: Message | None) -> str | None:
        """Return the node, or its tag, that the state in a request names."""
        if message is None:
            return _node_in(session_id)
        if session_id and not message.method:  # an answer to a question that a node asked
            return _tag_in(str(message.id))
        state: Json = message.params.get("requestState")
        if isinstance(state, str):
            return _node_in(state)
        is_notice = message.id is None and message.method != _CANCELLED
        return _node_in(session_id) if session_id and (is_notice or message.method in _IN_STREAM) else None

    async def _forward_to_others(self, scope: Scope, body: bytes) -> None:
        """Send a request to all other nodes, unless it came from one; their responses are ignored."""

        async def ignore(_: AsgiMessage) -> None:
            """Drop the response."""

        for node in await self._proxy.others(scope):
            try:
                await self._proxy.forward(node, scope, body, None, ignore)
            except Unavailable as error:
                logger.info("Could not notify %s: %s", node, error)


def _node_in(sealed: str) -> str | None:
    node = peek(sealed).get("node") if sealed else None
    return node if isinstance(node, str) else None


def _tag_in(id: str) -> str | None:
    """Return the tag in an id such as `TAG-RANDOM`."""
    tag, separator, _ = id.partition("-")
    return tag if separator and len(tag) == TAG_LENGTH else None
