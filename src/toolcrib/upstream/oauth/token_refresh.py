"""The bearer token for requests to one server, refreshed when needed, once for all waiting requests.

One task of one process refreshes at a time; all others wait and use its result. A refresh is not cancelled with its
caller, because the issuer may already have consumed the old token. No lock is held during a request. The transport
attaches `token`, passes a rejection to `refused`, retries once if that returns another token, and reports the final
status to `note`. After a final rejection, `problem` explains what to do.

Must never answer a rejection with more than one refresh.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import httpx2

from toolcrib.base.network.guarded_client import DOCUMENT_SECONDS
from toolcrib.base.network.urls import CheckedUrl
from toolcrib.base.network.web import Web
from toolcrib.model.errors import ToolcribError
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential
from toolcrib.upstream.oauth.demand import NO_DEMAND, Challenge, Demand
from toolcrib.upstream.oauth.discovery import challenge_in
from toolcrib.upstream.oauth.failures import failed, printable, required
from toolcrib.upstream.oauth.grants import GrantRefused, renew

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
    """A credential, and the monotonic time from which it must be refreshed before use."""

    credential: OAuthCredential
    stale_at: float | None

    @property
    def token(self) -> str:
        return self.credential.access_token


class Bearer:
    """The sign-in at one server, as used by a transport. `shown` is the server's display name."""

    def __init__(
        self,
        web: Web,
        tokens: CredentialStore,
        server: str,
        url: CheckedUrl,
        *,
        shown: str = "",
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web = web
        self._tokens = tokens
        self._server = server
        self._shown = shown or server
        self._url = url
        self._now = now
        self._clock = clock
        self._lock = anyio.Lock()
        self._loaded = False
        self._held: _Held | None = None
        self._unproved: str | None = None  # a refreshed token that was not accepted yet
        self._quiet_until = 0.0
        self._quiet = _QUIET
        self._steps = 0
        self.problem: ToolcribError | None = None
        self.demand: Demand = NO_DEMAND

    async def reload(self) -> None:
        """Reload the stored credential after a sign-in or sign-out."""
        async with self._lock:
            self._adopt(await self._load())
            self._loaded, self._unproved, self._quiet_until, self._quiet = True, None, 0.0, _QUIET
            self.problem, self.demand = None, NO_DEMAND

    async def access_token(self) -> str:
        """Return the token for a program that receives it at its start. Raises `oauth.required`."""
        credential = await self._usable()
        if credential is None:
            raise self.problem or required(self._shown)
        return credential.access_token

    @property
    def is_signed_in(self) -> bool:
        """Whether there is a sign-in whose token the requests carry."""
        return self._held is not None

    @property
    def origin(self) -> str:
        """The only origin that may receive the token."""
        return self._url.origin

    async def token(self) -> str | None:
        """Return the token for a request, or None if there is none."""
        held = self._held
        if held is not None and not self._is_stale(held):
            return held.token
        credential = await self._usable()
        return credential.access_token if credential is not None else None

    async def refused(self, status: int, challenges: Sequence[str], token: str | None) -> str | None:
        """Return another token to retry a rejected request with, or None after setting `problem`.

        `token` is the rejected one, `challenges` are the `WWW-Authenticate` headers of the rejection.
        """
        challenge = challenge_in(challenges)
        if status == 401:
            if challenge != Challenge():
                self.demand = replace(self.demand, challenge=challenge)
            renewed = await self._renew(token)
            return renewed.access_token if renewed is not None else None
        held = self._held
        if status != 403 or token is None or held is None or challenge.error != "insufficient_scope":
            return None
        granted = await self._more_granted(token, held.credential, challenge)
        return granted.access_token if granted is not None else None

    def note(self, status: int, token: str | None) -> None:
        """Record the final status of a request, which shows whether its token is valid."""
        if status == 401:
            self.problem = required(self._shown)
        elif token is not None and status != 403:
            self.problem = None
            if self._unproved == token:
                self._unproved = None

    async def _usable(self) -> OAuthCredential | None:
        """Return an unexpired credential, or the old one if it cannot be refreshed, for the server to judge."""
        if not self._loaded:
            async with self._lock:
                if not self._loaded:
                    self._adopt(await self._load())
                    self._loaded = True
        held = self._held
        if held is None:
            return None
        if not self._is_stale(held):
            return held.credential
        return await self._renew(held.token) or held.credential

    async def _renew(self, spent: str | None) -> OAuthCredential | None:
        """Return a credential with another token than `spent`, or None after setting `problem`."""
        async with self._lock:
            held = self._held
            if held is not None and held.token != spent and not self._is_stale(held):
                return held.credential
            if self._clock() < self._quiet_until:
                return None
            with anyio.move_on_after(RENEW_SECONDS, shield=True):
                return await self._renew_alone(spent)
            self._fail_for_now("the issuer did not answer in time.")
            return None

    async def _renew_alone(self, spent: str | None) -> OAuthCredential | None:
        async with self._tokens.renewing(self._server, LOCK_SECONDS) as is_mine:
            stored = await self._load()
            changed = stored is not None and stored.access_token != spent
            held = self._adopt(stored)
            if held is not None and changed and not self._is_stale(held):
                return held.credential  # another process or a sign-in was faster
            if stored is None or stored.refresh_token is None or stored.access_token == self._unproved:
                self.problem = required(self._shown)
                return None
            if not is_mine:
                self._fail_for_now("another process is still refreshing the token.")
                return None
            return await self._ask_issuer(stored)

    async def _ask_issuer(self, stored: OAuthCredential) -> OAuthCredential | None:
        try:
            async with self._web.documents(local_allowed=stored.local) as client:
                new = await renew(client, stored, self._now())
        except GrantRefused as refusal:
            if refusal.passing:
                self._fail_for_now(str(refusal))
            else:
                await self._give_up(stored, refusal)
            return None
        except (httpx2.HTTPError, TimeoutError, ToolcribError) as error:
            self._fail_for_now(str(error) or "the issuer cannot be reached.")
            return None
        self._adopt(new)
        self._unproved = new.access_token
        self._quiet_until, self._quiet, self.problem = 0.0, _QUIET, None
        try:
            await self._tokens.keep(new)
        except ToolcribError as error:
            # The old token is consumed, so the new one is used anyway. After a restart the user has to sign in again.
            _log.warning("Could not store the refreshed sign-in at %s: %s", self._shown, error.message)
        return new

    async def _give_up(self, stored: OAuthCredential, refusal: GrantRefused) -> None:
        """Drop a refresh token that the issuer permanently rejects, so that it is not tried again after a restart."""
        self.problem = required(self._shown)
        if refusal.lost_client:
            await self._tokens.forget_registration(stored.issuer)
        await self._tokens.keep(replace(stored, refresh_token=None))

    async def _more_granted(
        self, token: str, credential: OAuthCredential, challenge: Challenge
    ) -> OAuthCredential | None:
        """Return a credential with more scopes if there is one, else record the requirement, a few times at most."""
        async with self._lock:
            stored = await self._load()
            if stored is not None and stored.access_token != token:
                self._adopt(stored)
                return stored
        missing = tuple(scope for scope in challenge.scopes if scope not in credential.asked)
        if not missing:
            wanted = printable(" ".join(challenge.scopes))
            self.problem = failed(f"the server requires the scopes {wanted}, which its issuer did not grant.")
        elif self._steps >= MOST_STEPS:
            self.problem = failed("the server requires more scopes after each sign-in.")
        else:
            if not set(missing) <= set(self.demand.scopes):
                self._steps += 1
            wanted = tuple(dict.fromkeys((*credential.asked, *self.demand.scopes, *missing)))
            self.demand = replace(self.demand, scopes=wanted)
            self.problem = required(self._shown, wanted)
        return None

    async def _load(self) -> OAuthCredential | None:
        return await self._tokens.credential(self._server, self._url.text)

    def _adopt(self, credential: OAuthCredential | None) -> _Held | None:
        if credential is None:
            self._held = None
        elif self._held is None or self._held.credential != credential:
            remaining = credential.remaining(self._now())
            early = min(_EARLY, (credential.lifetime or 0.0) * _EARLY_SHARE)
            self._held = _Held(credential, None if remaining is None else self._clock() + remaining - early)
        return self._held

    def _is_stale(self, held: _Held) -> bool:
        return held.stale_at is not None and self._clock() >= held.stale_at

    def _fail_for_now(self, reason: str) -> None:
        """Set `problem`, and do not contact the issuer for a while."""
        self._quiet_until = self._clock() + self._quiet
        self._quiet = min(self._quiet * 2, _LONGEST_QUIET)
        self.problem = failed(f"the token could not be refreshed: {reason}")
