"""The request guard: checks every request before any route sees it, and refuses by default.

The checks run in this order:

- Host must name this crib, which defeats DNS rebinding.
- Origin and fetch metadata must not be cross-site.
- A credential is required: the token or, except on `/mcp`, the console's cookie. `/healthz` and `/login` are open.
- The body must have an accepted encoding and size.

Approval links carry their own credential. They are admitted without another one at the configured address only, and
nothing else is admitted there.

A failure in the guard refuses the request. Admitted requests carry their principal in the scope as `PRINCIPAL`.

Must never read a body or send a header that grants access to another site.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import anyio
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.base.stop_switch import StopSwitch
from toolcrib.gate.approvals.links import LINK_PATH
from toolcrib.gate.principals import OWNER_KEY, Credential, Principals
from toolcrib.model.errors import (
    Denied,
    InvalidRequest,
    NotFound,
    ToolcribError,
    Unauthenticated,
    Unavailable,
)
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import ACTING_AS
from toolcrib.web import problems
from toolcrib.web.console.refusal import STYLE_HASH, continue_page
from toolcrib.web.forwarded import SIGNATURE, CheckedBody, ForwardedRequests
from toolcrib.web.limits import BROWSER, BY_OWNER, CONNECTION, CREDENTIAL, ENDED, PRINCIPAL, Throttle
from toolcrib.web.login import Logins
from toolcrib.web.problems import SAFE_HEADERS, Header
from toolcrib.web.stopping import Stopping

_ACTING_AS = ACTING_AS.encode()
SIGN_OUT_PATH = "/logout"
LOGIN_PATH = "/login"
OPEN_PATHS = frozenset({"/healthz", LOGIN_PATH})

PAGE_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' '{STYLE_HASH}'; connect-src 'self'; "
    "img-src 'self' data:; manifest-src 'self'; frame-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with `no-referrer`, the console's forms would send `Origin: null`
    (b"content-security-policy", PAGE_POLICY.encode()),
)
OK = 200
LINK_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"x-robots-tag", b"noindex, nofollow"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'".encode(),
    ),
)
"""Headers of the page of an approval link, which runs no script and loads nothing."""
APP_PAGES = "/app-pages/"
"""Pages of servers' apps, which only the console embeds. Their routes add a content policy."""
APP_SANDBOX = "allow-scripts allow-forms"
"""What a page of an app may do: no origin of its own, no pop-ups, no dialogs, no navigation of the console."""
APP_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-dns-prefetch-control", b"off"),
    (
        b"content-security-policy",
        f"sandbox {APP_SANDBOX}; object-src 'none'; form-action 'none'; frame-ancestors 'self'".encode(),
    ),
)
_NOT_KEPT: tuple[Header, ...] = ((b"cache-control", b"no-store"),)
FILES = "/static/"
"""Static files have content-hashed names and set their own caching headers."""

_ONCE = (
    b"host", b"origin", b"sec-fetch-site", b"authorization", b"cookie", b"content-type", b"content-length",
    b"content-encoding", b"transfer-encoding", _ACTING_AS, SIGNATURE,
)  # fmt: skip
_EVENTS = b"text/event-stream"
_DIGEST = "toolcrib.body_digest"
"""Scope key of the digest that the body of a forwarded request must have."""
_NO_STATE: Mapping[str, object] = {}
_SAFE_METHODS = frozenset({"GET", "HEAD"})

logger = logging.getLogger(__name__)


class _UnknownToken(Exception):
    """Raised for a token that this node does not know."""


