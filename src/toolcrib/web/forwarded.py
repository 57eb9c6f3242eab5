"""Requests that other nodes forward: who they are for, and the way there.

A forwarded request has a signature instead of a token. The owner is the owner on every node; a named token is looked up
by its id, so that a revoked one is refused here too.

Must never forward a request that was forwarded.
"""

import hashlib
from typing import Final

import anyio
from starlette.types import Message, Receive, Scope, Send

from toolcrib.gate.principals import Credential, NamedTokens, Principals
from toolcrib.model.errors import Denied, Unauthenticated, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.nodes.cluster_secret import SIGNATURE_HEADER
from toolcrib.nodes.forwarding import NodeClient, RequestSigner
from toolcrib.web.limits import BY_OWNER, PRINCIPAL

TAG_LENGTH: Final = 8
FORWARDED: Final = "toolcrib.forwarded"
"""Scope key of the node that forwarded a request."""
_SOURCES: Final = ("ide", "api", "cli", "web")
_PASSED_ON: Final = (
    b"accept", b"content-type", b"last-event-id", b"mcp-protocol-version", b"mcp-session-id", b"mcp-method",
    b"mcp-name", b"traceparent", b"tracestate",
)  # fmt: skip
_ANSWER_SECONDS: Final = 30.0
_RETURNED: Final = (b"content-type", b"mcp-session-id", b"retry-after", b"x-accel-buffering", b"location")


class ForwardedRequests:
    """The receiving side: verifies signatures and finds the credential of the caller."""

    def __init__(self, signer: RequestSigner, principals: Principals, tokens: NamedTokens) -> None:
        self._signer = signer
        self._principals = principals
        self._tokens = tokens

    def identify(self, scope: Scope, header: bytes) -> tuple[Credential, str]:
        """Return the credential of the caller and the digest of the body. Raises `node.refused`, `auth.invalid`."""
        signed = self._signer.verify(header.decode("latin-1"), method=scope["method"], target=target_of(scope))
        scope[FORWARDED] = signed.node
        if signed.caller.get("byOwner") is True:
            scope[BY_OWNER] = True
        name, token_id, source = (signed.caller.get(key) for key in ("token", "tokenId", "source"))
        if name is None:
            return self._principals.owner_credential(source if source in _SOURCES else "api"), signed.digest
        known = self._tokens.credential(str(name))
        if known is None or known.principal.token_id != token_id:
            raise Unauthenticated("auth.invalid", "The token is not valid.")
        return known, signed.digest


class CheckedBody:
    """The body of a forwarded request, passed on once its digest was compared."""

    def __init__(self, receive: Receive, digest: str) -> None:
        self._receive = receive
        self._digest = digest
        self._is_read = False

    async def receive(self) -> Message:
        """Return the whole body first, then what follows it. Raises `node.refused`."""
        if self._is_read:
            return await self._receive()
        body, more = bytearray(), True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if hashlib.sha256(body).hexdigest() != self._digest:
            raise Denied("node.refused", "The body of a request of another node was changed.")
        self._is_read = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}


class NodeProxy:
    """The sending side: passes a request to another node and its response back, as it arrives."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client

    async def serves(self, scope: Scope, node: object) -> bool:
        """Return whether a request should go to this node: it is another one, alive, and did not forward it here."""
        return isinstance(node, str) and FORWARDED not in scope and await self._client.runs(node)

    async def node_tagged(self, tag: str) -> str | None:
        """Return the live node with this tag."""
        return next((node for node in await self._client.others() if node_tag(node) == tag), None)

    async def others(self, scope: Scope) -> list[str]:
        """Return the other live nodes, or none for a request that one of them forwarded."""
        return [] if FORWARDED in scope else await self._client.others()

    async def forward(self, node: str, scope: Scope, body: bytes, receive: Receive | None, send: Send) -> None:
        """Forward a request whose body was read, until its client disconnects. Raises `node.unreachable`.

        Without `receive`, the other node gets it even if the client disconnects, and has some seconds to respond.
        """
        failure: Unavailable | None = None
        async with anyio.create_task_group() as tasks:
            if receive is not None:
                tasks.start_soon(_end_on_disconnect, receive, tasks.cancel_scope)
            try:
                await self._pass_on(node, scope, body, send, None if receive is not None else _ANSWER_SECONDS)
            except Unavailable as error:  # raised outside, because a task group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _pass_on(self, node: str, scope: Scope, body: bytes, send: Send, seconds: float | None) -> None:
        names = dict(scope["headers"])
        headers = {name.decode(): names[name].decode("latin-1") for name in _PASSED_ON if name in names}
        async with self._client.stream(
            node, scope["method"], target_of(scope), body, headers, caller=caller_of(scope), seconds=seconds
        ) as response:
            returned = [(name, value) for name, value in response.headers.raw if name.lower() in _RETURNED]
            await send({"type": "http.response.start", "status": response.status_code, "headers": returned})
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _end_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a request when its client disconnects, which the other node then notices too."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def node_tag(node: str) -> str:
    """Return a short name of a node for ids that clients carry."""
    return hashlib.sha256(node.encode("utf-8", "surrogateescape")).hexdigest()[:TAG_LENGTH]


def caller_of(scope: Scope) -> JsonObject:
    """Return what a signature states about the caller of a request."""
    principal: Principal = scope[PRINCIPAL]
    caller: JsonObject = {"byOwner": True} if scope.get(BY_OWNER) else {}
    if principal.is_owner:
        return caller | {"source": principal.source}
    return caller | {"token": principal.name, "tokenId": principal.token_id}


def target_of(scope: Scope) -> str:
    """Return the path and query of a request, as sent."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


SIGNATURE: Final = SIGNATURE_HEADER.encode()
