"""Authentication: maps a credential to a principal, and decides which principals are people.

The owner has one token, stored in the home. The owner creates named tokens for others: each represents one principal
with its own source, mode and agent. Defaults of a named token:

- source `ide` and mode `acceptEdits`, since an MCP client asks its own user before it calls; any other source has
  mode `default`, which requires approvals here;
- the tools of its agent or, without one, the default set, which has nothing privileged; a hidden tool does not exist
  for it;
- only the MCP endpoint, and for a token bound to an agent only that agent's endpoint; other sources also list and call
  over REST. No token reaches servers, rules, settings, the audit or other tokens;
- no approvals. With `may_approve` it answers its own; a token that is not an MCP client's and is bound to no agent
  also answers those of others. Answers hold `once`; with `may_remember` they may write a rule, bound to the principal
  of the call like any other remembered answer.

A session whose runtime is a separate process has a secret as long as that process runs. It reaches the session's tools
at `/mcp`, and nothing else.

Must never compare a secret in a way that leaks its contents through timing, and never store one in usable form.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import anyio

from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, Unauthenticated
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tokens import PREFIX, Level, Token
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.tokens import load_tokens, revoke_token, save_token

Door = Literal["mcp", "api", "cli", "console", "library", "session", "link"]
"""The interface that a call came in through."""

OWNER_KEY = "owner"
"""The key of the owner's credentials."""
SESSION_PREFIX = "tcs_"
"""The prefix of a session's secret."""
SessionCall = Callable[[ToolRef, JsonObject, ReportProgress | None], Awaitable[CallResult]]
"""Calls a tool in a session. The runtime announces the call before or after it."""
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_OF_PERSONS: tuple[Source, ...] = ("web", "cli", "api")
_MCP = "/mcp"
_FOR_TOOLS = "/api/tools"
_FOR_APPROVALS = "/api/approvals"


class Credential(NamedTuple):
    """A valid credential. `ended` is set when it is revoked; None if it never ends.

    `key` identifies this credential, also against a later token of the same name. It is not secret.
    """

    principal: Principal
    ended: anyio.Event | None = None
    key: str = OWNER_KEY


class _Live(NamedTuple):
    token: Token
    credential: Credential


