"""Browser logins for the console: a one-time link or the owner's token, then a cookie.

A link carries a random code that works once, within ten minutes. The cookie carries another random value that
authenticates the owner for thirty days. Only keyed digests are stored, in one small file of the home, so that sessions
survive a restart of the crib. The key is derived from the owner's token: a new token ends every session.

Nodes with a node secret store the digests in their database instead, and look there with every request: links and
cookies work on each node, and signing out ends a session on all of them.

Must never store a code or cookie in a usable form, or accept a code twice.
"""

import contextlib
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from pathlib import Path

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from toolcrib.base.files.private import replace_private
from toolcrib.gate.principals import Credential, Principals
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unauthenticated, Unavailable
from toolcrib.store.engine import Store
from toolcrib.store.logins import add_login, load_login_sessions, remove_login
from toolcrib.web import problems
from toolcrib.web.console.refusal import sign_in_page
from toolcrib.web.limits import Throttle

CODE_SECONDS = 600.0
SESSION_SECONDS = 30 * 86_400
CODES_KEPT = 32
SESSIONS_KEPT = 64

logger = logging.getLogger(__name__)


class _BrowserSession:
    __slots__ = ("ended", "expires")

    def __init__(self, expires: float) -> None:
        self.expires = expires
        self.ended = anyio.Event()


