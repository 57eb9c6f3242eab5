"""The way of a browser into the console: a one-time link, then a cookie.

The link carries a random code that works once and for ten minutes; the cookie carries another random value that means
the owner for as long as this process lives. Both are kept as digests, in memory only: a restart ends every session.

Above: the guard asks whether a cookie is known; the command line and `POST /api/login` hand out links. It must never
keep a code or a cookie in a form that could be used, and never take one twice.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolcrib.errors import InvalidRequest, Unauthenticated, Unavailable
from toolcrib.server import problems
from toolcrib.server.limits import Throttle

CODE_SECONDS = 600.0
CODES_KEPT = 32
SESSIONS_KEPT = 64


class Logins:
    """The codes that are open and the browsers that came in."""

    def __init__(self, address: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        # Cookies know no ports: the name keeps two cribs on one machine from overwriting each other's.
        self.cookie = f"toolcrib_{address.rpartition(':')[2]}"
        self._clock = clock
        self._codes: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, anyio.Event] = OrderedDict()

    def link(self) -> str:
        """A new address that lets one browser in, once."""
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > CODES_KEPT:
            self._codes.popitem(last=False)
        return f"http://{self._address}/login?code={code}"

    def redeem(self, code: str) -> str:
        """The value of a new session's cookie, for a code that is open; raises `auth.login_used` for any other."""
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
        """The session of a cookie, as the event of its end; None for a cookie that is not known."""
        return self._sessions.get(_digest(cookie))


class LoginPage:
    """`GET /login?code=…`: sets the cookie and goes on to the console."""

    def __init__(self, logins: Logins, throttle: Throttle) -> None:
        self._logins = logins
        self._throttle = throttle

    async def show(self, request: Request) -> Response:
        """Let the browser in, or say why not."""
        if request.method != "GET":  # a look ahead must not use the link up
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
