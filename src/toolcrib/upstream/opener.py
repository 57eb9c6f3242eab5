"""Opens a connection for a trusted server: resolves its values, then starts the process or dials the address.

Must never start or dial a server with an unresolved value, or let one of its secrets into a message.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.values import KnownSecrets
from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.base.network.urls import CheckedUrl, check_url, is_loopback
from toolcrib.base.network.web import Web
from toolcrib.base.processes.process import Processes, ServerFailed
from toolcrib.base.processes.stderr import Mask
from toolcrib.model.errors import ConfigError, ToolcribError
from toolcrib.model.protocol import Era
from toolcrib.model.servers import ResolvedServer, ServerSpec
from toolcrib.nodes.server_leases import ServerLeases
from toolcrib.servers.identity import identity
from toolcrib.servers.masking import hidden_values, secret_values
from toolcrib.servers.resolve import resolve
from toolcrib.servers.secret_commands import SecretCommands
from toolcrib.upstream.confinement import Confinement
from toolcrib.upstream.connection import Connection
from toolcrib.upstream.credentials import CredentialStore, credential_name, former_name
from toolcrib.upstream.forwarded_connection import open_forwarded
from toolcrib.upstream.handshake import ClientIntroduction, ServerIntroduction, open_initialized
from toolcrib.upstream.oauth.demand import NO_DEMAND, Demand
from toolcrib.upstream.protocol_log import OK, ProtocolLog, ending
from toolcrib.upstream.retries import Timing

if TYPE_CHECKING:
    from toolcrib.upstream.http import handshake as http_handshake
    from toolcrib.upstream.oauth import token_refresh
    from toolcrib.upstream.oauth.token_refresh import Bearer
else:
    http_handshake = lazy_module("toolcrib.upstream.http.handshake")
    token_refresh = lazy_module("toolcrib.upstream.oauth.token_refresh")

TOKEN_VARIABLE = "OAUTH_ACCESS_TOKEN"
HANDSHAKE_METHODS: Final[Mapping[Era, str]] = {"modern": "server/discover", "legacy": "initialize"}


@dataclass(frozen=True, slots=True)
class OpenerDeps:
    """Dependencies shared by all upstreams. Relative paths of definitions outside projects start at `workspace`.

    `client_document` is the URL of this crib's OAuth client metadata document, if it has one. Every secret that a
    definition is resolved with is added to `secrets`.
    """

    processes: Processes
    web: Web
    tokens: CredentialStore
    environment: Mapping[str, str] = field(repr=False)
    commands: SecretCommands
    hello: ClientIntroduction
    workspace: Path | None = None
    sandboxes: Path | None = None
    """The parent of the private directories of sandboxed servers."""
    client_document: str | None = None
    secrets: KnownSecrets = field(default_factory=KnownSecrets, repr=False)
    named_secrets: NamedSecrets | None = None
    """Resolves `${keyring:NAME}`."""
    timing: Timing = field(default_factory=Timing)
    may_open: Callable[[], None] = lambda: None
    """Raises if no server may be started or contacted now."""
    leases: ServerLeases | None = None
    """The leases of servers that run on one node at a time; None if no other node can exist."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """An initialized connection. `pid` is set if the crib started the process."""

    connection: Connection
    introduction: ServerIntroduction
    pid: int | None = None


class Opener:
    """Opens connections to one server, one after the other, and keeps its sign-in between them."""

    def __init__(
        self,
        deps: OpenerDeps,
        spec: ServerSpec,
        own_url: Callable[[], str | None],
        hello: ClientIntroduction | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self._deps = deps
        self._spec = spec
        self._own_url = own_url
        self._hello = hello or deps.hello
        self._bearer: Bearer | None = None
        self._mask: Mask = str
        self._confinement = confinement or Confinement(spec, None, lambda: None)

    @property
    def hello(self) -> ClientIntroduction:
        """The client introduction sent to this server."""
        return self._hello

    @property
    def demand(self) -> Demand:
        """The authorization requirement from the server's last rejection."""
        return self._bearer.demand if self._bearer is not None else NO_DEMAND

    async def signed_in(self) -> None:
        """Reload the stored sign-in after a sign-in or sign-out."""
        if self._bearer is not None:
            await self._bearer.reload()

    def mask_failure(self, failure: ToolcribError) -> None:
        """Mask the definition's secrets in a failure, because servers echo what they receive."""
        if isinstance(failure, ServerFailed):
            failure.brief = self._mask(failure.brief)
        failure.message = self._mask(failure.message)
        failure.args = (failure.message,)

    @asynccontextmanager
    async def open(
        self,
        era: Era | None,
        connect_wait: float,
        protocol_log: ProtocolLog,
        on_lost: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[OpenConnection]:
        """Open an initialized connection for the block, and log the duration of the handshake.

        `era` is the remembered or required era; if it does not work, the handshake is repeated without it. `on_lost` is
        called if the server must end because another node may start it. Raises a `ToolcribError` if the connection
        cannot be opened.
        """
        self._deps.may_open()
        resolved = await self._resolve()
        self._deps.may_open()
        async with AsyncExitStack() as stack:
            leases, key = self._deps.leases, placement_key(self._spec)
            if self._spec.placement == "one" and leases is not None:
                node = await stack.enter_async_context(leases.place(key, on_lost))
                if node is not None and leases.client is not None:
                    forwarding = open_forwarded(leases.client, node, key, self._spec.name, connect_wait)
                    yield OpenConnection(*await stack.enter_async_context(forwarding))
                    return
            try:
                opened = await stack.enter_async_context(self._open_logged(resolved, era, connect_wait, protocol_log))
            except ToolcribError as failure:
                if era is None or failure.code not in ("server.ended", "server.protocol"):
                    raise
                opened = await stack.enter_async_context(self._open_logged(resolved, None, connect_wait, protocol_log))
            yield opened

    @asynccontextmanager
    async def _open_logged(
        self, resolved: ResolvedServer, era: Era | None, wait: float, protocol_log: ProtocolLog
    ) -> AsyncGenerator[OpenConnection]:
        began = time()
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self._open_transport(resolved, era, wait))
            except ToolcribError as failure:
                protocol_log.note((began, time(), "out", HANDSHAKE_METHODS[era or "modern"], None, ending(failure)))
                raise
            protocol_log.note((began, time(), "out", HANDSHAKE_METHODS[opened.introduction.era], None, OK))
            yield opened

    async def _resolve(self) -> ResolvedServer:
        deps, spec = self._deps, self._spec
        resolved = await resolve(spec, deps.environment, deps.commands, deps.workspace, deps.named_secrets)
        if resolved.problems:
            problem = resolved.problems[0]
            raise ConfigError(problem.code, problem.message, problem.hint)
        self._mask = masking(resolved, deps.secrets)
        if spec.type == "stdio" and spec.auth is not None:
            token = await self._token()
            if token is not None:
                resolved = replace(resolved, env={**resolved.env, TOKEN_VARIABLE: token})
                self._mask = masking(resolved, deps.secrets)
        return resolved

    def _open_transport(
        self, resolved: ResolvedServer, era: Era | None, wait: float
    ) -> AbstractAsyncContextManager[OpenConnection]:
        spec = self._spec
        return self._open_stdio(resolved, era, wait) if spec.type == "stdio" else self._open_http(resolved, era, wait)

    @asynccontextmanager
    async def _open_stdio(
        self, resolved: ResolvedServer, era: Era | None, wait: float
    ) -> AsyncGenerator[OpenConnection]:
        processes, name = self._deps.processes, self._spec.name
        async with (
            self._confinement.start(resolved) as confined,
            open_initialized(processes, name, confined, self._hello, mask=self._mask, era=era, connect_wait=wait) as (
                connection,
                introduction,
            ),
        ):
            yield OpenConnection(connection, introduction, connection.pid)

    @asynccontextmanager
    async def _open_http(
        self, resolved: ResolvedServer, era: Era | None, wait: float
    ) -> AsyncGenerator[OpenConnection]:
        spec, deps = self._spec, self._deps
        # The owner trusted exactly this address, so it may be on this machine or network.
        url = check_url(resolved.url or "", local_allowed=True)
        if _is_same_origin(url, self._own_url()):
            message = f'Server "{spec.name}" is this crib itself and is never connected.'
            raise ConfigError("server.own_crib", message, f"Run `toolcrib mcp disable {spec.alias}`.")
        if self._bearer is None and "authorization" not in {name.lower() for name in resolved.headers}:
            name = credential_name(spec)
            await deps.tokens.adopt(name, former_name(spec), url.text)
            await deps.tokens.renew_client(name, url.text, resolved.auth)
            self._bearer = token_refresh.Bearer(deps.web, deps.tokens, name, url, shown=spec.alias or spec.name)
        async with http_handshake.open_web_server(
            deps.web,
            spec.name,
            url,
            transport="sse" if spec.type == "sse" else "http",
            headers=resolved.headers,
            bearer=self._bearer,
            local_allowed=True,
            hello=self._hello,
            era=era,
            connect_wait=wait,
            idle_wait=deps.timing.idle,
        ) as (connection, introduction):
            yield OpenConnection(connection, introduction)

    async def _token(self) -> str | None:
        """Return the token to pass to a program at its start, or None: the program may work without it."""
        name = credential_name(self._spec)
        stored = await self._deps.tokens.held(name)
        if stored is None:
            return None
        if self._bearer is None:
            url = check_url(stored.resource, local_allowed=stored.local)
            self._bearer = token_refresh.Bearer(self._deps.web, self._deps.tokens, name, url, shown=self._spec.alias)
        return await self._bearer.access_token()


