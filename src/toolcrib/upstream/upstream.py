"""One upstream server: a task that opens its connection, maintains it and reopens it after a failure.

Callers share one connection and one attempt to open it. They wait in their own tasks and never enter a transport. A
server that fails is not retried for a while. A call waits, within its time limit, for a server that was connected
before and is retried automatically; other callers fail at once. The offer of a disconnected server stays known.

Must never repeat a request that the server may have acted on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

import anyio

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import Era
from toolcrib.model.servers import ServerSpec, UpstreamStatus
from toolcrib.model.tools import CallResult
from toolcrib.upstream.background import BackgroundTasks
from toolcrib.upstream.confinement import Confinement
from toolcrib.upstream.exchange import UpstreamRequests
from toolcrib.upstream.http.refused import HttpRefused
from toolcrib.upstream.keepalive import Keepalive, within
from toolcrib.upstream.oauth.demand import Demand
from toolcrib.upstream.offer import Offer
from toolcrib.upstream.opener import OpenConnection, Opener, OpenerDeps, copy_failure
from toolcrib.upstream.protocol_log import ProtocolLog
from toolcrib.upstream.retries import Retries
from toolcrib.upstream.start_limit import StartLimit
from toolcrib.upstream.status import Report
from toolcrib.upstream.subscriptions import SubscribedResources

logger = logging.getLogger(__name__)

SESSION_LOST, SIGN_IN = "server.session_lost", "oauth.required"
CLOSED = ("server.ended", "server.unreachable")


@dataclass(frozen=True, slots=True)
class UpstreamHooks:
    """Callbacks for a new status, a new offer, and notifications that belong to no call."""

    status: Callable[[], None]
    offer: Callable[[Offer], None]
    notification: Callable[[str, JsonObject], None]


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The MCP session that owns an upstream, and the era that its client's capabilities require."""

    name: str
    era: Era | None


