"""User operations on upstreams: list, test, reload, sign in and sign out.

Resolves a name to its definition in `Servers` and its upstream in the pool.

Must never connect a server that is disabled, shadowed, untrusted or invalid.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.urls import check_url
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest
from toolcrib.model.look_alikes import twins
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Auth, ServerEntry, ServerSpec
from toolcrib.servers.resolve import resolve
from toolcrib.servers.server_status import ServerStatus, own_crib
from toolcrib.servers.servers import Servers
from toolcrib.upstream.credentials import credential_name, former_name
from toolcrib.upstream.opener import OpenerDeps
from toolcrib.upstream.plan import not_startable
from toolcrib.upstream.pool import Pool
from toolcrib.upstream.protocol_log import LoggedMessage
from toolcrib.upstream.sign_ins import SignIns, SignInStatus

if TYPE_CHECKING:
    from toolcrib.upstream.oauth import sign_in as oauth_sign_in
    from toolcrib.upstream.oauth.sign_in import Target
else:
    oauth_sign_in = lazy_module("toolcrib.upstream.oauth.sign_in")

_OWN_SERVERS = ("toolcrib", "agent_zoo", "crew", "claude_code")


class UpstreamOperations:
    """Operations on all servers, by name. `settle` brings every listing up to date with what servers offer."""

    def __init__(
        self,
        servers: Servers,
        pool: Pool,
        deps: OpenerDeps,
        sign_ins: SignIns,
        settle: Callable[[Path | None], Awaitable[None]],
    ) -> None:
        self._servers = servers
        self._pool = pool
        self._deps = deps
        self._sign_ins = sign_ins
        self._settle = settle

    async def list(self, cwd: Path | None = None) -> tuple[ServerStatus, ...]:
        """Return the status of every server visible in `cwd`."""
        found = await self._servers.list(cwd)
        alike = twins((*(entry.name for entry in found.servers), *_OWN_SERVERS))
        entries = [await self.with_credential_problem(entry) for entry in found.servers]
        return tuple(self.status(entry, alike.get(entry.name, ())) for entry in entries)

    async def with_credential_problem(self, entry: ServerEntry) -> ServerEntry:
        """Return the server with a problem if it is a program whose credential is not stored; it starts without it."""
        spec = entry.spec
        named = spec.auth.credential_id if spec is not None and spec.auth is not None else None
        if spec is None or named is None or spec.type != "stdio" or not entry.startable:
            return entry
        if await self._deps.tokens.held(credential_name(spec)) is not None:
            return entry
        message = f'Server "{spec.name}": no sign-in is stored for the credential "{named}", so it gets no token'
        hint = f'Sign in to the server that has "credentialId": "{named}", or remove "auth" from the definition.'
        problem = Problem("oauth.required", message, hint, spec.source.file, spec.source.line)
        return replace(entry, problems=(*entry.problems, problem))

    def status(self, entry: ServerEntry, alike: tuple[str, ...] = ()) -> ServerStatus:
        """Return the status of one server. `alike` are names it can be confused with."""
        return ServerStatus(entry, self._pool.status(entry) if entry.startable else None, alike)

    def protocol_log(self, entry: ServerEntry) -> tuple[LoggedMessage, ...]:
        """Return the recent protocol messages of one server, newest first."""
        return self._pool.protocol_log(entry)

    async def note(self, server: str, cwd: Path | None = None) -> str | None:
        """Return why a known server's tools are missing, or None."""
        found = await self._servers.list(cwd)
        entry = found.find(server)
        status = self.status(entry) if entry is not None else None
        return status.problem().message if status is not None and status.state != "connected" else None

    async def unknown(self, cwd: Path | None = None) -> tuple[Problem, ...]:
        """Return a problem for each usable server whose tools are missing."""
        return tuple(each.problem() for each in await self.missing(cwd))

    async def missing(self, cwd: Path | None = None) -> tuple[ServerStatus, ...]:
        """Return the usable servers whose tools are missing."""
        idle = (each for each in await self.list(cwd) if each.entry.startable and each.state != "connected")
        return tuple(each for each in idle if each.link is not None and not each.link.is_known)

    async def test(self, name: str, cwd: Path | None = None) -> ServerStatus:
        """Connect a server now, or ping and re-list a connected one. The returned status holds the outcome."""
        entry, _ = await self._usable(name, cwd)
        status = await self._pool.test(entry)
        await self._settle(cwd)
        return ServerStatus(entry, status)

    async def cancel(self, name: str, cwd: Path | None = None) -> ServerStatus:
        """Cancel an attempt to connect a server. Without one, nothing changes."""
        entry, _ = await self._usable(name, cwd)
        if self._pool.cancel(entry):
            await anyio.lowlevel.checkpoint()  # the attempt ends in its own task
        return self.status(entry)

    async def check_all(self, cwd: Path | None = None) -> tuple[ServerStatus, ...]:
        """Test every startable server concurrently."""
        found = await self._servers.list(cwd)
        async with anyio.create_task_group() as tests:
            for entry in found.startable():
                tests.start_soon(self._pool.test, entry)
        await self._settle(cwd)
        return tuple(self.status(entry) for entry in found.servers)

    async def reload(self, name: str | None, cwd: Path | None = None) -> tuple[ServerStatus, ...]:
        """Reconnect one server; without a name, read all files again and apply only the changes."""
        if name is not None:
            entry, _ = await self._usable(name, cwd)
            await self._pool.reload(entry)
            await self._settle(cwd)
            return (self.status(entry),)
        found = await self._servers.list(cwd)
        await self._pool.reload(None)
        await self._settle(cwd)
        return tuple(self.status(entry) for entry in found.servers)

    async def sign_in(self, name: str, cwd: Path | None = None, *, again: bool = False) -> SignInStatus:
        """Begin a sign-in, or return the pending one. Raises `oauth.signed_in` if signed in already, unless `again`."""
        entry, spec = await self._usable(name, cwd)
        demand = self._pool.demand(entry)
        is_connected = self._pool.status(entry).state == "connected"
        if not again and not demand.scopes and is_connected and await self._has_credential(spec):
            message = f'Already signed in to "{entry.name}".'
            raise Conflict("oauth.signed_in", message, f"Run `toolcrib mcp reauth {entry.alias}` to sign in again.")
        return await self._sign_ins.begin(await self._target(spec), self._after_sign_in(entry), demand=demand)

    async def answer(self, name: str, final_url: str, cwd: Path | None = None) -> None:
        """Accept the final URL from a browser on another machine."""
        entry, spec = await self._usable(name, cwd)
        self._sign_ins.paste(credential_name(spec), final_url, shown=entry.alias)

    async def await_sign_in(self, name: str, seconds: float, cwd: Path | None = None) -> SignInStatus:
        """Return the sign-in's status once it has ended or the time is up."""
        entry, spec = await self._usable(name, cwd)
        return await self._sign_ins.wait(credential_name(spec), seconds, shown=entry.alias)

    async def sign_out(self, name: str, cwd: Path | None = None) -> ServerStatus:
        """Delete the sign-in at a server."""
        entry, spec = await self._usable(name, cwd)
        for known in (credential_name(spec), former_name(spec)):
            if known is not None:
                await self._deps.tokens.forget(known)
        await self._pool.signed_in(entry)
        return self.status(entry)

    def _after_sign_in(self, entry: ServerEntry) -> Callable[[], Awaitable[None]]:
        async def reconnect() -> None:
            await self._pool.signed_in(entry)

        return reconnect

    async def _has_credential(self, spec: ServerSpec) -> bool:
        target = await self._target(spec)
        await self._deps.tokens.adopt(target.server, former_name(spec), target.url.text)
        return await self._deps.tokens.credential(target.server, target.url.text) is not None

    async def _target(self, spec: ServerSpec) -> "Target":
        if spec.type == "stdio":
            message = f'Server "{spec.name}" is a local command and has no sign-in.'
            raise InvalidRequest("server.invalid", message, "Pass its credentials in `env`.")
        deps = self._deps
        filled = await resolve(spec, deps.environment, deps.commands, secrets=deps.named_secrets)
        lacks = next((each for each in filled.problems if each.code == "server.secret_missing"), None)
        if lacks is not None or (filled.url is None and filled.problems):
            problem = lacks or filled.problems[0]
            raise ConfigError(problem.code, f"{problem.message}.", problem.hint)
        # The owner trusts this definition, so its address may be in this network.
        url = check_url(filled.url or "", local_allowed=True)
        return oauth_sign_in.Target(
            credential_name(spec),
            url,
            local_allowed=True,
            headers=filled.headers,
            auth=filled.auth or Auth(),
            client_document=self._deps.client_document,
            shown=spec.alias or spec.name,
        )

    async def _usable(self, name: str, cwd: Path | None) -> tuple[ServerEntry, ServerSpec]:
        entry = await self._servers.find(name, cwd)
        if (own := own_crib(entry)) is not None:
            raise ConfigError(own.code, f"{own.message}.")
        if entry.spec is None or not entry.startable:
            raise not_startable(entry)
        return entry, entry.spec
