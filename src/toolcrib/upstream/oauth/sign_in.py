"""One sign-in at one server: discovery, the authorization URL for the user, and the code exchange.

An attempt has its own `state`, its own PKCE verifier and ten minutes. The first response with the right `state`
consumes it. Before a code is redeemed, the issuer that sent it is compared with the one that was asked, so a code never
reaches another issuer.

Must never open a browser itself: it only returns a validated URL.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import anyio
import httpx2

from toolcrib.base.network.guarded_client import DOCUMENT_SECONDS, answered_locally
from toolcrib.base.network.urls import CheckedUrl, check_url
from toolcrib.base.network.web import Web
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import HANDSHAKE_VERSION
from toolcrib.model.servers import Auth
from toolcrib.model.version import __version__
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential, Registration
from toolcrib.upstream.oauth.demand import NO_DEMAND, Challenge, Demand
from toolcrib.upstream.oauth.discovery import Discovered, Issuer, challenge_of, discover
from toolcrib.upstream.oauth.failures import failed, printable, raise_as_failed, timed_out
from toolcrib.upstream.oauth.grants import GrantRefused, redeem, register
from toolcrib.upstream.oauth.redirect_listener import Arrival, ReturnAddress, return_address

SIGN_IN_SECONDS = 600.0

_PROBE_HEADERS = {"accept": "application/json, text/event-stream"}
_INITIALIZE: JsonObject = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "toolcrib", "version": __version__},
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """The server to sign in to. `local_allowed` means that its owner's own definition names the address.

    `server` is the name the sign-in is stored under, `shown` the display name. `client_document` is the URL of this
    crib's client metadata document, for issuers that support it.
    """

    server: str
    url: CheckedUrl
    local_allowed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth: Auth = field(default_factory=Auth)
    client_document: str | None = None
    callback_port: int = 0
    shown: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The parameters of a redirect."""

    code: str | None = field(repr=False)
    error: str | None
    iss: str | None