class Logins:
    """Open login codes and browser sessions. Without a file, sessions end with the process."""

    def __init__(
        self,
        address: str,
        *,
        file: Path | None = None,
        key: bytes = b"",
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`store` is the database of all nodes; None if sign-ins count on this one only."""
        self._address = address
        self._file = file
        self._key = key or secrets.token_bytes(32)
        self._store = store
        # Cookies are not scoped to a port: the name keeps two cribs on one host from overwriting each other's.
        name = address.rpartition(":")[2] if store is None else self._digest("cookie name")[:12]
        self.cookie = f"toolcrib_{name}"
        self._clock = clock
        self._wall_clock = wall_clock
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[str, _BrowserSession] = OrderedDict(self._read())

    async def link(self) -> str:
        """Return a new one-time login URL."""
        code = secrets.token_urlsafe(32)
        if self._store is not None:
            await add_login(self._store, self._digest(code), "code", CODE_SECONDS, CODES_KEPT)
        else:
            self._codes[self._digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > CODES_KEPT:
            self._codes.popitem(last=False)
        return f"http://{self._address}/login?code={code}"

    async def redeem(self, code: str) -> str:
        """Exchange a login code for the cookie value of a new session. Raises `auth.login_used` for an invalid code."""
        if self._store is not None:
            is_valid = await remove_login(self._store, self._digest(code), "code")
        else:
            until = self._codes.pop(self._digest(code), None)
            is_valid = until is not None and until > self._clock()
        if not is_valid:
            raise Unauthenticated("auth.login_used", "This login link was already used or has expired.")
        return await self.begin()

    async def begin(self) -> str:
        """Begin a session of the owner and return its cookie value."""
        value = secrets.token_urlsafe(32)
        if self._store is not None:
            await add_login(self._store, self._digest(value), "session", SESSION_SECONDS, SESSIONS_KEPT)
        self._add(self._digest(value), SESSION_SECONDS)
        self._write()
        return value

    async def end(self, cookie: str) -> None:
        """End the session of a cookie, on every node. Idempotent."""
        digest = self._digest(cookie)
        if self._store is not None:
            await remove_login(self._store, digest, "session")
        self._drop(digest)
        self._write()

    async def look(self, header: bytes) -> None:
        """Learn from the database whether the session of a request began or ended on another node."""
        if self._store is None:
            return
        for value in self._values(header):
            digest = self._digest(value)
            self._follow({digest}, await load_login_sessions(self._store, digest))

    async def look_at_all(self) -> None:
        """End the sessions that were ended on other nodes."""
        if self._store is not None:
            found, known = await load_login_sessions(self._store), {*self._sessions}
            self._follow(known, {digest: left for digest, left in found.items() if digest in known})

    def _follow(self, digests: Set[str], found: Mapping[str, float]) -> None:
        for digest in digests - found.keys():
            self._drop(digest)
        for digest in found.keys() - self._sessions.keys():
            self._add(digest, found[digest])

    def _add(self, digest: str, seconds: float) -> None:
        self._sessions[digest] = _BrowserSession(self._wall_clock() + seconds)
        while len(self._sessions) > SESSIONS_KEPT:
            self._drop(next(iter(self._sessions)))

    def _drop(self, digest: str) -> None:
        if (session := self._sessions.pop(digest, None)) is not None:
            session.ended.set()

    def _values(self, header: bytes) -> Iterator[str]:
        """Yield the values of the console's cookie. Other programs on this host may set cookies of any form."""
        for pair in header.decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.cookie:
                yield value

    def browser(self, cookie: str) -> str:
        """Return the id of the sign-in of a cookie. It cannot be used to sign in."""
        return self._digest(f"browser {cookie}")[:32]

    def session_of(self, header: bytes) -> tuple[str, anyio.Event] | None:
        """Return the first valid cookie of a `Cookie` header, and the event that is set when its session ends."""
        for value in self._values(header):
            if (ended := self.session(value)) is not None:
                return value, ended
        return None

    def session(self, cookie: str) -> anyio.Event | None:
        """Return the event that is set when this cookie's session ends, or None for an unknown or expired cookie."""
        known = self._sessions.get(self._digest(cookie))
        return known.ended if known is not None and known.expires > self._wall_clock() else None

    def _digest(self, secret: str) -> str:
        return hmac.new(self._key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _read(self) -> Iterator[tuple[str, _BrowserSession]]:
        if self._file is None or self._store is not None:
            return
        with contextlib.suppress(OSError):
            now = self._wall_clock()
            for line in self._file.read_text(encoding="ascii", errors="replace").splitlines()[-SESSIONS_KEPT:]:
                digest, _, expires = line.partition(" ")
                if expires.isdigit() and now < float(expires) <= now + SESSION_SECONDS:
                    yield digest, _BrowserSession(float(expires))

    def _write(self) -> None:
        if self._file is None or self._store is not None:
            return
        text = "".join(f"{digest} {each.expires:.0f}\n" for digest, each in self._sessions.items())
        try:
            replace_private(self._file, text.encode())
        except OSError as error:
            logger.warning("Browser sessions will end with this process: %s cannot be written: %s", self._file, error)


class LoginPage:
    """`/login`: exchanges a link (GET) or the owner's token (POST) for the cookie, then redirects to the console."""

    def __init__(
        self,
        logins: Logins,
        throttle: Throttle,
        principals: Principals,
        on_sign_out: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`on_sign_out` is called with the id of the sign-in that ended."""
        self._on_sign_out = on_sign_out
        self._logins = logins
        self._throttle = throttle
        self._principals = principals

    async def show(self, request: Request) -> Response:
        """Redirect to the console, or return the sign-in page. A used link still leads a signed-in browser there."""
        if request.method == "POST":
            return await self._sign_in(request)
        if request.method != "GET":  # a HEAD request must not use up the link
            raise InvalidRequest("route.method", "/login supports GET and POST only.")
        if "code" not in request.query_params:
            return HTMLResponse(sign_in_page())
        try:
            value = await self._logins.redeem(request.query_params["code"])
        except Unauthenticated as error:
            cookies = request.headers.get("cookie", "").encode("latin-1")
            await self._logins.look(cookies)
            if self._logins.session_of(cookies) is not None:
                return RedirectResponse("/", status_code=303)
            return await self._refuse(request, error, "/")
        return self._enter(value, "/")

    async def _sign_in(self, request: Request) -> Response:
        form = await request.form()
        token, target = str(form.get("token", "")).strip(), _own_path(str(form.get("next", "/")))
        known = self._principals.authenticate(token.encode("utf-8", "replace"), "web")
        if not isinstance(known, Credential) or not known.principal.is_owner:
            return await self._refuse(
                request, Unauthenticated("auth.invalid", "This is not the owner's token."), target
            )
        return self._enter(await self._logins.begin(), target)

    async def sign_out(self, request: Request) -> Response:
        """End the browser's session, on every node."""
        found = self._logins.session_of(request.headers.get("cookie", "").encode("latin-1"))
        if found is not None:
            await self._logins.end(found[0])
            await self._forget(self._logins.browser(found[0]))
        response = HTMLResponse(sign_in_page("You are signed out."))
        response.delete_cookie(self._logins.cookie, httponly=True, samesite="strict", path="/")
        return response

    async def _forget(self, browser: str) -> None:
        """Remove what belongs to a browser that signed out. A failure does not keep it signed in."""
        try:
            if self._on_sign_out is not None:
                await self._on_sign_out(browser)
        except ToolcribError as error:
            logger.warning("The push subscription of a browser that signed out is still stored: %s", error)

    async def _refuse(self, request: Request, error: ToolcribError, target: str) -> Response:
        if await self._throttle.failed(request.client.host if request.client else ""):
            return problems.page(Unavailable("auth.throttled", "Too many failed sign-ins from this address."))
        return HTMLResponse(sign_in_page(error.message, target=target), error.status)

    def _enter(self, value: str, target: str) -> Response:
        response = RedirectResponse(target, status_code=303)
        cookie = self._logins.cookie
        response.set_cookie(cookie, value, max_age=SESSION_SECONDS, httponly=True, samesite="strict", path="/")
        return response


def _own_path(target: str) -> str:
    """Return a path of the console to continue at; anything that could name another site becomes `/`."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\", "/login"))
    return target if is_path and target.isascii() and target.isprintable() else "/"
