"""Browser logins for the console: a one-time link, then a cookie.

The link carries a random code that works once, within ten minutes. The cookie carries another random value that
authenticates the owner until this process ends. Only digests are stored, in memory: a restart ends every session.

Must never store a code or cookie in a usable form, or accept a code twice.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolcrib.model.errors import InvalidRequest, Unauthenticated, Unavailable
from toolcrib.web import problems
from toolcrib.web.limits import Throttle

CODE_SECONDS = 600.0
CODES_KEPT = 32
SESSIONS_KEPT = 64


class Logins:
    """Open login codes and browser sessions."""

    def __init__(self, address: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        # Cookies are not scoped to a port: the name keeps two cribs on one host from overwriting each other's.
        self.cookie = f"toolcrib_{address.rpartition(':')[2]}"
        self._clock = clock
        self._codes: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, anyio.Event] = OrderedDict()

    def link(self) -> str:
        """Return a new one-time login URL."""
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > CODES_KEPT:
            self._codes.popitem(last=False)
        return f"http://{self._address}/login?code={code}"

    def redeem(self, code: str) -> str:
        """Exchange a login code for the cookie value of a new session. Raises `auth.login_used` for an invalid code."""
        until = self._codes.pop(_digest(code), None)
        if until is None or until <= self._clock():
            raise Unauthenticated("auth.login_used", "This login link was used already or is too old.")
        value = secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = anyio.Event()
        while len(self._sessions) > SESSIONS_KEPT:
            _, ended = self._sessions.popitem(last=False)
            ended.set()
        return value

    def session(self, cookie: str) -> anyio.Event | None:
        """Return the event that is set when this cookie's session ends, or None for an unknown cookie."""
        return self._sessions.get(_digest(cookie))


class LoginPage:
    """`GET /login?code=…`: sets the cookie and redirects to the console."""

    def __init__(self, logins: Logins, throttle: Throttle) -> None:
        self._logins = logins
        self._throttle = throttle

    async def show(self, request: Request) -> Response:
        """Redirect to the console, or return an error page."""
        if request.method != "GET":  # a HEAD request must not use up the link
            raise InvalidRequest("route.method", "/login takes GET only.")
        try:
            value = self._logins.redeem(request.query_params.get("code", ""))
        except Unauthenticated as error:
            braked = self._throttle.failed(request.client.host if request.client else "")
            throttled = Unavailable("auth.throttled", "Too many wrong login links were tried.")
            return problems.page(throttled if braked else error)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._logins.cookie, value, httponly=True, samesite="strict", path="/")
        return response


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