class NamedTokens:
    """The named tokens of a crib. All are stored; active ones are also held in memory for authentication."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._end_listeners: list[Callable[[Principal], None]] = []
        self._on_change: Callable[[Sequence[Token]], None] = lambda _: None
        # Keyed by the SHA-256 of the secret. Secrets with similar digests cannot be constructed, so the lookup's timing
        # reveals nothing.
        self._live: dict[bytes, _Live] = {}

    async def refresh(self) -> None:
        """Load the tokens from the database, at start and after changes by other cribs that share it."""
        found = {token.digest: token for token in await load_tokens(self._store) if not token.revoked_at}
        for digest in self._live.keys() - found.keys():
            self._end(digest)
        for digest in found.keys() - self._live.keys():
            self._begin(found[digest])

    async def list(self) -> list[Token]:
        """Return all tokens, including revoked ones, oldest first."""
        return await load_tokens(self._store)

    async def create(
        self,
        name: str,
        *,
        source: Source = "ide",
        mode: Mode | None = None,
        agent: str | None = None,
        may_approve: bool = False,
        may_remember: bool = False,
        level: Level | None = None,
    ) -> tuple[Token, str]:
        """Create a token. Returns it with its secret, which is not stored. An explicit mode counts as a decision."""
        if may_remember and not may_approve:
            raise InvalidRequest("token.rights", "`mayRemember` needs `mayApprove`.")
        if not _NAME.fullmatch(name) or name.lower() == "owner":
            raise InvalidRequest("token.name", f"{name!r} is not a valid token name.")
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        effective: Mode = mode or ("default" if level == "ask" else default_mode(source))
        decided = level or ("app" if mode is not None and source == "ide" else None)
        token = Token(
            name=name,
            digest=hashlib.sha256(secret.encode()).digest(),
            source=source,
            mode=effective,
            created_at=datetime.now(UTC),
            agent=agent,
            may_approve=may_approve,
            may_remember=may_remember,
            level=decided,
        )
        try:
            await save_token(self._store, token)
        except ConstraintError as error:
            raise Conflict("token.exists", f"A token named {name!r} already exists.") from error
        self._begin(token)
        return token, secret

    async def revoke(self, name: str) -> None:
        """Revoke a token immediately: further requests are refused, and open ones are cut. Raises `NotFound`."""
        for digest in [digest for digest, live in self._live.items() if live.token.name == name]:
            self._end(digest)
        if not await revoke_token(self._store, name, datetime.now(UTC)):
            raise NotFound("token.unknown", f"Token {name!r} not found.")

    def cut(self) -> None:
        """Cut every open request of a named token. The tokens stay valid."""
        for token, credential in tuple(self._live.values()):
            self._begin(token)
            if credential.ended is not None:
                credential.ended.set()
            self._publish_end(credential.principal)

    def find(self, digest: bytes) -> Credential | None:
        """Return the credential with this SHA-256, or None."""
        live = self._live.get(digest)
        return live.credential if live is not None else None

    def named(self, name: str) -> Token | None:
        """Return the active token of this name, or None."""
        return next((live.token for live in self._live.values() if live.token.name == name), None)

    def credential(self, name: str) -> Credential | None:
        """Return the credential of the active token of this name, or None."""
        return next((live.credential for live in self._live.values() if live.token.name == name), None)

    @property
    def live(self) -> tuple[Token, ...]:
        """All active tokens."""
        return tuple(each.token for each in self._live.values())

    def watch(self, on_change: Callable[[Sequence[Token]], None]) -> None:
        """Call `on_change` with all active tokens, now and on every change."""
        self._on_change = on_change
        on_change(self.live)

    def listen(self, on_end: Callable[[Principal], None]) -> None:
        """Call `on_end` with the principal of every token whose requests are cut, such as a revoked one."""
        self._end_listeners.append(on_end)

    def _publish_end(self, principal: Principal) -> None:
        for on_end in self._end_listeners:
            on_end(principal)

    def _begin(self, token: Token) -> None:
        self._live[token.digest] = _Live(token, Credential(token.principal, anyio.Event(), f"token {token.id}"))
        self._on_change(self.live)

    def _end(self, digest: bytes) -> None:
        credential = self._live.pop(digest).credential
        if credential.ended is not None:
            credential.ended.set()
        self._on_change(self.live)
        self._publish_end(credential.principal)


class SessionToken:
    """The secret of a session while its runtime runs. `is_used` is set once the runtime has authenticated with it."""

    def __init__(self, secret: str, principal: Callable[[], Principal | None], call: SessionCall) -> None:
        self.secret = secret
        self.digest = hashlib.sha256(secret.encode()).digest()
        self.principal = principal
        self.call = call
        self.ended = anyio.Event()
        self.is_used = False


class SessionTokens:
    """The secrets of sessions, held in memory only. The principal of a session is looked up on every request."""

    def __init__(self) -> None:
        self._live: dict[bytes, SessionToken] = {}

    @contextmanager
    def issued(self, principal: Callable[[], Principal | None], call: SessionCall) -> Generator[SessionToken]:
        """Issue a secret that is valid inside the block. Calls made with it go to `call`."""
        token = SessionToken(SESSION_PREFIX + secrets.token_urlsafe(_SECRET_BYTES), principal, call)
        self._live[token.digest] = token
        try:
            yield token
        finally:
            del self._live[token.digest]
            token.ended.set()

    def find(self, digest: bytes) -> Credential | None:
        """Return the credential with this SHA-256, or None."""
        token = self._live.get(digest)
        if token is None:
            return None
        principal = token.principal()
        token.is_used = True
        return Credential(principal, token.ended, f"session {principal.session}") if principal is not None else None

    async def call(
        self, principal: Principal, ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None
    ) -> CallResult:
        """Call a tool in the principal's session."""
        for token in self._live.values():
            who = token.principal()
            if who is not None and who.session == principal.session:
                return await token.call(ref, arguments, progress)
        return CallResult.error("The session has ended.")