class _Attempt:
    """An attempt to open the connection, shared by all waiting callers."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.failure: ToolcribError | None = None


class Upstream:
    """One server. `run` is its task; everything else may be called from other tasks.

    With a `session`, the connection belongs to one MCP session: it reads no lists and ends when it is no longer used.
    """

    def __init__(
        self,
        deps: OpenerDeps,
        spec: ServerSpec,
        opener: Opener,
        confinement: Confinement,
        starts: StartLimit,
        hooks: UpstreamHooks,
        *,
        offer: Offer | None = None,
        session: ClientSession | None = None,
        protocol_log: ProtocolLog | None = None,
    ) -> None:
        self.spec = spec
        self.protocol_log = protocol_log or ProtocolLog()
        self.offer = offer
        self.subscribed = SubscribedResources()
        self._timing = deps.timing
        self._opener = opener
        self._starts = starts
        self._hooks = hooks
        self._session = session
        self.followers: set[Callable[[str | None, JsonObject], None]] = set()
        """Called with every notification that belongs to no call, and with None when the connection ends."""
        self._retries = Retries(deps.timing)
        self._report = Report()
        self.confinement = confinement
        self._scope = anyio.CancelScope()
        self._connecting = anyio.CancelScope()
        self._wake = anyio.Event()
        self._is_urgent = False
        self._is_forced = False
        self._is_over = False
        self._was_connected = False
        self._attempt = _Attempt()
        self._listed = anyio.Event()
        self.exchange: UpstreamRequests | None = None
        self._keepalive: Keepalive | None = None
        self._ended: asyncio.Future[ToolcribError | None] | None = None

    @property
    def status(self) -> UpstreamStatus:
        """The current status."""
        status, confinement = self._report.status(self.spec, self.offer), self.confinement
        refused, learned = confinement.refused, confinement.learned
        if not refused and learned is None:
            return status
        shape = learned.to_json() if learned is not None else None
        return replace(status, refused=refused, problems=confinement.problems, learned=shape)

    @property
    def is_used(self) -> bool:
        """Whether a call is in flight."""
        return self.exchange is not None and self.exchange.is_used

    def returned_error(self, result: CallResult) -> None:
        """Look for refusals of the sandbox in the error result of a call."""
        self.confinement.read(str(block.get("text", "")) for block in result.content)

    def start(self) -> None:
        """Connect in the background."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the upstream. Calls in flight fail."""
        self._scope.cancel()

    def cancel(self) -> bool:
        """Cancel an attempt to connect. Its callers fail, and it is not repeated. Returns whether there was one."""
        is_connecting = self._report.is_connecting
        if is_connecting:
            self._connecting.cancel()
        return is_connecting

    def restart(self) -> None:
        """Reconnect at once, regardless of earlier failures."""
        self._retries.reset()
        self._is_forced = True
        self._end(None)
        self._wake.set()

    @property
    def demand(self) -> Demand:
        """The authorization requirement from the server's last rejection, for the next sign-in."""
        return self._opener.demand

    async def signed_in(self) -> None:
        """Reconnect after a sign-in or sign-out."""
        await self._opener.signed_in()
        self.restart()

    async def drop(self, uris: Sequence[str]) -> None:
        """Unsubscribe from resources."""
        if self._keepalive is not None:
            await self._keepalive.drop(uris)

    async def ensure(self) -> Offer:
        """Return what the server offers, connecting if that is unknown. Raises if it cannot be connected."""
        while self.offer is None:
            await self._until_listed()
        return self.offer

    async def find_skill(self, uri: str) -> None:
        """Add a skill to the offer that the server does not list. Raises `ProtocolError` if there is no such skill."""
        await self.ensure()
        await self.ready()
        if self._keepalive is not None:
            await self._keepalive.find_skill(lambda: self.offer, self._publish, uri)

    async def check(self) -> UpstreamStatus:
        """Connect now, or ping and re-list a connected server."""
        self._retries.reset()
        self._is_forced |= self._is_closing
        try:
            keepalive = self._keepalive
            if self.exchange is None or keepalive is None or not self._report.is_connected:
                await self._until_listed()
            else:
                await keepalive.ping()
                await keepalive.refresh(lambda: self.offer, self._publish)
        except ToolcribError as failure:
            self._end(failure)
            logger.debug("Server %s was checked: %s", self.spec.name, failure)
        return self.status

    async def reopened(self, failure: ToolcribError, exchange: UpstreamRequests) -> UpstreamRequests:
        """Return a new connection after a request failed because the server had lost the session.

        The server did not act on such a request. Raises any other failure, worded for the caller.
        """
        if failure.code != SESSION_LOST:
            self._opener.mask_failure(failure)
            raise self._apply_failure(failure, exchange) from failure.__cause__
        return await self.ready(other_than=exchange)

    def _apply_failure(self, failure: ToolcribError, exchange: UpstreamRequests) -> ToolcribError:
        """Apply a failed call to the connection, and return the failure to raise to the caller."""
        if exchange is self.exchange and self._keepalive is not None:
            if failure.code == SIGN_IN:
                self._end(failure)  # fails all other calls in flight for the same reason
            elif failure.code == "server.unreachable":
                self._keepalive.suspect()
        elif failure.code in CLOSED and (reason := self._report.failure) is not None and reason.code == SIGN_IN:
            return unreachable(self.spec.name, reason)
        return failure

    async def ready(self, other_than: UpstreamRequests | None = None, *, urgent: bool = True) -> UpstreamRequests:
        """Return the open connection. Concurrent callers share one attempt.

        With `urgent`, for calls, the start limit does not apply, and a recovering server is awaited within the time
        limit of a call. Raises if the connection cannot be opened.
        """
        deadline = time.monotonic() + self._call_limit if urgent else 0.0
        while (exchange := self.exchange) is None or exchange is other_than:
            rest = self._retry_delay(deadline)
            if rest <= 0:
                self._raise_if_backing_off()
                self._wake.set()
            attempt = self._attempt
            self._is_urgent |= urgent
            timeout = 2 * self._connect_wait + self._timing.connect
            if rest > 0:
                timeout = min(rest + timeout, deadline - time.monotonic())
            await within(self.spec.name, attempt.over.wait(), timeout)
            if attempt.failure is not None and not self._will_retry(deadline):
                raise unreachable(self.spec.name, attempt.failure)
        return exchange

    def _will_retry(self, deadline: float) -> bool:
        """Return whether a server that was connected before will be retried automatically before the deadline."""
        is_tried = self._was_connected and self._report.tries_again and not self._is_over
        return is_tried and max(self._retries.until, time.monotonic()) < deadline

    def _retry_delay(self, deadline: float) -> float:
        """Return the seconds until a recovering server is retried, or 0 if it is not worth waiting for."""
        is_resting = self._report.is_failed and self._will_retry(deadline)
        return max(self._retries.until - time.monotonic(), 0.0) if is_resting else 0.0

    async def run(self) -> None:
        """Run the upstream until it is stopped."""
        try:
            with self._scope:
                while True:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    await self._connect()
                    is_wanted = self._wake.is_set()  # requested while the connection was closing
                    if self._session is not None and not self._report.is_failed and not is_wanted:
                        return
        finally:
            self._is_over = True
            self._fail_waiting(self._stopped_error())

    async def _connect(self) -> None:
        """Run one connection from start to end, and decide what follows."""
        self._report.connecting()
        self._hooks.status()
        self._is_forced = False
        up_since: float | None = None
        failure: ToolcribError | None = Unavailable("server.ended", f'Server "{self.spec.name}" moves to another node.')
        self._connecting = connecting = anyio.CancelScope()
        try:
            with connecting, anyio.CancelScope() as lease:
                async with AsyncExitStack() as stack:
                    slot = await self._starts.acquire(urgent=self._is_urgent)
                    try:
                        opening = self._opener.open(self._era, self._connect_wait, self.protocol_log, lease.cancel)
                        opened = await stack.enter_async_context(opening)
                    finally:
                        slot.end()
                    up_since = time.monotonic()
                    failure = await self._maintain(opened)
        except ToolcribError as error:
            self._opener.mask_failure(error)
            failure = error
        except Exception as error:  # boundary: a failing upstream must not end the others
            logger.exception("The upstream of server %s failed.", self.spec.name)
            failure = Unavailable("internal", f'The connection to "{self.spec.name}" failed: {type(error).__name__}.')
        self._is_urgent, self._ended = False, None
        if connecting.cancelled_caught:
            self._on_cancelled()
            return
        if isinstance(failure, ServerFailed):
            self.confinement.read(failure.stderr)
        if failure is None:
            self._report.closed()
            self._hooks.status()
        elif self._is_forced or (failure.code == SESSION_LOST and self._report.is_connected):
            self._wake.set()
        else:
            await self._back_off(failure, up_since)

    def _on_cancelled(self) -> None:
        """Wait for the next request after an attempt was cancelled."""
        self._wake = anyio.Event()
        self._report.closed()
        self._fail_waiting(Unavailable("server.cancelled", f'The check of "{self.spec.name}" was cancelled.'))
        self._hooks.status()

    async def _back_off(self, failure: ToolcribError, up_since: float | None) -> None:
        """Back off after a failure, then retry if that may help."""
        self._wake = anyio.Event()  # callers that asked during the attempt get its failure
        now = time.monotonic()
        requested_delay = failure.retry_after if isinstance(failure, HttpRefused) else None
        self._retries.failed(now, up_since=up_since, requested_delay=requested_delay or 0.0)
        goes_on = up_since is not None or self._retries.in_a_row < self._timing.most_failures
        retries = goes_on and not self._retries.is_open(now) and _may_pass(failure) and self._session is None
        wait = self._retries.until - now
        self._report.failed(failure, wait, retries=retries)
        self._fail_waiting(failure)
        self._hooks.status()
        if retries:
            with anyio.move_on_after(wait):
                await self._wake.wait()
            self._wake.set()

    def _raise_if_backing_off(self) -> None:
        """Raise at once if the server is stopped or backing off."""
        if self._is_over:
            raise self._stopped_error()
        failure, wait = self._report.failure, self._retries.until - time.monotonic()
        if failure is not None and self._report.is_failed and wait > 0 and not self._wake.is_set():
            raise unreachable(self.spec.name, failure, f" Next attempt in {max(1, round(wait))} s.")

    def _stopped_error(self) -> ToolcribError:
        return Unavailable("server.ended", f'Server "{self.spec.name}" was stopped.')

    def _fail_waiting(self, failure: ToolcribError) -> None:
        attempt, self._attempt = self._attempt, _Attempt()
        attempt.failure = failure
        attempt.over.set()
        self._notify_listed()

    async def _maintain(self, opened: OpenConnection) -> ToolcribError | None:
        """Serve the connection until it ends. Returns the failure, or None if it was closed on purpose."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        async with BackgroundTasks() as background, anyio.create_task_group() as tasks:
            session = self._session.name if self._session is not None else None
            exchange = UpstreamRequests(
                opened, self._opener.hello, self._timing, self.protocol_log, background.start, session
            )
            keepalive = self._keepalive = Keepalive(exchange, self.subscribed, self._timing, self._report.answered)
            exchange.on_event = partial(self._on_notification, keepalive)
            exchange.on_silence = keepalive.suspect
            tasks.start_soon(self._until_ended, exchange)
            tasks.start_soon(keepalive.listen)  # before reading lists, so that no change in between is missed
            tasks.start_soon(self._list_and_follow, keepalive, opened)
            tasks.start_soon(self._watch, keepalive, exchange)
            self.exchange = exchange
            attempt, self._attempt = self._attempt, _Attempt()
            attempt.over.set()
            try:
                return await ended
            finally:
                self.exchange = self._keepalive = None
                exchange.close()
                for follower in tuple(self.followers):
                    follower(None, {})
                tasks.cancel_scope.cancel()

    async def _until_ended(self, exchange: UpstreamRequests) -> None:
        self._end(await exchange.connection.until_ended())

    async def _list_and_follow(self, keepalive: Keepalive, opened: OpenConnection) -> None:
        """Read what the server offers, then follow its changes."""
        try:
            offer = await keepalive.read(self.offer) if self._session is None else None
            await keepalive.restore_subscriptions()
        except ToolcribError as failure:
            self._end(failure)
            return
        self._report.connected(opened)
        self._was_connected = True
        if offer is not None:
            self._publish(offer)
            await keepalive.follow(
                lambda: self.offer, self._publish, lambda method: self._hooks.notification(method, {})
            )

    async def _watch(self, keepalive: Keepalive, exchange: UpstreamRequests) -> None:
        self._end(await keepalive.watch(partial(self._is_needed, exchange)))

    def _is_needed(self, exchange: UpstreamRequests) -> bool:
        return self._session is None or exchange.is_used or exchange.unused_for < self._timing.session_idle

    def _on_notification(self, keepalive: Keepalive, method: str, params: JsonObject) -> None:
        """Handle a notification that belongs to no call."""
        for follower in tuple(self.followers):
            follower(method, params)
        if not keepalive.changed(method):
            self._hooks.notification(method, params)

    def _end(self, failure: ToolcribError | None) -> None:
        """End the connection. Closing the transport may take a while, during which the server is disconnected."""
        if self._ended is None or self._ended.done():
            return
        self._ended.set_result(failure)
        self.exchange = None
        if failure is not None and failure.code != SESSION_LOST:
            self._opener.mask_failure(failure)
            self._report.failed(failure)
            self._hooks.status()

    def _publish(self, offer: Offer) -> None:
        """Publish an offer and wake the callers that wait for it."""
        is_new = offer != self.offer
        self.offer = offer if is_new else self.offer
        self._notify_listed()
        if is_new:
            self._hooks.offer(offer)
        self._hooks.status()

    async def _until_listed(self) -> None:
        listed = self._listed
        await self.ready(urgent=False)
        await within(self.spec.name, listed.wait(), self._timing.list)
        failure = self._report.failure
        if self.offer is None and failure is not None:
            raise unreachable(self.spec.name, failure)

    def _notify_listed(self) -> None:
        listed, self._listed = self._listed, anyio.Event()
        listed.set()

    @property
    def _is_closing(self) -> bool:
        """Whether the connection has ended but its transport is still closing, which a new one must wait for."""
        return self._ended is not None and self._ended.done()

    @property
    def _connect_wait(self) -> float:
        return self.spec.timeout_ms / 1000 if self.spec.timeout_ms else self._timing.connect

    @property
    def _call_limit(self) -> float:
        return self.spec.timeout_ms / 1000 if self.spec.timeout_ms else self._timing.idle

    @property
    def _era(self) -> Era | None:
        """The remembered era, or the one that this session requires."""
        if self._session is not None:
            return self._session.era
        return self.offer.era if self.offer is not None else None


def unreachable(name: str, failure: ToolcribError, more: str = "") -> ToolcribError:
    """Return a copy of the failure, worded for a caller of the server."""
    begin = "" if failure.code.startswith("oauth.") else f'Failed to connect to "{name}": '
    reason = failure.brief if isinstance(failure, ServerFailed) else failure.message
    return copy_failure(failure, f"{begin}{reason}{more}")


def _may_pass(failure: ToolcribError) -> bool:
    """Return whether a retry may succeed without user action."""
    return isinstance(failure, Unavailable) and not failure.code.startswith("oauth.")
