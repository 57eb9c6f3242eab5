"""One sign-in at one server: whom to ask, where to send the person, and what to do with the answer.

An attempt has its own secret for the answer (`state`), its own proof for the code (PKCE) and ten minutes. The first
answer that shows the secret uses it up. Before a code is redeemed, the issuer that sent it is compared with the one
that was asked, so that an answer of one issuer is never taken to another.

Above: whoever shows the address to the person, in a browser or as text. Below: `discovery`, `grants`, `callback`,
`tokens`. It must never open a browser itself: it gives an address that was judged, and no command.
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

from toolcrib.connect.oauth.callback import ReturnAddress, return_address
from toolcrib.connect.oauth.discovery import Challenge, Discovered, Issuer, challenge_of, discover
from toolcrib.connect.oauth.failures import failed, reported, shown, timed_out
from toolcrib.connect.oauth.grants import Refused, redeem, register
from toolcrib.connect.tokens import Credential, Registration, Tokens
from toolcrib.connect.urls import CheckedUrl, check_url
from toolcrib.connect.web import DOCUMENT_SECONDS, Web, answered_locally
from toolcrib.model.servers import Auth

SIGN_IN_SECONDS = 600.0

_PROBE = {"accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True)
class Target:
    """The server to sign in to. `local_allowed` says that its owner's own definition names the address.

    `client_document` is the address of a document that describes this crib to issuers who read such ones.
    """

    server: str
    url: CheckedUrl
    local_allowed: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth: Auth = field(default_factory=Auth)
    client_document: str | None = None
    callback_port: int = 0


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a browser brought back."""

    code: str | None = field(repr=False)
    error: str | None
    iss: str | None


