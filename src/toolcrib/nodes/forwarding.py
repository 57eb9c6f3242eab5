"""Requests from one node to another: signed, valid once, and sent only to addresses of live nodes.

A signature covers the receiving node and the epoch of its lease, the method, the target, the digest of the body, the
caller, the time and a nonce. It is a MAC with a key that all nodes derive from the cluster's secret. The receiver
accepts it for a minute, which allows for clocks that differ, and remembers its nonce for as long. A node that restarts
has forgotten the nonces, so it refuses what was signed for an epoch before its start.

Must never send a request to an address that is not in the list of nodes, or accept one twice.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.errors import CODES, Denied, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject, canonical, dumps, is_object, loads
from toolcrib.nodes.cluster_secret import SIGNATURE_HEADER
from toolcrib.nodes.membership import Membership

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = lazy_module("httpx2")

KEY_PURPOSE: Final = "requests between nodes"
VALID_SECONDS: Final = 60.0
"""Seconds for which a signature is accepted, before and after the time that it states."""
_MOST_NONCES: Final = 100_000
_MAC_BYTES: Final = 32
_LONGEST: Final = 16_384
_CONNECT_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a valid signature states: the sending node, the caller on whose behalf it asks, and the body's digest."""

    node: str
    caller: JsonObject
    digest: str


class RequestSigner:
    """Signs the requests of this node and verifies those of others."""

    def __init__(self, key: bytes, node: str, clock: Callable[[], float] = time.time, *, since: int = 0) -> None:
        """`since` is the epoch of the first lease of this process."""
        self._key = key
        self._node = node
        self._since = since
        self._clock = clock
        self._seen: dict[str, float] = {}

    def sign(self, *, to: str, method: str, target: str, body: bytes, caller: JsonObject, epoch: int) -> str:
        """Return the value of the header for one request. `epoch` is that of the receiver's lease."""
        stated: JsonObject = {
            "from": self._node,
            "to": to,
            "epoch": epoch,
            "method": method,
            "target": target,
            "digest": hashlib.sha256(body).hexdigest(),
            "caller": caller,
            "at": self._clock(),
            "nonce": secrets.token_hex(16),
        }
        text = canonical(stated)
        return base64.urlsafe_b64encode(self._mac(text) + text).decode()

    def verify(self, header: str, *, method: str, target: str) -> SignedRequest:
        """Return what a signature states. Raises `node.refused` unless it is valid for this request, now and once.

        The caller must compare the digest with the body.
        """
        stated = self._open(header)
        if (stated.get("to"), stated.get("method"), stated.get("target")) != (self._node, method, target):
            raise _refusal("The signature of another node is for another request.")
        epoch: Json = stated.get("epoch", self._since)  # nodes of the previous version do not state it
        if not isinstance(epoch, int) or epoch < self._since:
            raise _refusal("The signature of another node is from before this node started.")
        now, at, nonce = self._clock(), stated.get("at"), str(stated.get("nonce"))
        if not isinstance(at, int | float) or abs(now - at) > VALID_SECONDS:
            raise _refusal("The signature of another node has expired, or the clocks of the nodes differ too much.")
        self._forget(now)
        if nonce in self._seen or len(self._seen) >= _MOST_NONCES:
            raise _refusal("A request of another node was sent twice.")
        self._seen[nonce] = at + 2 * VALID_SECONDS
        caller = stated.get("caller")
        return SignedRequest(str(stated.get("from")), caller if is_object(caller) else {}, str(stated.get("digest")))

    def _open(self, header: str) -> JsonObject:
        try:
            raw = base64.b64decode(header, altchars=b"-_", validate=True) if len(header) <= _LONGEST else b""
        except (binascii.Error, ValueError):
            raw = b""
        mac, text = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(text)):
            raise _refusal("The request is not signed by a node of this cluster.")
        stated: JsonObject = loads(text)
        return stated

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, hashlib.sha256)

    def _forget(self, now: float) -> None:
        """Forget nonces whose signatures have expired, oldest first."""
        for nonce, until in list(self._seen.items()):
            if until > now:
                return
            del self._seen[nonce]


class NodeClient:
    """Sends requests to other nodes. Use as `async with`."""

    def __init__(self, signer: RequestSigner, membership: Membership, certificate: Path | None = None) -> None:
        """`certificate` is this node's own, which the others may share; they are addressed by number, not by name."""
        self._signer = signer
        self._membership = membership
        self._certificate = certificate
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> "NodeClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            with anyio.CancelScope(shield=True):
                await self._http.aclose()

    async def runs(self, node: str) -> bool:
        """Return whether a node other than this one is alive and can be reached."""
        return node != self._membership.id and await self._membership.address_of(node) is not None

    async def others(self) -> list[str]:
        """Return the other live nodes that can be reached."""
        alive = await self._membership.alive()
        return [node.id for node in alive if node.address is not None and node.id != self._membership.id]

    async def ask(self, node: str, method: str, path: str, body: Json = None, *, caller: JsonObject) -> Json:
        """Send a request and return its JSON. Raises the error that the node reports, or `node.unreachable`."""
        content = b"" if body is None else dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        async with self.stream(node, method, path, content, headers, caller=caller) as response:
            answer = await response.aread()
        if not response.is_success:
            raise error_of_problem(answer, node)
        return loads(answer) if answer else None

    @asynccontextmanager
    async def stream(
        self,
        node: str,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        caller: JsonObject,
        seconds: float | None = _ANSWER_SECONDS,
    ) -> "AsyncGenerator[httpx2.Response]":
        """Send a request and yield its response. Without `seconds`, wait for as long as it takes."""
        address, epoch = await self._membership.reach(node)
        if address is None:
            raise _unreachable(node)
        signature = self._signer.sign(to=node, method=method, target=target, body=body, caller=caller, epoch=epoch)
        given = {**(headers or {}), SIGNATURE_HEADER: signature}
        timeout = httpx2.Timeout(seconds, connect=_CONNECT_SECONDS)
        try:
            async with self._client().stream(
                method, f"{address}{target}", content=body, headers=given, timeout=timeout
            ) as response:
                yield response
        except httpx2.TransportError as error:
            raise _unreachable(node) from error

    def _client(self) -> "httpx2.AsyncClient":
        if self._http is None:
            context = ssl.create_default_context()
            context.check_hostname = False
            if self._certificate is not None:
                context.load_verify_locations(self._certificate)
            self._http = httpx2.AsyncClient(verify=context, trust_env=False, follow_redirects=False)
        return self._http


def error_of_problem(content: bytes, node: str) -> ToolcribError:
    """Return the error that another node reports."""
    try:
        shape: Json = loads(content)
    except orjson.JSONDecodeError:
        shape = None
    code = shape.get("code") if is_object(shape) else None
    if not is_object(shape) or code not in CODES:
        return _unreachable(node)
    hint = shape.get("hint")
    return CODES[code].raised_as(code, str(shape.get("detail", "")), hint if isinstance(hint, str) else None)


def _refusal(message: str) -> Denied:
    return Denied("node.refused", message)


def _unreachable(node: str) -> Unavailable:
    return Unavailable("node.unreachable", f"The node {node!r} does not respond.")
