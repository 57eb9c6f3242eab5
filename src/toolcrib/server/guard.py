"""The guard: every request passes it first, and what it does not know it refuses.

In order: the Host has to be ours (a page that rebinds its name to this machine sends its own), the Origin and the fetch
metadata must not be another site's, a credential has to be shown (the token, or on everything but `/mcp` the console's
cookie), and the body has to be of a kind and size that may be read at all. Two paths need no credential: `/healthz`
and `/login`. Whatever fails in here ends in a refusal, never in access.

Above: `listen` serves it. Below: the MCP endpoint and the routes, which find the asker in the scope under `PRINCIPAL`.
It must never read a body, and never send a header that lets another site in.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.errors import Denied, InvalidRequest, NotFound, ToolcribError, Unauthenticated, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.principals import Credential, Principals
from toolcrib.server import problems
from toolcrib.server.limits import Throttle
from toolcrib.server.login import Logins
from toolcrib.server.problems import SAFE_HEADERS, Header

PRINCIPAL = "toolcrib.principal"
"""Key of the scope: who asks."""
ENDED = "toolcrib.ended"
"""Key of the scope: an event that is set when the credential of this request ends; absent where it never does."""
OPEN_PATHS = frozenset({"/healthz", "/login"})

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # without a referrer a form of ours would not say which page it is from
    (b"content-security-policy", PAGE_POLICY.encode()),
)
OK = 200
_NOT_KEPT: tuple[Header, ...] = ((b"cache-control", b"no-store"),)
FILES = "/static/"
"""What lies there is named by its content and says itself how long it is kept."""

_ONCE = (
    b"host", b"origin", b"sec-fetch-site", b"authorization", b"cookie", b"content-type", b"content-length",
    b"content-encoding", b"transfer-encoding",
)  # fmt: skip
_SAFE_METHODS = frozenset({"GET", "HEAD"})

logger = logging.getLogger(__name__)


class Guard:
    """The outermost application: judges a request, then hands it to `mcp` or to `routes`."""

    def __init__(
        self,
        *,
        mcp: ASGIApp,
        routes: ASGIApp,
        principals: Principals,
        logins: Logins,
        throttle: Throttle,
        hosts: Iterable[str],
        body_bytes: int,
    ) -> None:
        self._mcp = mcp
        self._routes = routes
        self._principals = principals
        self._logins = logins
        self._throttle = throttle
        self._body_bytes = body_bytes
        names = [host.lower().encode() for host in hosts]
        self._hosts = frozenset(names)
        self._origins = frozenset(b"http://" + name for name in names)
        self._as_web = principals.owner("web")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one request; an answer is always given, whatever happens."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        reply = _Reply(scope, send)
        try:
            headers = dict(scope["headers"])
            app = self._admit(scope, headers)
            if b"transfer-encoding" in headers:
                receive = _Counted(receive, reply, self._body_bytes).receive
            if ENDED in scope:
                await _until_ended(app(scope, receive, reply.send), scope[ENDED])
            else:
                await app(scope, receive, reply.send)
        except ToolcribError as error:
            _log(scope, error)
            await reply.refuse(error)
        except asyncio.CancelledError:
            # Only the end of the server cancels a whole request, after its time to finish has passed.
            await reply.refuse(Unavailable("crib.closed", "The crib stopped before the answer was ready."))
        except Exception as error:  # noqa: BLE001 boundary: what breaks here or below is refused, and logged there
            await reply.refuse(problems.unexpected(error))

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> ASGIApp:
        """Where the request goes, if it may; the asker is put into the scope."""
        path: str = scope["path"]
        if len(headers) != len(scope["headers"]):
            _refuse_repeated(scope["headers"])
        self._check_origin(headers)
        to_mcp = path == "/mcp" or path.startswith("/mcp/")
        if path not in OPEN_PATHS:
            scope[PRINCIPAL] = self._identify(scope, headers, to_mcp)
        self._check_body(headers)
        return self._mcp if to_mcp else self._routes

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is None or host.lower() not in self._hosts:
            raise Denied("host.refused", "The Host header does not name this crib.")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins:
            raise Denied("origin.refused", "The request comes from another web origin.")
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Denied("origin.refused", "Another site made the browser send this request.")

    def _identify(self, scope: Scope, headers: Mapping[bytes, bytes], to_mcp: bool) -> Principal:
        authorization = headers.get(b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(b" ")
            known = self._principals.authenticate(token.strip(), "ide" if to_mcp else "api")
            if scheme.lower() != b"bearer" or not isinstance(known, Credential):
                raise self._wrong_token(scope)
            if known.ended is not None:
                scope[ENDED] = known.ended
            if self._principals.may_reach(known.principal, scope["path"]) is not True:
                raise NotFound("route.unknown", f"There is nothing at {scope['path']}.")
            return known.principal
        if not to_mcp and b"cookie" in headers:
            ended = self._browser_session(headers[b"cookie"])
            if ended is not None:
                self._check_proof(scope["method"], headers)
                scope[ENDED] = ended
                return self._as_web
        raise Unauthenticated("auth.required", "This needs a token or, in a browser, a login.")

    def _wrong_token(self, scope: Scope) -> ToolcribError:
        client = scope.get("client")
        if self._throttle.failed(client[0] if client else ""):
            return Unavailable("auth.throttled", "Too many wrong tokens came from this address.")
        return Unauthenticated("auth.invalid", "The token is not valid.")

    def _browser_session(self, header: bytes) -> anyio.Event | None:
        # Other programs on this machine set cookies for the same name and in any form; only ours are looked at.
        for pair in header.decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self._logins.cookie and (ended := self._logins.session(value)):
                return ended
        return None

    def _check_proof(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """A cookie is sent by the browser unasked, so what changes something also has to show that our page sent it."""
        proven = b"origin" in headers or headers.get(b"sec-fetch-site") == b"same-origin"
        if method not in _SAFE_METHODS and not proven:
            raise Denied("origin.refused", "The browser did not say which page sent this request.")

    def _check_body(self, headers: Mapping[bytes, bytes]) -> None:
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            raise InvalidRequest("request.media_type", "A compressed body is not read.", "Send the body as it is.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise InvalidRequest("request.malformed", "Content-Length has to be a number.")
        if len(length) > 18 or int(length) > self._body_bytes:
            raise _too_large(self._body_bytes)


async def _until_ended(work: Awaitable[None], ended: anyio.Event) -> None:
    """Serve a request for as long as its credential holds: what is open under a revoked one is cut."""
    serving = asyncio.ensure_future(work)
    cut = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({serving, cut}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            raise Unauthenticated("auth.invalid", "The credential of this request ended.")
        serving.result()
    finally:
        cut.cancel()
        serving.cancel()
        await asyncio.wait({serving, cut})


class _Reply:
    """The way back of one request: adds the headers of every answer, gives at most one."""

    __slots__ = ("_file", "_headers", "_over", "_page", "_send", "_started")

    def __init__(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        for_programs = path.startswith(("/mcp", "/api/"))
        self._headers = SAFE_HEADERS if for_programs else (*PAGE_HEADERS, *_NOT_KEPT)
        self._file = path.startswith(FILES)
        self._page = not for_programs and _wants_page(scope["headers"])
        self._send = send
        self._started = False
        self._over = False

    async def send(self, message: Message) -> None:
        """Pass one message of the answer on, unless the guard has answered meanwhile."""
        if self._over:
            return
        if "status" in message:  # a start, or a whole answer
            self._started = True
            headers = PAGE_HEADERS if self._file and message["status"] == OK else self._headers
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await self._send(message)

    async def refuse(self, error: ToolcribError) -> None:
        """Answer with this failure, if no answer has begun; nothing that comes later is sent."""
        if not self._started:
            await problems.answer(self.send, error, as_page=self._page)
        self._over = True


class _Counted:
    """A body of unknown length, read up to a limit; beyond it the client has its answer, and the reader an end."""

    def __init__(self, receive: Receive, reply: _Reply, limit: int) -> None:
        self._receive = receive
        self._reply = reply
        self._limit = limit
        self._seen = 0

    async def receive(self) -> Message:
        """The next piece."""
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


def _wants_page(headers: Iterable[Header]) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _log(scope: Scope, error: ToolcribError) -> None:
    level = logging.WARNING if error.code in ("host.refused", "origin.refused", "auth.invalid") else logging.INFO
    logger.log(level, "refused %s %r: %s", scope["method"], scope["path"], error.message, extra={"code": error.code})