class SignIn:
    """A pending sign-in. `url` is for the user; `finish` waits for the redirect and stores the tokens."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        tokens: CredentialStore,
        found: Discovered,
        blank: OAuthCredential,
        address: ReturnAddress,
        seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._tokens = tokens
        self._found = found
        self._blank = blank
        self._address = address
        self._now = now
        self._state: str | None = secrets.token_urlsafe(32)
        self._verifier = secrets.token_urlsafe(64)
        self._end = time.monotonic() + min(seconds, SIGN_IN_SECONDS)
        self._answered = anyio.Event()
        self._answer: _Answer | None = None
        self.url = self._authorization_url(self._state)

    @property
    def redirect_uri(self) -> str:
        """The redirect URI. `paste` accepts URLs that begin with it."""
        return self._blank.client.redirect_uri or self._address.uri

    def paste(self, final_url: str) -> None:
        """Accept the final URL from a browser on another machine."""
        url = urlsplit(final_url.strip())
        base = f"{url.scheme}://{url.netloc}{url.path}"
        if base != self.redirect_uri or self._take(url.query) == "foreign":
            raise failed("this address does not belong to the sign-in in progress.")

    async def finish(self) -> OAuthCredential:
        """Wait for the redirect, redeem its code and store the tokens."""
        with anyio.move_on_after(self._end - time.monotonic()):
            await self._address.serve(self._take, self._answered)
        answer = self._answer
        if answer is None:
            # The issuer may no longer know this crib and show an error page; the next attempt registers again.
            await self._tokens.forget_registration(self._found.issuer.name)
            raise timed_out()
        self._check_issuer(answer)
        if answer.code is None:
            raise failed(f"the issuer answered {printable(answer.error or 'without a code')}.")
        with raise_as_failed():
            return await self._redeem(answer.code)

    def _take(self, query: str) -> Arrival:
        """Accept a redirect that carries the state, once and in time."""
        try:
            fields = parse_qs(query, keep_blank_values=True, strict_parsing=True, max_num_fields=20)
        except ValueError:
            return "foreign"
        state = self._state
        single = {name: values[0] for name, values in fields.items() if len(values) == 1}
        in_time = time.monotonic() < self._end
        if state is None or not in_time or not hmac.compare_digest(single.get("state", "").encode(), state.encode()):
            return "foreign"
        self._state = None
        # Programs disagree on how to read a repeated parameter, so it counts as absent.
        self._answer = _Answer(single.get("code"), single.get("error"), single.get("iss"))
        self._answered.set()
        return "code" if self._answer.code is not None else "error"

    def _check_issuer(self, answer: _Answer) -> None:
        """Check the `iss` parameter (RFC 9207). Its value is not shown, because it may be misleading."""
        issuer = self._found.issuer
        if answer.iss is None and not issuer.sends_iss:
            return
        if answer.iss != issuer.name:
            raise failed("the answer came from another issuer.")

    async def _redeem(self, code: str) -> OAuthCredential:
        try:
            credential = await redeem(self._client, self._blank, code, self._verifier, self.redirect_uri, self._now())
        except GrantRefused as refusal:
            if refusal.lost_client:
                await self._tokens.forget_registration(self._found.issuer.name)
            raise failed(str(refusal)) from refusal
        await self._tokens.keep(credential)
        return credential

    def _authorization_url(self, state: str) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self._verifier.encode()).digest()).decode().rstrip("=")
        own = {
            "response_type": "code",
            "client_id": self._blank.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self._blank.resource,
        }
        if self._blank.asked:
            own["scope"] = " ".join(self._blank.asked)
        endpoint = urlsplit(self._found.issuer.authorization_endpoint)
        foreign = [(name, value) for name, value in parse_qsl(endpoint.query) if name not in own and name != "scope"]
        url = endpoint._replace(query=urlencode([*foreign, *own.items()])).geturl()
        return check_url(url, local_allowed=self._blank.local).text


@asynccontextmanager
async def signing_in(
    web: Web,
    tokens: CredentialStore,
    target: Target,
    *,
    demand: Demand = NO_DEMAND,
    seconds: float = SIGN_IN_SECONDS,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[SignIn]:
    """Begin a sign-in. `demand` is what the server required when it rejected a request."""
    async with AsyncExitStack() as stack:
        with raise_as_failed():
            probed, local = await _probe(web, target)
            challenge = probed if probed != Challenge() else demand.challenge
            client = await stack.enter_async_context(web.documents(local_allowed=local))
            found = await discover(client, target.url, challenge, local_allowed=local)
            asked = _scopes(target, found, challenge, demand.scopes)
            address, known = await _registration(stack, client, tokens, target, found, asked)
        blank = OAuthCredential(
            server=target.server,
            resource=found.resource,
            client=known,
            token_endpoint=found.issuer.token_endpoint,
            access_token="",
            asked=asked,
            local=local,
        )
        yield SignIn(client, tokens, found, blank, address, seconds, now)


async def _probe(web: Web, target: Target) -> tuple[Challenge, bool]:
    """Return the server's challenge to a request without a token, and whether it is in the local network.

    Servers challenge POST, GET or both. A public server must never direct the crib into the local network; a server in
    that network may.
    """
    local = False
    async with web.client(local_allowed=target.local_allowed, headers=target.headers) as client:
        for method, body in (("POST", _INITIALIZE), ("GET", None)):
            with anyio.fail_after(DOCUMENT_SECONDS):
                async with client.stream(method, target.url.text, json=body, headers=_PROBE_HEADERS) as response:
                    local = target.local_allowed and answered_locally(response)
                    challenge = challenge_of(response)
                    session = response.headers.get("mcp-session-id")
                if response.status_code in (401, 403) and challenge != Challenge():
                    return challenge, local
                if session:  # the server accepted the request and opened a session, which is not needed
                    await client.delete(target.url.text, headers={**_PROBE_HEADERS, "mcp-session-id": session})
    return Challenge(), local


def _scopes(target: Target, found: Discovered, challenge: Challenge, more: tuple[str, ...]) -> tuple[str, ...]:
    """Return as few scopes as possible: the owner's, else the challenge's, else all that the server supports."""
    base = target.auth.scopes or challenge.scopes or found.scopes
    lasting = ("offline_access",) if "offline_access" in found.issuer.scopes else ()
    return tuple(dict.fromkeys((*base, *more, *lasting)))


async def _registration(
    stack: AsyncExitStack,
    client: httpx2.AsyncClient,
    tokens: CredentialStore,
    target: Target,
    found: Discovered,
    asked: tuple[str, ...],
) -> tuple[ReturnAddress, Registration]:
    """Return the redirect listener and this crib's registration at the issuer.

    In this order: the client in the definition, the client metadata document, an earlier registration, a new one.
    """
    issuer = found.issuer
    given = await _own_registration(tokens, target, issuer)
    if given is not None or (target.client_document and issuer.reads_client_documents):
        address = await _bind(stack, target.callback_port)
        known = given or Registration(issuer.name, target.client_document or "")
        return address, replace(known, redirect_uri=address.uri)
    stored = await tokens.registration(issuer.name)
    if stored is not None and stored.redirect_uri and (stored.scopes is None or set(asked) <= set(stored.scopes)):
        port = urlsplit(stored.redirect_uri).port or 0
        try:
            return await stack.enter_async_context(return_address(port)), stored
        except OSError:
            pass  # the port is taken, and another one requires a new registration
    address = await _bind(stack, target.callback_port)
    known = await register(client, issuer, address.uri, asked)
    await tokens.keep_registration(known)
    return address, known


async def _bind(stack: AsyncExitStack, port: int) -> ReturnAddress:
    try:
        return await stack.enter_async_context(return_address(port))
    except OSError as error:
        raise failed(f"port {port} for the redirect cannot be used: {error.strerror or error}.") from error


async def _own_registration(tokens: CredentialStore, target: Target, issuer: Issuer) -> Registration | None:
    """Return the definition's own client. Its secret is bound to the first issuer and never sent to another one."""
    client_id, secret = target.auth.client_id, target.auth.client_secret
    if not client_id:
        return None
    if not secret:
        return Registration(issuer.name, client_id)
    bound = await tokens.bound_issuer(target.server, client_id)
    if bound is not None and bound != issuer.name:
        raise failed(
            f"the server now names the issuer {printable(issuer.name)}; its client secret is for {printable(bound)}.",
            f"If that is right, run `toolcrib mcp unauth {target.shown or target.server}` first.",
        )
    await tokens.bind_issuer(target.server, client_id, issuer.name)
    posts = issuer.methods is not None and "client_secret_basic" not in issuer.methods
    return Registration(issuer.name, client_id, secret, "client_secret_post" if posts else "client_secret_basic")
