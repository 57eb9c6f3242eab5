"""The sign-ins that are under way: begun by one request, finished by a browser, waited for by another request.

A person needs minutes, a request has seconds; so a sign-in runs in a task of its own, and whoever asks is told where it
stands. There is one per server at a time: who asks again is given the address of the one that runs.

Above: `host`, for the commands and routes that start a sign-in. Below: `oauth`. It must never tell anybody more of a
sign-in than the address for the browser and how it ended.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.connect.oauth import SIGN_IN_SECONDS, SignIn, Target, signing_in
from toolcrib.connect.tokens import Tokens
from toolcrib.connect.web import Web
from toolcrib.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject

logger = logging.getLogger(__name__)

SignInState = Literal["waiting", "done", "failed"]

_KEPT = 100
"""How many ended sign-ins are remembered for those who ask how they went."""


@dataclass(frozen=True, slots=True)
class SignInStatus:
    """Where a sign-in stands. `url` is for the person's browser, `redirect_uri` where that one will end."""

    state: SignInState
    url: str
    redirect_uri: str
    expires_at: float
    error: ToolcribError | None = None

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        shape: JsonObject = {"state": self.state, "url": self.url, "redirectUri": self.redirect_uri}
        if self.error is not None:
            shape["error"] = {"code": self.error.code, "message": self.error.message, "hint": self.error.hint}
        return shape


class _UnderWay:
    """One sign-in and those who wait for its end."""

    def __init__(self, sign_in: SignIn, status: SignInStatus) -> None:
        self.sign_in = sign_in
        self.status = status
        self.ended = anyio.Event()


class SignIns:
    """All sign-ins of one crib; `async with` ends those that are still under way."""

    def __init__(self, web: Web, tokens: Tokens) -> None:
        self._web = web
        self._tokens = tokens
        self._known: dict[str, _UnderWay] = {}
        self._beginning = anyio.Lock()
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    async def begin(
        self, target: Target, then: Callable[[], Awaitable[None]], *, more_scopes: tuple[str, ...] = ()
    ) -> SignInStatus:
        """Begin a sign-in, or give the one under way; `then` is done when it succeeded.

        Raises what keeps it from beginning (`oauth.failed`).
        """
        async with self._beginning:
            known = self._known.get(target.server)
            if known is not None and known.status.state == "waiting":
                return known.status
            started: _UnderWay | ToolcribError = await self._tasks.start(self._run, target, then, more_scopes)
        if isinstance(started, ToolcribError):
            raise started
        return started.status

    def paste(self, server: str, final_url: str) -> None:
        """Take the address a browser on another machine ended at."""
        self._find(server).sign_in.paste(final_url)

    async def wait(self, server: str, seconds: float) -> SignInStatus:
        """How a sign-in ended, or where it stands when the time is over."""
        known = self._find(server)
        with anyio.move_on_after(seconds):
            await known.ended.wait()
        return known.status

    def _find(self, server: str) -> _UnderWay:
        known = self._known.get(server)
        if known is None:
            raise NotFound("oauth.none", f'Nobody is signing in to "{server}".', f"Run `toolcrib mcp auth {server}`.")
        return known

    async def _run(
        self,
        target: Target,
        then: Callable[[], Awaitable[None]],
        more_scopes: tuple[str, ...],
        *,
        task_status: TaskStatus["_UnderWay | ToolcribError"],
    ) -> None:
        """One sign-in from its beginning to its end. That it cannot begin is told to who asked, the rest is kept."""
        known: _UnderWay | None = None
        failure: ToolcribError | None = None
        try:
            async with signing_in(self._web, self._tokens, target, more_scopes=more_scopes) as sign_in:
                expires_at = time.time() + SIGN_IN_SECONDS
                known = _UnderWay(sign_in, SignInStatus("waiting", sign_in.url, sign_in.redirect_uri, expires_at))
                self._keep(target.server, known)
                task_status.started(known)
                await sign_in.finish()
            await then()
        except ToolcribError as error:
            failure = error
        except Exception:  # boundary: one sign-in must end neither the others nor the crib
            logger.exception("The sign-in at %s failed.", target.server)
            failure = Unavailable("oauth.failed", "OAuth authentication failed: something unexpected happened.")
        if known is None:
            assert failure is not None
            task_status.started(failure)
            return
        known.status = replace(known.status, state="done" if failure is None else "failed", error=failure)
        known.ended.set()

    def _keep(self, server: str, known: _UnderWay) -> None:
        self._known.pop(server, None)
        self._known[server] = known
        ended = [name for name, each in self._known.items() if each.status.state != "waiting"]
        for name in ended[: max(0, len(self._known) - _KEPT)]:
            del self._known[name]
