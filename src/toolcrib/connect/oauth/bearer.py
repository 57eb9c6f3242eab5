"""Shows the token of a server with each request to it, and renews it when it has to be, once for all who wait.

A renewal is made by one task of one process at a time; everybody else waits for it and uses what it brought. It is not
cut off when the caller leaves: the issuer may have spent the old token already. No lock is held while a request is
under way. Who carries a request asks for the `token`, hands a refusal to `refused`, repeats the request once if that
gives another token, and tells the end to `note`; what would help after a last refusal is in `problem`.

Above: `http`, which carries requests to the server's own `origin` only. Below: `tokens`, `grants`. It must never answer
a refusal with more than one renewal.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import httpx2

from toolcrib.connect.oauth.discovery import Challenge, challenge_in
from toolcrib.connect.oauth.failures import failed, required, shown
from toolcrib.connect.oauth.grants import Refused, renew
from toolcrib.connect.tokens import Credential, Tokens
from toolcrib.connect.urls import CheckedUrl
from toolcrib.connect.web import DOCUMENT_SECONDS, Web
from toolcrib.errors import ToolcribError

_log = logging.getLogger(__name__)

LOCK_SECONDS = DOCUMENT_SECONDS + 5
RENEW_SECONDS = LOCK_SECONDS + DOCUMENT_SECONDS + 5
MOST_STEPS = 3
_EARLY = 30.0
_EARLY_SHARE = 0.1
_QUIET = 5.0
_LONGEST_QUIET = 300.0


@dataclass(frozen=True, slots=True)
class _Held:
    """A credential and the moment, on a clock that nobody sets, from which it is renewed before use."""

    credential: Credential
    stale_at: float | None

    @property
    def token(self) -> str:
        return self.credential.access_token


class Bearer:
    """The sign-in at one server, as whoever sends requests to it uses it."""

    def __init__(
        self,
        web: Web,
        tokens: Tokens,
        server: str,
        url: CheckedUrl,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web = web
        self._tokens = tokens
        self._server = server
        self._url = url
        self._now = now
        self._clock = clock
        self._lock = anyio.Lock()
        self._loaded = False
        self._held: _Held | None = None
        self._unproved: str | None = None  # a token that a renewal brought and that was not yet accepted
        self._quiet_until = 0.0
        self._quiet = _QUIET
        self._steps = 0
        self.problem: ToolcribError | None = None
        self.wanted: tuple[str, ...] = ()

    async def reload(self) -> None:
        """Look again at what is stored, after a sign-in or its end."""
        async with self._lock:
            self._adopt(await self._stored())
            self._loaded, self._unproved, self._quiet_until, self._quiet = True, None, 0.0, _QUIET
            self.problem, self.wanted = None, ()

    async def access_token(self) -> str:
        """The token itself, for a program that is given it at its start. Raises `oauth.required`."""
        credential = await self._usable()
        if credential is None:
            raise self.problem or required(self._server)
        return credential.access_token

    @property
    def origin(self) -> str:
        """The one origin that the token may be shown to."""
        return self._url.origin

    async def token(self) -> str | None:
        """The token to show with a request; None if there is none."""
        held = self._held
        if held is not None and not self._is_stale(held):
            return held.token
        credential = await self._usable()
        return credential.access_token if credential is not None else None

    async def refused(self, status: int, challenges: Sequence[str], token: str | None) -> str | None:
        """Another token to repeat a refused request with, once; None, with the problem noted, if there is none.

        `token` is the one that was shown, `challenges` are the `WWW-Authenticate` headers of the refusal.
        """
        if status == 401:
            renewed = await self._renewed(token)
            return renewed.access_token if renewed is not None else None
        held = self._held
        challenge = challenge_in(challenges)
        if status != 403 or token is None or held is None or challenge.error != "insufficient_scope":
            return None
        granted = await self._more_granted(token, held.credential, challenge)
        return granted.access_token if granted is not None else None

    def note(self, status: int, token: str | None) -> None:
        """Remember by the last answer to a request, repeated or not, whether its token is any good."""
        if status == 401:
            self.problem = required(self._server)
        elif token is not None and status != 403:
            self.problem = None
            if self._unproved == token:
                self._unproved = None

    async def _usable(self) -> Credential | None:
        """A token that is not known to be over; the old one where no new one can be had, for the server to judge."""
        if not self._loaded:
            async with self._lock:
                if not self._loaded:
                    self._adopt(await self._stored())
                    self._loaded = True
        held = self._held
        if held is None:
            return None
        if not self._is_stale(held):
            return held.credential
        return await self._renewed(held.token) or held.credential

    async def _renewed(self, spent: str | None) -> Credential | None:
        """A token other than the spent one; None, with the problem noted, if there is none to be had."""
        async with self._lock:
            held = self._held
            if held is not None and held.token != spent and not self._is_stale(held):
                return held.credential
            if self._clock() < self._quiet_until:
                return None
            with anyio.move_on_after(RENEW_SECONDS, shield=True):
                return await self._renew_alone(spent)
            self._keep_quiet("the issuer did not answer in time.")
            return None

    async def _renew_alone(self, spent: str | None) -> Credential | None:
        async with self._tokens.renewing(self._server, LOCK_SECONDS) as is_mine:
            stored = await self._stored()
            changed = stored is not None and stored.access_token != spent
            held = self._adopt(stored)
            if held is not None and changed and not self._is_stale(held):
                return held.credential  # another process, or a person, was faster
            if stored is None or stored.refresh_token is None or stored.access_token == self._unproved:
                self.problem = required(self._server)
                return None
            if not is_mine:
                self._keep_quiet("another process has been renewing the token for too long.")
                return None
            return await self._ask_issuer(stored)

    async def _ask_issuer(self, stored: Credential) -> Credential | None:
        try:
            async with self._web.documents(local_allowed=stored.local) as client:
                new = await renew(client, stored, self._now())
        except Refused as refusal:
            if refusal.passing:
                self._keep_quiet(str(refusal))
            else:
                await self._give_up(stored, refusal)
            return None
        except (httpx2.HTTPError, TimeoutError, ToolcribError) as error:
            self._keep_quiet(str(error) or "the issuer cannot be reached.")
            return None
        self._adopt(new)
        self._unproved = new.access_token
        self._quiet_until, self._quiet, self.problem = 0.0, _QUIET, None
        try:
            await self._tokens.keep(new)
        except ToolcribError as error:
            # The old token is spent, so the new one is used all the same; after a restart a person has to sign in.
            _log.warning("The renewed sign-in at %s could not be stored: %s", self._server, error.message)
        return new

    async def _give_up(self, stored: Credential, refusal: Refused) -> None:
        """The issuer will never renew this: nobody needs to ask again, not even after a restart."""
        self.problem = required(self._server)
        if refusal.lost_client:
            await self._tokens.forget_registration(stored.issuer)
        await self._tokens.keep(replace(stored, refresh_token=None))

    async def _more_granted(self, token: str, credential: Credential, challenge: Challenge) -> Credential | None:
        """A token with more scopes if a person has got one meanwhile; else the wish is noted, a few times at most."""
        async with self._lock:
            stored = await self._stored()
            if stored is not None and stored.access_token != token:
                self._adopt(stored)
                return stored
        missing = tuple(scope for scope in challenge.scopes if scope not in credential.asked)
        if not missing:
            wanted = shown(" ".join(challenge.scopes))
            self.problem = failed(f"the server wants the rights {wanted}, which its issuer did not grant.")
        elif self._steps >= MOST_STEPS:
            self.problem = failed("the server asks for more rights after each sign-in.")
        else:
            if not set(missing) <= set(self.wanted):
                self._steps += 1
            self.wanted = tuple(dict.fromkeys((*credential.asked, *self.wanted, *missing)))
            self.problem = required(self._server, self.wanted)
        return None

    async def _stored(self) -> Credential | None:
        return await self._tokens.credential(self._server, self._url.text)

    def _adopt(self, credential: Credential | None) -> _Held | None:
        if credential is None:
            self._held = None
        elif self._held is None or self._held.credential != credential:
            remaining = credential.remaining(self._now())
            early = min(_EARLY, (credential.lifetime or 0.0) * _EARLY_SHARE)
            self._held = _Held(credential, None if remaining is None else self._clock() + remaining - early)
        return self._held

    def _is_stale(self, held: _Held) -> bool:
        return held.stale_at is not None and self._clock() >= held.stale_at

    def _keep_quiet(self, reason: str) -> None:
        """The issuer is not asked again for a while, whoever waits or comes."""
        self._quiet_until = self._clock() + self._quiet
        self._quiet = min(self._quiet * 2, _LONGEST_QUIET)
        self.problem = failed(f"the token could not be renewed: {reason}")
