"""Browser logins for the console: a one-time link or the owner's token, then a cookie.

A link carries a random code that works once, within ten minutes. The cookie carries another random value that
authenticates the owner for thirty days. Only keyed digests are stored, in one small file of the home, so that sessions
survive a restart of the crib. The key is derived from the owner's token: a new token ends every session.

Must never store a code or cookie in a usable form, or accept a code twice.
"""

import contextlib
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from toolcrib.base.files.private import replace_private
from toolcrib.gate.principals import Credential, Principals
from toolcrib.model.errors import InvalidRequest, ToolcribError, Unauthenticated, Unavailable
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
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = address
        # Cookies are not scoped to a port: the name keeps two cribs on one host from overwriting each other's.
        self.cookie = f"toolcrib_{address.rpartition(':')[2]}"
        self._file = file
        self._key = key or secrets.token_bytes(32)
        self._clock = clock
        self._wall_clock = wall_clock
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[str, _BrowserSession] = OrderedDict(self._read())

    def link(self) -> str:
        """Return a new one-time login URL."""
        code = secrets.token_urlsafe(32)
        self._codes[self._digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > CODES_KEPT:
            self._codes.popitem(last=False)
        return f"http://{self._address}/login?code={code}"

    def redeem(self, code: str) -> str:
        """Exchange a login code for the cookie value of a new session. Raises `auth.login_used` for an invalid code."""
        until = self._codes.pop(self._digest(code), None)
        if until is None or until <= self._clock():
            raise Unauthenticated("auth.login_used", "This login link was already used or has expired.")
        return self.begin()

    def begin(self) -> str:
        """Begin a session of the owner and return its cookie value."""
        value = secrets.token_urlsafe(32)
        self._sessions[self._digest(value)] = _BrowserSession(self._wall_clock() + SESSION_SECONDS)
        while len(self._sessions) > SESSIONS_KEPT:
            _, oldest = self._sessions.popitem(last=False)
            oldest.ended.set()
        self._write()
        return value

    def session(self, cookie: str) -> anyio.Event | None:
        """Return the event that is set when this cookie's session ends, or None for an unknown or expired cookie."""
        known = self._sessions.get(self._digest(cookie))
        return known.ended if known is not None and known.expires > self._wall_clock() else None

    def _digest(self, secret: str) -> str:
        return hmac.new(self._key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _read(self) -> Iterator[tuple[str, _BrowserSession]]:
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            now = self._wall_clock()
            for line in self._file.read_text(encoding="ascii", errors="replace").splitlines()[-SESSIONS_KEPT:]:
                digest, _, expires = line.partition(" ")
                if expires.isdigit() and now < float(expires) <= now + SESSION_SECONDS:
                    yield digest, _BrowserSession(float(expires))

    def _write(self) -> None:
        if self._file is None:
            return
        text = "".join(f"{digest} {each.expires:.0f}\n" for digest, each in self._sessions.items())
        try:
            replace_private(self._file, text.encode())
        except OSError as error:
            logger.warning("Browser sessions will end with this process: %s cannot be written: %s", self._file, error)


class LoginPage:
    """`/login`: exchanges a link (GET) or the owner's token (POST) for the cookie, then redirects to the console."""

    def __init__(self, logins: Logins, throttle: Throttle, principals: Principals) -> None:
        self._logins = logins
        self._throttle = throttle
        self._principals = principals

    async def show(self, request: Request) -> Response:
        """Redirect to the console, or return the sign-in page."""
        if request.method == "POST":
            return await self._sign_in(request)
        if request.method != "GET":  # a HEAD request must not use up the link
            raise InvalidRequest("route.method", "/login supports GET and POST only.")
        if "code" not in request.query_params:
            return HTMLResponse(sign_in_page())
        try:
            value = self._logins.redeem(request.query_params["code"])
        except Unauthenticated as error:
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
        return self._enter(self._logins.begin(), target)

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
