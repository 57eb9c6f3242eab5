"""Who asks: turns a credential into a principal, and says who is a person.

The owner has one token, kept in the home. Named tokens are the owner's to hand out: each stands for one asker with its
own source, mode and agent, and gets no more than that. What a named token has unless the owner says otherwise:

- source `ide` and mode `acceptEdits`, since an MCP client asks its own user before it calls; any other source has
  mode `default`, in which a person is asked here;
- the tools of its agent or, without one, the default set, which has nothing privileged; what it may not see does not
  exist for it;
- only the MCP endpoint, and if it is bound to an agent only that agent's part of it; other sources also list and call
  over REST. No token reaches servers, rules, settings, the audit or other tokens;
- no say in approvals. With `may_approve` it answers what it asked itself; one that is no MCP client's and bound to no
  agent answers for others too.

A session whose runtime is a process of its own has a secret too, while that process runs: with it the runtime reaches
the session's tools at `/mcp`, and nothing else.

Above: the guard authenticates every request here. Below: `model`, the store. It must never compare a secret in a way
that tells by its time how much of it was right, and never keep one in a form that could be used.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import anyio

from toolcrib.errors import Conflict, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tokens import PREFIX, Token
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.tokens import load_tokens, revoke_token, save_token

Door = Literal["mcp", "api", "cli", "console", "library", "session"]
"""Where a call came in."""

SESSION_PREFIX = "tcs_"
"""What the secret of a session begins with."""
SessionCall = Callable[[ToolRef, JsonObject, ReportProgress | None], Awaitable[CallResult]]
"""Calls a tool in a session, from which the runtime has announced the call or will."""
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_OF_PERSONS: tuple[Source, ...] = ("web", "cli", "api")
_MCP = "/mcp"
_FOR_TOOLS = "/api/tools"
_FOR_APPROVALS = "/api/approvals"


class Credential(NamedTuple):
    """Who shows a credential that is valid now; `ended` is set when it is no longer, and None where it never ends."""

    principal: Principal
    ended: anyio.Event | None = None


class _Live(NamedTuple):
    token: Token
    credential: Credential


class Tokens:
    """The named tokens of a crib: kept in the store, those in use also in memory, where every request finds them."""

    def __init__(self, store: Store, *, on_end: Callable[[Principal], None] = lambda _: None) -> None:
        self._store = store
        self._on_end = on_end
        # By the SHA-256 of the secret. Nobody can say secrets whose digests come near each other, so the time that a
        # search takes tells nothing of what is there.
        self._live: dict[bytes, _Live] = {}

    async def refresh(self) -> None:
        """Take up what the database has now: at the start, and what other cribs on it changed."""
        found = {token.digest: token for token in await load_tokens(self._store) if not token.revoked_at}
        for digest in self._live.keys() - found.keys():
            self._end(digest)
        for digest in found.keys() - self._live.keys():
            self._begin(found[digest])

    async def list(self) -> list[Token]:
        """All tokens, revoked ones too, the oldest first."""
        return await load_tokens(self._store)

    async def create(
        self,
        name: str,
        *,
        source: Source = "ide",
        mode: Mode | None = None,
        agent: str | None = None,
        may_approve: bool = False,
    ) -> tuple[Token, str]:
        """Make a token; gives it and its secret, which nobody can be told again."""
        if not _NAME.fullmatch(name) or name.lower() == "owner":
            raise InvalidRequest("token.name", f"{name!r} is not a name for a token.")
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        effective: Mode = mode or default_mode(source)
        digest = hashlib.sha256(secret.encode()).digest()
        token = Token(name, digest, source, effective, datetime.now(UTC), agent, may_approve)
        try:
            await save_token(self._store, token)
        except ConstraintError as error:
            raise Conflict("token.exists", f"A token named {name!r} is in use.") from error
        self._begin(token)
        return token, secret

    async def revoke(self, name: str) -> None:
        """End a token at once: the next request with it is refused, and what is open under it is cut."""
        for digest in [digest for digest, live in self._live.items() if live.token.name == name]:
            self._end(digest)
        if not await revoke_token(self._store, name, datetime.now(UTC)):
            raise NotFound("token.unknown", f"There is no token {name!r} in use.")

    def find(self, digest: bytes) -> Credential | None:
        """Who has the secret of this SHA-256."""
        live = self._live.get(digest)
        return live.credential if live is not None else None

    def named(self, name: str) -> Token | None:
        """The token of this name, if it is in use."""
        return next((live.token for live in self._live.values() if live.token.name == name), None)

    def _begin(self, token: Token) -> None:
        self._live[token.digest] = _Live(token, Credential(token.principal, anyio.Event()))

    def _end(self, digest: bytes) -> None:
        credential = self._live.pop(digest).credential
        if credential.ended is not None:
            credential.ended.set()
        self._on_end(credential.principal)


class SessionToken:
    """The secret of a session while its runtime runs; `is_used` says whether the runtime has shown it."""

    def __init__(self, secret: str, principal: Callable[[], Principal | None], call: SessionCall) -> None:
        self.secret = secret
        self.digest = hashlib.sha256(secret.encode()).digest()
        self.principal = principal
        self.call = call
        self.ended = anyio.Event()
        self.is_used = False


class SessionTokens:
    """The secrets of sessions, known in memory only. Who a session is now is looked up with every request."""

    def __init__(self) -> None:
        self._live: dict[bytes, SessionToken] = {}

    @contextmanager
    def issued(self, principal: Callable[[], Principal | None], call: SessionCall) -> Generator[SessionToken]:
        """A secret for as long as the block runs; calls that are made with it go to `call`."""
        token = SessionToken(SESSION_PREFIX + secrets.token_urlsafe(_SECRET_BYTES), principal, call)
        self._live[token.digest] = token
        try:
            yield token
        finally:
            del self._live[token.digest]
            token.ended.set()

    def find(self, digest: bytes) -> Credential | None:
        """Who has the secret of this SHA-256."""
        token = self._live.get(digest)
        if token is None:
            return None
        principal = token.principal()
        token.is_used = True
        return Credential(principal, token.ended) if principal is not None else None

    async def call(
        self, principal: Principal, ref: ToolRef, arguments: JsonObject, progress: ReportProgress | None
    ) -> CallResult:
        """Call a tool in the session that asks."""
        for token in self._live.values():
            who = token.principal()
            if who is not None and who.session == principal.session:
                return await token.call(ref, arguments, progress)
        return CallResult.error("The session has ended.")


class Principals:
    """Knows the credentials of this crib."""

    def __init__(self, owner_token: str, tokens: Tokens | None = None, sessions: SessionTokens | None = None) -> None:
        self._owner = hashlib.sha256(owner_token.encode()).digest()
        self._tokens = tokens
        self._sessions = sessions
        self._owners = {source: Credential(self.owner(source)) for source in ("ide", "api", "cli", "web")}

    def authenticate(self, bearer: bytes, source: Literal["ide", "api", "cli", "web"] = "api") -> Credential | None:
        """Who shows this token; `source` is where the owner would be asking from. None for a token that is not valid.

        Every token takes the same time: all places are looked at, whatever the first says.
        """
        digest = hashlib.sha256(bearer).digest()
        is_owner = hmac.compare_digest(digest, self._owner)
        named = self._tokens.find(digest) if self._tokens is not None else None
        session = self._sessions.find(digest) if self._sessions is not None else None
        return self._owners[source] if is_owner else named or session

    def owner(
        self,
        source: Source,
        *,
        mode: Mode | None = None,
        agent: str | None = None,
        session: str | None = None,
        cwd: str | None = None,
    ) -> Principal:
        """The owner, asking from somewhere; naming an agent, a session or a mode means to act as that.

        An MCP client asks its own user before it calls, so `ide` runs unasked unless a mode is named. A call that the
        owner makes in no other name is made by hand.
        """
        by_hand = source in _OF_PERSONS and mode is None and agent is None and session is None
        effective: Mode = mode or default_mode(source)
        return Principal("owner", "owner", source, effective, agent, session, cwd, by_hand)

    def is_person(self, principal: Principal) -> bool:
        """Whether a person is behind this: the owner by hand, in the console, on the command line or over the API."""
        return principal.kind == "owner" and principal.by_hand

    def may_answer(self, principal: Principal, asker: Principal) -> bool:
        """Whether this is a person who may approve or deny what `asker` asks for; never a session, never an agent."""
        if principal.kind != "token":
            return self.is_person(principal)
        token = self._tokens.named(principal.name) if self._tokens is not None else None
        if token is None or not token.may_approve or principal != token.principal:
            return False
        own = asker.kind == "token" and asker.name == principal.name
        return own or (token.agent is None and token.source in _OF_PERSONS)

    def may_reach(self, principal: Principal, path: str) -> bool:
        """Whether this asker may use a path of the server at all; where not, the path does not exist for it."""
        if principal.kind == "owner":
            return True
        if principal.kind == "session":
            return path == _MCP
        if _below(path, "/mcp/agents"):
            return principal.agent is not None and _below(path, f"/mcp/agents/{principal.agent}")
        if _below(path, _MCP):
            return principal.agent is None  # who is bound to an agent asks at that agent's address
        if principal.source == "ide":
            return False
        return _below(path, _FOR_TOOLS) or (_below(path, _FOR_APPROVALS) and self.may_answer(principal, principal))


def default_mode(source: Source) -> Mode:
    """How far an asker may go where nobody says: an MCP client asks its own user, for all others a person is asked."""
    return "acceptEdits" if source == "ide" else "default"


def _below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