class Principals:
    """Authenticates credentials and decides what their principals may do outside of tool calls."""

    def __init__(
        self, owner_token: str, tokens: NamedTokens | None = None, sessions: SessionTokens | None = None
    ) -> None:
        self._owner = hashlib.sha256(owner_token.encode()).digest()
        self._tokens = tokens
        self._sessions = sessions
        self.look_again: Callable[[], Awaitable[object]] = _nothing
        """Loads tokens that other nodes created or revoked."""
        self._owners = {source: Credential(self.owner(source)) for source in ("ide", "api", "cli", "web")}

    def authenticate(self, bearer: bytes, source: Literal["ide", "api", "cli", "web"] = "api") -> Credential | None:
        """Return the credential of this token, or None if it is invalid. `source` applies to the owner's token.

        Runs in constant time: every store is searched, regardless of earlier matches.
        """
        digest = hashlib.sha256(bearer).digest()
        is_owner = hmac.compare_digest(digest, self._owner)
        named = self._tokens.find(digest) if self._tokens is not None else None
        session = self._sessions.find(digest) if self._sessions is not None else None
        return self._owners[source] if is_owner else named or session

    def owner_credential(self, source: Literal["ide", "api", "cli", "web"]) -> Credential:
        """Return the owner's credential, for a request that another node has authenticated."""
        return self._owners[source]

    def acting_as(self, owner: Credential, name: str) -> Credential:
        """Return the credential of a named token that the owner acts as: it has that token's level, until revoked.

        A stdio front uses it for the app that started it. Raises `policy.denied` and `auth.invalid`.
        """
        if not owner.principal.is_owner:
            raise Denied("policy.denied", "Only the owner may act as a token.")
        known = self._tokens.credential(name) if self._tokens is not None else None
        if known is None:
            hint = "Connect the app again with `toolcrib connect`."
            raise Unauthenticated("auth.invalid", f"There is no token {name!r} in use.", hint)
        return known

    def owner(
        self,
        source: Source,
        *,
        mode: Mode | None = None,
        agent: str | None = None,
        session: str | None = None,
        cwd: str | None = None,
    ) -> Principal:
        """Return the owner as a principal. Naming an agent, a session or a mode means acting as that.

        An MCP client asks its own user before it calls, so `ide` runs without approvals unless a mode is named. A call
        that the owner makes as nothing else is by hand.
        """
        by_hand = source in _OF_PERSONS and mode is None and agent is None and session is None
        effective: Mode = mode or default_mode(source)
        return Principal("owner", "owner", source, effective, agent, session, cwd, by_hand)

    def is_person(self, principal: Principal) -> bool:
        """Return whether this is a person: the owner by hand, in the console, on the command line or over the API."""
        return principal.kind == "owner" and principal.by_hand

    def may_answer(self, principal: Principal, caller: Principal) -> bool:
        """Return whether this person may approve or deny calls of `caller`. Never true for a session or an agent."""
        if principal.kind != "token":
            return self.is_person(principal)
        token = self._tokens.named(principal.name) if self._tokens is not None else None
        if token is None or not token.may_approve or principal != token.principal:
            return False
        own = caller.identity == principal.identity
        return own or (token.agent is None and token.source in _OF_PERSONS)

    def may_remember(self, principal: Principal) -> bool:
        """Return whether answers of this principal may hold for longer than one call."""
        if principal.kind != "token":
            return self.is_person(principal)
        token = self._tokens.named(principal.name) if self._tokens is not None else None
        return token is not None and token.may_remember and principal == token.principal

    def may_reach(self, principal: Principal, path: str) -> bool:
        """Return whether this principal may use a path of the HTTP server. If not, the path does not exist for it."""
        if principal.kind == "owner":
            return True
        if principal.kind == "session":
            return path == _MCP
        if _below(path, "/mcp/agents"):
            return principal.agent is not None and _below(path, f"/mcp/agents/{principal.agent}")
        if _below(path, _MCP):
            return principal.agent is None  # a token bound to an agent uses that agent's endpoint
        if principal.source == "ide":
            return False
        return _below(path, _FOR_TOOLS) or (_below(path, _FOR_APPROVALS) and self.may_answer(principal, principal))


async def _nothing() -> None:
    """Do nothing: no other node creates tokens."""


def default_mode(source: Source) -> Mode:
    """Return the mode used if none is set. An MCP client asks its own user; other sources need approvals here."""
    return "acceptEdits" if source == "ide" else "default"


def _below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