class SignIn:
    """A sign-in under way. `url` is for the person; `finish` waits for the answer and stores what it gives."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        tokens: Tokens,
        found: Discovered,
        blank: Credential,
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
        """Where the issuer sends the browser; its last address is what `paste` takes."""
        return self._blank.client.redirect_uri or self._address.uri

    def paste(self, final_url: str) -> None:
        """Take the address a browser on another machine ended at."""
        url = urlsplit(final_url.strip())
        base = f"{url.scheme}://{url.netloc}{url.path}"
        if base != self.redirect_uri or not self._take(url.query):
            raise failed("this address does not belong to the sign-in that is under way.")

    async def finish(self) -> Credential:
        """Wait for the answer, redeem it and have the tokens on disk."""
        with anyio.move_on_after(self._end - time.monotonic()):
            await self._address.serve(self._take, self._answered)
        answer = self._answer
        if answer is None:
            # The issuer may have forgotten this crib and shown its own page; the next attempt registers anew.
            await self._tokens.forget_registration(self._found.issuer.name)
            raise timed_out()
        self._check_issuer(answer)
        if answer.code is None:
            raise failed(f"the issuer answered {shown(answer.error or 'without a code')}.")
        with reported():
            return await self._redeem(answer.code)

    def _take(self, query: str) -> bool:
        """Keep an answer if it shows the secret, once and in time."""
        try:
            fields = parse_qs(query, keep_blank_values=True, strict_parsing=True, max_num_fields=20)
        except ValueError:
            return False
        state = self._state
        single = {name: values[0] for name, values in fields.items() if len(values) == 1}
        in_time = time.monotonic() < self._end
        if state is None or not in_time or not hmac.compare_digest(single.get("state", "").encode(), state.encode()):
            return False
        self._state = None
        # A field that stands there twice is read differently by different programs: it counts as absent.
        self._answer = _Answer(single.get("code"), single.get("error"), single.get("iss"))
        self._answered.set()
        return True

    def _check_issuer(self, answer: _Answer) -> None:
        """RFC 9207. What a stranger sent is not shown: it may be written to mislead."""
        issuer = self._found.issuer
        if answer.iss is None and not issuer.sends_iss:
            return
        if answer.iss != issuer.name:
            raise failed("the answer came from another issuer than the one that was asked.")

    async def _redeem(self, code: str) -> Credential:
        try:
            credential = await redeem(self._client, self._blank, code, self._verifier, self.redirect_uri, self._now())
        except Refused as refusal:
            if refusal.lost_client:
                await self._tokens.forget_registration(self._found.issuer.name)
            raise failed(str(refusal)) from refusal
        await self._tokens.keep(credential)
        return credential

    def _authorization_url(self, state: str) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self._verifier.encode()).digest()).decode().rstrip("=")
        ours = {
            "response_type": "code",
            "client_id": self._blank.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self._blank.resource,
        }
        if self._blank.asked:
            ours["scope"] = " ".join(self._blank.asked)
        endpoint = urlsplit(self._found.issuer.authorization_endpoint)
        theirs = [(name, value) for name, value in parse_qsl(endpoint.query) if name not in ours and name != "scope"]
        url = endpoint._replace(query=urlencode([*theirs, *ours.items()])).geturl()
        return check_url(url, local_allowed=self._blank.local).text


@asynccontextmanager
async def signing_in(
    web: Web,
    tokens: Tokens,
    target: Target,
    *,
    more_scopes: tuple[str, ...] = (),
    seconds: float = SIGN_IN_SECONDS,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[SignIn]:
    """Begin a sign-in. `more_scopes` are what the server asked for besides what was granted."""
    async with AsyncExitStack() as stack:
        with reported():
            challenge, local = await _probe(web, target)
            client = await stack.enter_async_context(web.documents(local_allowed=local))
            found = await discover(client, target.url, challenge, local_allowed=local)
            asked = _scopes(target, found, challenge, more_scopes)
            address, known = await _registration(stack, client, tokens, target, found, asked)
        blank = Credential(
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
    """Ask the server as a stranger: its refusal says where to go on, and its address how far that may lead.

    A server of the public Internet never sends us into this network; one that itself answered from there may.
    """
    async with web.client(local_allowed=target.local_allowed, headers=target.headers) as client:
        with anyio.fail_after(DOCUMENT_SECONDS):
            async with client.stream("GET", target.url.text, headers=_PROBE) as response:
                local = target.local_allowed and answered_locally(response)
                return (challenge_of(response) if response.status_code in (401, 403) else Challenge()), local


def _scopes(target: Target, found: Discovered, challenge: Challenge, more: tuple[str, ...]) -> tuple[str, ...]:
    """As few as will do: what the owner wrote, else what the server asked for, else what it knows."""
    base = target.auth.scopes or challenge.scopes or found.scopes
    lasting = ("offline_access",) if "offline_access" in found.issuer.scopes else ()
    return tuple(dict.fromkeys((*base, *more, *lasting)))


async def _registration(
    stack: AsyncExitStack,
    client: httpx2.AsyncClient,
    tokens: Tokens,
    target: Target,
    found: Discovered,
    asked: tuple[str, ...],
) -> tuple[ReturnAddress, Registration]:
    """This crib as the issuer knows it, and the return address that goes with it.

    In this order: what the definition says, a document that describes this crib, an earlier registration, a new one.
    """
    issuer = found.issuer
    given = await _given(tokens, target, issuer)
    if given is not None or (target.client_document and issuer.reads_client_documents):
        address = await _bound(stack, target.callback_port)
        known = given or Registration(issuer.name, target.client_document or "")
        return address, replace(known, redirect_uri=address.uri)
    stored = await tokens.registration(issuer.name)
    if stored is not None and stored.redirect_uri and (stored.scopes is None or set(asked) <= set(stored.scopes)):
        port = urlsplit(stored.redirect_uri).port or 0
        try:
            return await stack.enter_async_context(return_address(port)), stored
        except OSError:
            pass  # the port is taken; with another one this crib has to be registered anew
    address = await _bound(stack, target.callback_port)
    known = await register(client, issuer, address.uri, asked)
    await tokens.keep_registration(known)
    return address, known


async def _bound(stack: AsyncExitStack, port: int) -> ReturnAddress:
    try:
        return await stack.enter_async_context(return_address(port))
    except OSError as error:
        raise failed(f"the port {port} for the answer cannot be used: {error.strerror or error}.") from error


async def _given(tokens: Tokens, target: Target, issuer: Issuer) -> Registration | None:
    """The client of the definition. Its secret goes to the first issuer it was meant for, and to no other."""
    client_id, secret = target.auth.client_id, target.auth.client_secret
    if not client_id:
        return None
    if not secret:
        return Registration(issuer.name, client_id)
    bound = await tokens.bound_issuer(target.server, client_id)
    if bound is not None and bound != issuer.name:
        raise failed(
            f"the server now names {shown(issuer.name)} as its issuer, but its client secret is for {shown(bound)}.",
            f"If that is right, run `toolcrib mcp unauth {target.server}` first.",
        )
    await tokens.bind_issuer(target.server, client_id, issuer.name)
    posts = issuer.methods is not None and "client_secret_basic" not in issuer.methods
    return Registration(issuer.name, client_id, secret, "client_secret_post" if posts else "client_secret_basic")