class RequestGuard:
    """The outermost ASGI application: checks a request, then passes it to `mcp` or `routes`."""

    def __init__(
        self,
        *,
        mcp: ASGIApp,
        routes: ASGIApp,
        principals: Principals,
        logins: Logins,
        throttle: Throttle,
        stop_switch: StopSwitch,
        address: str,
        hosts: Iterable[str],
        body_bytes: int,
        stopping: Stopping | None = None,
        forwarded: ForwardedRequests | None = None,
        link_address: str | None = None,
    ) -> None:
        """`forwarded` admits signed requests of other nodes; without it, they are refused."""
        self._link_address = link_address
        self._mcp = mcp
        self._forwarded = forwarded
        self._routes = routes
        self._principals = principals
        self._logins = logins
        self._throttle = throttle
        self._stop_switch = stop_switch
        self._body_bytes = body_bytes
        self._stopping = stopping
        self._address = address
        names = [host.lower().encode() for host in hosts]
        self._hosts = frozenset(names)
        self._origins = frozenset(b"http://" + name for name in names)
        self._as_web = principals.owner("web")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; every failure is answered."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        reply = _Reply(scope, send)
        try:
            headers = dict(scope["headers"])
            is_link = self._link_address is not None and scope["path"].startswith(LINK_PATH)
            is_detour = reply.is_page and scope["method"] == "GET" and not is_link
            if is_detour and (detour := self._detour(scope, headers)) is not None:
                await reply.send_whole(detour)
                return
            app = self._admit_link(scope, headers) if is_link else await self._admit_known(scope, headers)
            receive = self._limit_body(scope, headers, receive, reply)
            if ENDED in scope:
                await _until_ended(app(scope, receive, reply.send), scope[ENDED])
            else:
                await app(scope, receive, reply.send)
        except ToolcribError as error:
            _log(scope, error)
            await reply.refuse(error)
            await reply.end_events()
        except asyncio.CancelledError:
            # A whole request is cancelled only at shutdown, after the grace period.
            await reply.refuse(Unavailable("crib.closed", "The crib stopped before the answer was ready."))
        except Exception as error:  # noqa: BLE001 boundary: any failure becomes a refusal, logged by `unexpected`
            await reply.refuse(problems.unexpected(error))

    def _limit_body(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, reply: "_Reply") -> Receive:
        """Return a `receive` that limits a body of unknown length, and compares the body of a forwarded request."""
        if b"transfer-encoding" in headers:
            receive = _Counted(receive, reply, self._body_bytes).receive
        return CheckedBody(receive, scope[_DIGEST]).receive if _DIGEST in scope else receive

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> ASGIApp:
        """Check the request, set its principal in the scope and return the application that handles it."""
        path: str = scope["path"]
        if len(headers) != len(scope["headers"]):
            _refuse_repeated(scope["headers"])
        self._check_origin(headers)
        to_mcp = path == "/mcp" or path.startswith("/mcp/")
        if path not in OPEN_PATHS:
            scope[PRINCIPAL] = self._identify(scope, headers, to_mcp)
        if self._stopping is not None and self._stopping.is_leaving and not to_mcp and _is_new(scope):
            self._stopping.check(health=path == "/healthz")
        self._check_body(headers)
        return self._mcp if to_mcp else self._routes

    async def _admit_known(self, scope: Scope, headers: dict[bytes, bytes]) -> ASGIApp:
        """Check a request; one with an unknown token twice: another node may have created the token just now."""
        if b"cookie" in headers and b"authorization" not in headers:
            await self._logins.look(headers[b"cookie"])
        if self._stop_switch.state is not None:
            with suppress(ToolcribError):  # without the database, the stop holds
                await self._principals.look_again()  # another node may have resumed everything
        try:
            return self._admit(scope, headers)
        except _UnknownToken:
            await self._principals.look_again()
        try:
            return self._admit(scope, headers)
        except _UnknownToken:
            client = scope.get("client")
            if await self._throttle.failed(client[0] if client else ""):
                raise Unavailable("auth.throttled", "Too many invalid tokens from this address.") from None
            raise Unauthenticated("auth.invalid", "The token is not valid.") from None

    def _admit_link(self, scope: Scope, headers: dict[bytes, bytes]) -> ASGIApp:
        """Check a request for an approval link. A link on another site may be opened, but not answered from there."""
        if len(headers) != len(scope["headers"]):
            _refuse_repeated(scope["headers"])
        address = (self._link_address or "").encode()
        if headers.get(b"host", b"").lower() != address.partition(b"://")[2]:
            raise Denied("host.refused", "Approval links work only at the configured address.")
        if scope["method"] not in _SAFE_METHODS and headers.get(b"origin") != address:
            raise Denied("origin.refused", "An approval can be answered only on its own page.")
        self._check_body(headers)
        return self._routes

    def _detour(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return where a browser that opens a page has to go first, or None.

        Cookies belong to one host name, so other names of this crib redirect to its address. The cookie is not sent
        with links on other sites either: a page with one button continues from here.
        """
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts or b"origin" in headers or len(headers) != len(scope["headers"]):
            return None
        target = _target(scope)
        if host != self._address.encode():
            return RedirectResponse(f"http://{self._address}{target}", status_code=302)
        is_navigation = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == (b"navigate", b"document")
        if is_navigation and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            return HTMLResponse(continue_page(target))
        return None

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is None or host.lower() not in self._hosts:
            raise Denied("host.refused", "The Host header does not match this crib.")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            raise Denied("origin.refused", "Requests from other origins are not allowed.")
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Denied("origin.refused", "Cross-site requests are not allowed.")

    def _identify(self, scope: Scope, headers: Mapping[bytes, bytes], to_mcp: bool) -> Principal:
        if SIGNATURE in headers:
            if self._forwarded is None:
                raise Denied("node.refused", "This crib has no node secret and accepts no requests of other nodes.")
            known, scope[_DIGEST] = self._forwarded.identify(scope, headers[SIGNATURE])
            return self._enter(scope, known)
        authorization = headers.get(b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(b" ")
            known = self._principals.authenticate(token.strip(), "ide" if to_mcp else "api")
            if scheme.lower() != b"bearer" or not isinstance(known, Credential):
                raise _UnknownToken
            if to_mcp and (name := headers.get(_ACTING_AS)) is not None:
                known = self._principals.acting_as(known, name.decode("latin-1"))
                scope[BY_OWNER] = True
            return self._enter(scope, known)
        if not to_mcp and b"cookie" in headers:
            found = self._logins.session_of(headers[b"cookie"])
            if found is not None:
                self._check_proof(scope["method"], headers)
                _claim(scope, OWNER_KEY)
                scope[BROWSER] = self._logins.browser(found[0])
                if scope["path"] != SIGN_OUT_PATH:  # its answer must reach the browser
                    scope[ENDED] = found[1]
                return self._as_web
        raise Unauthenticated("auth.required", "A token is required, or a signed-in browser.")

    def _enter(self, scope: Scope, known: Credential) -> Principal:
        """Return the principal of a credential, after checking that it may make this request."""
        _claim(scope, known.key)
        if known.ended is not None:
            scope[ENDED] = known.ended
        scope[CREDENTIAL] = known.key
        if not known.principal.is_owner:
            self._stop_switch.check()  # named tokens and sessions are suspended while everything is stopped
        if self._principals.may_reach(known.principal, scope["path"]) is not True:
            raise NotFound("route.unknown", f"There is nothing at {scope['path']}.")
        return known.principal

    def _check_proof(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise unless an unsafe request provably comes from the console: browsers attach cookies automatically."""
        proven = b"origin" in headers or headers.get(b"sec-fetch-site") == b"same-origin"
        if method not in _SAFE_METHODS and not proven:
            raise Denied("origin.refused", "The request has no Origin header, so its page is unknown.")

    def _check_body(self, headers: Mapping[bytes, bytes]) -> None:
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            raise InvalidRequest(
                "request.media_type",
                "Compressed request bodies are not supported.",
                "Send the body without Content-Encoding.",
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise InvalidRequest("request.malformed", "Content-Length must be a number.")
        if len(length) > 18 or int(length) > self._body_bytes:
            raise _too_large(self._body_bytes)


def _target(scope: Scope) -> str:
    """Return the path and query of a request, in ASCII. A path that browsers read as another host becomes `/`."""
    path, query = scope.get("raw_path") or quote(scope["path"]).encode(), scope["query_string"]
    if path.startswith((b"//", b"/\\")):
        return "/"
    return (path + b"?" + query if query else path).decode("ascii", "replace")


def _is_new(scope: Scope) -> bool:
    """Return whether a request starts new work. Reads, and answers to approvals and questions, do not."""
    path: str = scope["path"]
    is_answer = path.startswith("/api/approvals/") or (path.startswith("/api/sessions/") and "/questions/" in path)
    return path == "/healthz" or not (scope["method"] in _SAFE_METHODS or is_answer)


def _claim(scope: Scope, key: str) -> None:
    """Count the connection of this request towards the principal's share."""
    connection: Any = scope.get("state", _NO_STATE).get(CONNECTION)
    if connection is not None and not connection.claim(key):
        raise Unavailable("crib.busy", "This token has too many connections open.")


async def _until_ended(work: Awaitable[None], ended: anyio.Event) -> None:
    """Serve a request until its credential ends; revoking the credential aborts the request."""
    serving = asyncio.ensure_future(work)
    cut = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({serving, cut}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            raise Unauthenticated("auth.invalid", "The credential of this request expired or was revoked.")
        serving.result()
    finally:
        cut.cancel()
        serving.cancel()
        await asyncio.wait({serving, cut})


class _Reply:
    """The response side of a request: adds the security headers and sends at most one response."""

    __slots__ = ("_headers", "_is_complete", "_ok_headers", "_over", "_send", "_start", "_target", "is_page")

    def __init__(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        for_programs = path.startswith(("/mcp", "/api/"))
        self._headers = SAFE_HEADERS if for_programs else (*PAGE_HEADERS, *_NOT_KEPT)
        if path.startswith(LINK_PATH):
            self._headers = LINK_HEADERS
        self._ok_headers = PAGE_HEADERS if path.startswith(FILES) else None
        if path.startswith(APP_PAGES):
            self._ok_headers = APP_HEADERS
        self.is_page = not for_programs and problems.wants_page(scope["headers"], path)
        self._target = _target(scope) if self.is_page and scope["method"] == "GET" else "/"
        self._send = send
        self._start: Message | None = None
        self._is_complete = False
        self._over = False

    async def send(self, message: Message) -> None:
        """Forward a message of the response, unless the guard has already answered."""
        if self._over:
            return
        if "status" in message:  # a start message or a whole response
            headers = self._ok_headers if self._ok_headers and message["status"] == OK else self._headers
            self._start = message = {**message, "headers": [*message.get("headers", ()), *headers]}
        else:
            self._is_complete = not message.get("more_body")
        await self._send(message)

    async def send_whole(self, response: Response) -> None:
        """Send a whole response."""
        await self.send(
            {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        )
        await self.send({"type": "http.response.body", "body": bytes(response.body)})

    async def refuse(self, error: ToolcribError) -> None:
        """Answer with this error if no response has started, and drop all later messages."""
        if self._start is None:
            await problems.answer(self.send, error, as_page=self.is_page, target=self._target)
        self._over = True

    async def end_events(self) -> None:
        """End a stream of events that its application left open. Other incomplete responses are cut off."""
        headers = self._start["headers"] if self._start is not None else ()
        if not self._is_complete and any(value.startswith(_EVENTS) for _, value in headers):
            await self._send({"type": "http.response.body", "body": b""})


class _Counted:
    """Limits a body of unknown length. Beyond the limit the client gets an error and the reader a disconnect."""

    def __init__(self, receive: Receive, reply: _Reply, limit: int) -> None:
        self._receive = receive
        self._reply = reply
        self._limit = limit
        self._seen = 0

    async def receive(self) -> Message:
        """Return the next message, or a disconnect once the limit is exceeded."""
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            await self._reply.refuse(_too_large(self._limit))
            return {"type": "http.disconnect"}
        return message


def _too_large(limit: int) -> InvalidRequest:
    return InvalidRequest("request.too_large", f"At most {limit} bytes are read.")


def _refuse_repeated(headers: Iterable[Header]) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            if name == b"host":
                raise Denied("host.refused", "The Host header appears more than once.")
            raise InvalidRequest("request.malformed", f"The header {name.decode()} appears more than once.")


def _log(scope: Scope, error: ToolcribError) -> None:
    level = logging.WARNING if error.code in ("host.refused", "origin.refused", "auth.invalid") else logging.INFO
    logger.log(level, "refused %s %r: %s", scope["method"], scope["path"], error.message, extra={"code": error.code})
