"""The link to one upstream server: one task that opens the conversation, keeps it, and opens it again when it breaks.

Callers share one conversation and one attempt to open it; they wait in their own tasks and never enter a transport.
A server that fails is left alone for a while, during which callers are told so at once. What it offers is kept when it
is gone.

Above: `pool` runs links, `upstream` calls through them. Below: `opening`, `exchange`, `upkeep`. It must never repeat a
request that the server may have acted on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import anyio

from toolcrib.connect.exchange import Exchange
from toolcrib.connect.http import HttpRefused
from toolcrib.connect.listening import Wishes
from toolcrib.connect.offer import Offer
from toolcrib.connect.opening import Ground, Opened, Opener, again
from toolcrib.connect.process import ServerFailed
from toolcrib.connect.reports import Report
from toolcrib.connect.retries import Retries
from toolcrib.connect.starts import Starts
from toolcrib.connect.talk import Talk
from toolcrib.connect.upkeep import Upkeep, within
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.links import LinkStatus
from toolcrib.model.protocol import Era
from toolcrib.model.servers import ServerSpec
from toolcrib.model.sources import CallContext, ProtocolError

logger = logging.getLogger(__name__)

SESSION_LOST, SIGN_IN = "server.session_lost", "oauth.required"
CLOSED = ("server.ended", "server.unreachable")


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom a link tells: of a new status, of a new offer, and of what the server said to nobody in particular."""

    status: Callable[[], None]
    offer: Callable[[Offer], None]
    said: Callable[[str, JsonObject], None]


@dataclass(frozen=True, slots=True)
class Session:
    """What makes a link one client's own: the session's name, and the era that its client can be asked in."""

    name: str
    era: Era | None