def placement_key(spec: ServerSpec) -> str:
    """Return the key of a server that runs on one node at a time: the same on every node."""
    return hashlib.sha256(f"{spec.name} {identity(spec)}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _is_same_origin(url: CheckedUrl, own: str | None) -> bool:
    """Return whether a URL is this crib's own, under any name of this machine."""
    if own is None:
        return False
    own_address = check_url(own, local_allowed=True)
    return url.port == own_address.port and (
        url.host == own_address.host or (_is_this_machine(url) and _is_this_machine(own_address))
    )


def _is_this_machine(url: CheckedUrl) -> bool:
    return url.host == "localhost" or is_loopback(url.host)


def masking(resolved: ResolvedServer, known: KnownSecrets) -> Mask:
    """Add a definition's secrets to the known ones, and return a function that masks both in server output."""
    words = (resolved.command or "", *resolved.args)
    known.add(*secret_values(resolved.env, resolved.headers, words, resolved.url))
    if resolved.auth is not None and resolved.auth.client_secret:
        known.add(resolved.auth.client_secret)
    own = KnownSecrets(hidden_values(resolved.env, resolved.headers))

    def mask(text: str) -> str:
        return mask_text(own.mask(text), known.mask)

    return mask


def copy_failure(failure: ToolcribError, message: str | None = None) -> ToolcribError:
    """Return a copy of a failure with another message. Each raised exception needs its own traceback."""
    if isinstance(failure, ServerFailed):
        return failure.copy(message)
    return type(failure)(failure.code, message or failure.message, failure.hint)
