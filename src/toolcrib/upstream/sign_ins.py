"""Pending sign-ins: begun by one request, finished by a browser, awaited by another request.

A user needs minutes and a request has seconds, so each sign-in runs in its own task. There is at most one per server;
beginning another returns the URL of the pending one.

Must never reveal more of a sign-in than the URL for the browser and its outcome.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.web import Web
from toolcrib.model.errors import NotFound, ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.oauth.demand import NO_DEMAND, Demand

if TYPE_CHECKING:
    from toolcrib.upstream.oauth import sign_in as oauth_sign_in
    from toolcrib.upstream.oauth.sign_in import SignIn, Target
else:
    oauth_sign_in = lazy_module("toolcrib.upstream.oauth.sign_in")

logger = logging.getLogger(__name__)

SignInState = Literal["waiting", "done", "failed"]

_KEPT = 100
"""How many ended sign-ins are kept for status requests."""


@dataclass(frozen=True, slots=True)
class SignInStatus:
    """The state of a sign-in. `url` is for the user's browser, `redirect_uri` is where it ends up."""

    state: SignInState
    url: str
    redirect_uri: str
    expires_at: float
    error: ToolcribError | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"state": self.state, "url": self.url, "redirectUri": self.redirect_uri}
        if self.error is not None:
            shape["error"] = {"code": self.error.code, "message": self.error.message, "hint": self.error.hint}
        return shape


class _UnderWay:
    """One sign-in and the event that signals its end."""

    def __init__(self, sign_in: "SignIn", status: SignInStatus) -> None:
        self.sign_in = sign_in
        self.status = status
        self.ended = anyio.Event()


class SignIns:
    """All sign-ins of one crib. Leaving the `async with` block cancels the pending ones."""

    def __init__(self, web: Web, tokens: CredentialStore) -> None:
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
        self, target: "Target", then: Callable[[], Awaitable[None]], *, demand: Demand = NO_DEMAND
    ) -> SignInStatus:
        """Begin a sign-in, or return the pending one. `then` runs after success.

        Raises `oauth.failed` if it cannot begin.
        """
        async with self._beginning:
            known = self._known.get(target.server)
            if known is not None and known.status.state == "waiting":
                return known.status
            started: _UnderWay | ToolcribError = await self._tasks.start(self._run, target, then, demand)
        if isinstance(started, ToolcribError):
            raise started
        return started.status

    def paste(self, server: str, final_url: str, *, shown: str = "") -> None:
        """Accept the final URL from a browser on another machine. `shown` is the server's display name."""
        self._find(server, shown).sign_in.paste(final_url)

    async def wait(self, server: str, seconds: float, *, shown: str = "") -> SignInStatus:
        """Return the sign-in's status once it has ended or the time is up."""
        known = self._find(server, shown)
        with anyio.move_on_after(seconds):
            await known.ended.wait()
        return known.status

    def _find(self, server: str, shown: str) -> _UnderWay:
        known = self._known.get(server)
        if known is None:
            name = shown or server
            raise NotFound("oauth.none", f'No sign-in to "{name}" is in progress.', f"Run `toolcrib mcp auth {name}`.")
        return known

    async def _run(
        self,
        target: "Target",
        then: Callable[[], Awaitable[None]],
        demand: Demand,
        *,
        task_status: TaskStatus["_UnderWay | ToolcribError"],
    ) -> None:
        """Run one sign-in. A failure to begin is passed to the caller, a later one is stored in the status."""
        known: _UnderWay | None = None
        failure: ToolcribError | None = None
        try:
            async with oauth_sign_in.signing_in(self._web, self._tokens, target, demand=demand) as sign_in:
                expires_at = time.time() + oauth_sign_in.SIGN_IN_SECONDS
                known = _UnderWay(sign_in, SignInStatus("waiting", sign_in.url, sign_in.redirect_uri, expires_at))
                self._keep(target.server, known)
                task_status.started(known)
                await sign_in.finish()
            await then()
        except ToolcribError as error:
            failure = error
        except Exception:  # boundary: a failing sign-in must end neither the others nor the crib
            logger.exception("The sign-in at %s failed.", target.shown or target.server)
            failure = Unavailable(
                "oauth.failed", "OAuth authentication failed: an unexpected error occurred. The log has the details."
            )
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