class _Attempt:
    """An attempt to open the conversation, and all who wait for it."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.failure: ToolcribError | None = None


class Link:
    """One server. `run` is its task; everything else may be called from any other.

    `session` is set for a connection of one client's own: it reads no lists, and ends when it is of no use any more.
    """

    def __init__(
        self,
        ground: Ground,
        spec: ServerSpec,
        opener: Opener,
        starts: Starts,
        hooks: Hooks,
        *,
        offer: Offer | None = None,
        session: Session | None = None,
        talk: Talk | None = None,
    ) -> None:
        self.spec = spec
        self.talk = talk or Talk()
        self.offer = offer
        self.wishes = Wishes()
        self._timing = ground.timing
        self._opener = opener
        self._starts = starts
        self._hooks = hooks
        self._session = session
        self._retries = Retries(ground.timing)
        self._report = Report()
        self._scope = anyio.CancelScope()
        self._wake = anyio.Event()
        self._is_hurried = False
        self._is_forced = False
        self._is_over = False
        self._attempt = _Attempt()
        self._listed = anyio.Event()
        self._exchange: Exchange | None = None
        self._upkeep: Upkeep | None = None
        self._ended: asyncio.Future[ToolcribError | None] | None = None

    @property
    def status(self) -> LinkStatus:
        """Where the link stands."""
        return self._report.status(self.spec, self.offer)

    @property
    def is_used(self) -> bool:
        """Whether a call is under way."""
        return self._exchange is not None and self._exchange.is_used

    def start(self) -> None:
        """Connect without anybody waiting for it."""
        self._wake.set()

    def stop(self) -> None:
        """End the link; calls under way fail."""
        self._scope.cancel()

    def restart(self) -> None:
        """Close the conversation and open a new one at once, whatever failed before."""
        self._retries.reset()
        self._is_forced = True
        self._end(None)
        self._wake.set()

    async def signed_in(self) -> None:
        """Somebody signed in or out."""
        await self._opener.signed_in()
        self.restart()

    async def drop(self, uris: Sequence[str]) -> None:
        """Nobody wants to hear of these resources any more."""
        if self._upkeep is not None:
            await self._upkeep.drop(uris)

    async def ensure(self) -> Offer:
        """What the server offers, connecting if it is not known. Raises why it is not to be had."""
        while self.offer is None:
            await self._until_listed()
        return self.offer

    async def check(self) -> LinkStatus:
        """Connect now; or, where the conversation stands, ask whether the server is there and what it offers."""
        self._retries.reset()
        self._is_forced |= self._is_closing
        try:
            upkeep = self._upkeep
            if self._exchange is None or upkeep is None:
                await self._until_listed()
            else:
                await upkeep.ping()
                self._take(await upkeep.read(self.offer))
        except ToolcribError as failure:
            self._end(failure)
            logger.debug("Server %s was checked: %s", self.spec.name, failure)
        return self.status

    async def request(
        self, method: str, params: JsonObject, context: CallContext, headers: Mapping[str, str] | None = None
    ) -> JsonObject:
        """A request of a caller, connecting first if need be; gives the result as it came.

        Raises `ProtocolError` if the server answers with an error, another `ToolcribError` if it cannot be reached.
        """
        exchange = self._exchange or await self.ready()
        try:
            return await exchange.request(method, params, context, headers)
        except ProtocolError:
            raise  # an answer as well, passed on as it is
        except ToolcribError as failure:
            if failure.code != SESSION_LOST:
                self._opener.hush(failure)
                raise self._learned(failure, exchange) from failure.__cause__
        # The server answered that it does not know the session, so it did nothing.
        return await (await self.ready(other_than=exchange)).request(method, params, context, headers)

    def _learned(self, failure: ToolcribError, exchange: Exchange) -> ToolcribError:
        """What a failed call tells of the whole link, and the link of the call: gives what the caller is told."""
        if exchange is self._exchange and self._upkeep is not None:
            if failure.code == SIGN_IN:
                self._end(failure)  # and with it all other calls under way, for the same reason
            elif failure.code == "server.unreachable":
                self._upkeep.suspect()
        elif failure.code in CLOSED and (reason := self._report.failure) is not None and reason.code == SIGN_IN:
            return unreachable(self.spec.name, reason)
        return failure

    async def ready(self, other_than: Exchange | None = None, *, hurried: bool = True) -> Exchange:
        """The open conversation. Who waits for it shares one attempt; while the server is left alone, nobody waits.

        `hurried` is for a call: then the server does not wait for its turn among those that are started. Raises why
        the conversation is not to be had.
        """
        while (exchange := self._exchange) is None or exchange is other_than:
            self._refuse_if_in_vain()
            attempt = self._attempt
            self._is_hurried |= hurried
            self._wake.set()
            await within(self.spec.name, attempt.over.wait(), 2 * self._connect_wait + self._timing.connect)
            if attempt.failure is not None:
                raise unreachable(self.spec.name, attempt.failure)
        return exchange

    async def run(self) -> None:
        """Keep the link, for as long as nobody stops it."""
        try:
            with self._scope:
                while True:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    await self._connect()
                    if self._session is not None and not self._report.is_failed:
                        return
        finally:
            self._is_over = True
            self._fail_waiting(self._stopped())

    async def _connect(self) -> None:
        """One conversation from its beginning to its end, and the decision what comes after it."""
        self._report.connecting()
        self._hooks.status()
        self._is_forced = False
        up_since: float | None = None
        try:
            async with AsyncExitStack() as stack:
                turn = await self._starts.take(hurried=self._is_hurried)
                try:
                    opening = self._opener.open(self._era, self._connect_wait, self.talk)
                    opened = await stack.enter_async_context(opening)
                finally:
                    turn.end()
                up_since = time.monotonic()
                failure = await self._keep(opened)
        except ToolcribError as error:
            self._opener.hush(error)
            failure = error
        except Exception as error:  # boundary: whatever one server's link meets must not end the others'
            logger.exception("The link to server %s failed.", self.spec.name)
            failure = Unavailable("internal", f'The link to "{self.spec.name}" failed: {type(error).__name__}.')
        self._is_hurried, self._ended = False, None
        if failure is None:
            self._report.closed()
            self._hooks.status()
        elif self._is_forced or (failure.code == SESSION_LOST and self._report.is_connected):
            self._wake.set()
        else:
            await self._rest(failure, up_since)

    async def _rest(self, failure: ToolcribError, up_since: float | None) -> None:
        """Leave the server alone for a while; then try again, if that may help and it was wanted before."""
        self._wake = anyio.Event()  # whoever asked during the attempt is told how it ended
        now = time.monotonic()
        wish = failure.retry_after if isinstance(failure, HttpRefused) else None
        self._retries.failed(now, up_since=up_since, wish=wish or 0.0)
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

    def _refuse_if_in_vain(self) -> None:
        """Whoever could only wait for nothing is told at once."""
        if self._is_over:
            raise self._stopped()
        failure, wait = self._report.failure, self._retries.until - time.monotonic()
        if failure is not None and self._report.is_failed and wait > 0 and not self._wake.is_set():
            raise unreachable(self.spec.name, failure, f" It is not tried again for {max(1, round(wait))} s.")

    def _stopped(self) -> ToolcribError:
        return Unavailable("server.ended", f'Server "{self.spec.name}" was stopped.')

    def _fail_waiting(self, failure: ToolcribError) -> None:
        attempt, self._attempt = self._attempt, _Attempt()
        attempt.failure = failure
        attempt.over.set()
        self._tell_listed()

    async def _keep(self, opened: Opened) -> ToolcribError | None:
        """Let the conversation be used until it ends; gives why, None if that was wanted."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        async with anyio.create_task_group() as tasks:
            session = self._session.name if self._session is not None else None
            exchange = Exchange(opened, self._opener.hello, self._timing, self.talk, tasks.start_soon, session)
            upkeep = self._upkeep = Upkeep(exchange, self.wishes, self._timing, self._report.answered)
            exchange.on_event = partial(self._heard, upkeep)
            exchange.on_silence = upkeep.suspect
            tasks.start_soon(self._until_ended, exchange)
            tasks.start_soon(upkeep.listen)  # before anything is read: a change in between would be missed
            tasks.start_soon(self._serve, upkeep, opened)
            tasks.start_soon(self._watch, upkeep, exchange)
            self._exchange = exchange
            attempt, self._attempt = self._attempt, _Attempt()
            attempt.over.set()
            try:
                return await ended
            finally:
                self._exchange = self._upkeep = None
                exchange.close()
                tasks.cancel_scope.cancel()

    async def _until_ended(self, exchange: Exchange) -> None:
        self._end(await exchange.conversation.until_ended())

    async def _serve(self, upkeep: Upkeep, opened: Opened) -> None:
        """Read what the server offers, then follow its changes."""
        try:
            offer = await upkeep.read(self.offer) if self._session is None else None
            await upkeep.tell_wishes()
        except ToolcribError as failure:
            self._end(failure)
            return
        self._report.connected(opened)
        if offer is not None:
            self._take(offer)
            await upkeep.follow(lambda: self.offer, self._take, lambda method: self._hooks.said(method, {}))

    async def _watch(self, upkeep: Upkeep, exchange: Exchange) -> None:
        self._end(await upkeep.watch(partial(self._is_of_use, exchange)))

    def _is_of_use(self, exchange: Exchange) -> bool:
        return self._session is None or exchange.is_used or exchange.unused_for < self._timing.session_idle

    def _heard(self, upkeep: Upkeep, method: str, params: JsonObject) -> None:
        """What a server says to nobody in particular."""
        if not upkeep.changed(method):
            self._hooks.said(method, params)

    def _end(self, failure: ToolcribError | None) -> None:
        """End the conversation. Closing it may take a while, and meanwhile nothing is connected."""
        if self._ended is None or self._ended.done():
            return
        self._ended.set_result(failure)
        self._exchange = None
        if failure is not None and failure.code != SESSION_LOST:
            self._opener.hush(failure)
            self._report.failed(failure)
            self._hooks.status()

    def _take(self, offer: Offer) -> None:
        """Make an offer known to all, those who wait for it included."""
        is_new = offer != self.offer
        self.offer = offer if is_new else self.offer
        self._tell_listed()
        if is_new:
            self._hooks.offer(offer)
        self._hooks.status()

    async def _until_listed(self) -> None:
        listed = self._listed
        await self.ready(hurried=False)
        await within(self.spec.name, listed.wait(), self._timing.list)
        failure = self._report.failure
        if self.offer is None and failure is not None:
            raise unreachable(self.spec.name, failure)

    def _tell_listed(self) -> None:
        listed, self._listed = self._listed, anyio.Event()
        listed.set()

    @property
    def _is_closing(self) -> bool:
        """Whether the conversation is over and its transport not yet: a new one has to wait for that."""
        return self._ended is not None and self._ended.done()

    @property
    def _connect_wait(self) -> float:
        return self.spec.timeout_ms / 1000 if self.spec.timeout_ms else self._timing.connect

    @property
    def _era(self) -> Era | None:
        """What is remembered of the server, or what this session needs."""
        if self._session is not None:
            return self._session.era
        return self.offer.era if self.offer is not None else None


def unreachable(name: str, failure: ToolcribError, more: str = "") -> ToolcribError:
    """The failure as whoever wanted the server is told it."""
    begin = "" if failure.code.startswith("oauth.") else f'Failed to connect to "{name}": '
    said = failure.brief if isinstance(failure, ServerFailed) else failure.message
    return again(failure, f"{begin}{said}{more}")


def _may_pass(failure: ToolcribError) -> bool:
    """Whether trying again may help without anybody doing something."""
    return isinstance(failure, Unavailable) and not failure.code.startswith("oauth.")
