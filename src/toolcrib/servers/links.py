"""What a person does to the link of a server: look at it, try it, open it anew, sign in and out.

The desk knows the definitions, the pool holds the links; here a name becomes both. Above: REST. Below: `desk`, and
`connect` for the pool and the sign-ins. It must never connect a server that may not be: switched off, shadowed, not
trusted or not usable.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from toolcrib.config.resolve import resolve
from toolcrib.connect import Ground, Pool, SignIns, SignInStatus, credential_name
from toolcrib.connect.oauth import Target
from toolcrib.connect.plan import not_startable
from toolcrib.connect.talk import Said
from toolcrib.connect.urls import check_url
from toolcrib.errors import ConfigError, Conflict, InvalidRequest
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Auth, ServerEntry, ServerSpec
from toolcrib.servers.desk import Servers
from toolcrib.servers.standing import Standing, own_crib


class Links:
    """The links of all servers, by name. `settle` has what servers of a place offer by now in every list."""

    def __init__(
        self,
        desk: Servers,
        pool: Pool,
        ground: Ground,
        sign_ins: SignIns,
        settle: Callable[[Path | None], Awaitable[None]],
    ) -> None:
        self._desk = desk
        self._pool = pool
        self._ground = ground
        self._sign_ins = sign_ins
        self._settle = settle

    async def list(self, cwd: Path | None = None) -> tuple[Standing, ...]:
        """How every server stands that somebody in `cwd` has."""
        found = await self._desk.list(cwd)
        return tuple(self.standing(entry) for entry in found.servers)

    def standing(self, entry: ServerEntry) -> Standing:
        """How one server stands."""
        return Standing(entry, self._pool.status(entry) if entry.startable else None)

    def talk(self, entry: ServerEntry) -> tuple[Said, ...]:
        """What was said with one server lately, the newest first."""
        return self._pool.talk(entry)

    async def note(self, server: str, cwd: Path | None = None) -> str | None:
        """What keeps a server's tools from being there, if it is known and something does."""
        found = await self._desk.list(cwd)
        entry = found.find(server)
        standing = self.standing(entry) if entry is not None else None
        return standing.problem().message if standing is not None and standing.state != "connected" else None

    async def unknown(self, cwd: Path | None = None) -> tuple[Problem, ...]:
        """A problem for each server that may be used and whose tools are nevertheless not there."""
        missing = (each for each in await self.list(cwd) if each.entry.startable and each.state != "connected")
        return tuple(each.problem() for each in missing if each.link is not None and not each.link.is_known)

    async def test(self, name: str, cwd: Path | None = None) -> Standing:
        """Connect now, or ask again what a connected server offers; how that went is in the standing."""
        entry, _ = await self._usable(name, cwd)
        status = await self._pool.test(entry)
        await self._settle(cwd)
        return Standing(entry, status)

    async def check_all(self, cwd: Path | None = None) -> tuple[Standing, ...]:
        """Test every server that may be connected, side by side."""
        found = await self._desk.list(cwd)
        async with anyio.create_task_group() as tests:
            for entry in found.startable():
                tests.start_soon(self._pool.test, entry)
        await self._settle(cwd)
        return tuple(self.standing(entry) for entry in found.servers)

    async def reload(self, name: str | None, cwd: Path | None = None) -> tuple[Standing, ...]:
        """Open the link of one server anew; without a name, read all files again and touch only what changed."""
        if name is not None:
            entry, _ = await self._usable(name, cwd)
            await self._pool.reload(entry)
            await self._settle(cwd)
            return (self.standing(entry),)
        found = await self._desk.list(cwd)
        await self._pool.reload(None)
        await self._settle(cwd)
        return tuple(self.standing(entry) for entry in found.servers)

    async def sign_in(self, name: str, cwd: Path | None = None, *, again: bool = False) -> SignInStatus:
        """Begin a sign-in, or give the one under way. One who is signed in has to want it `again`."""
        entry, spec = await self._usable(name, cwd)
        if not again and self._pool.status(entry).state == "connected" and await self._has_credential(spec):
            message = f'You are signed in to "{entry.name}".'
            raise Conflict("oauth.signed_in", message, f"Run `toolcrib mcp reauth {entry.alias}` to do it again.")
        return await self._sign_ins.begin(await self._target(spec), self._after_sign_in(entry))

    async def answer(self, name: str, final_url: str, cwd: Path | None = None) -> None:
        """Take the address that a browser on another machine ended at."""
        _, spec = await self._usable(name, cwd)
        self._sign_ins.paste(credential_name(spec), final_url)

    async def await_sign_in(self, name: str, seconds: float, cwd: Path | None = None) -> SignInStatus:
        """How a sign-in ended, or where it stands when the time is over."""
        _, spec = await self._usable(name, cwd)
        return await self._sign_ins.wait(credential_name(spec), seconds)

    async def sign_out(self, name: str, cwd: Path | None = None) -> Standing:
        """Forget the sign-in at a server."""
        entry, spec = await self._usable(name, cwd)
        await self._ground.tokens.forget(credential_name(spec))
        await self._pool.signed_in(entry)
        return self.standing(entry)

    def _after_sign_in(self, entry: ServerEntry) -> Callable[[], Awaitable[None]]:
        async def reconnect() -> None:
            await self._pool.signed_in(entry)

        return reconnect

    async def _has_credential(self, spec: ServerSpec) -> bool:
        target = await self._target(spec)
        return await self._ground.tokens.credential(target.server, target.url.text) is not None

    async def _target(self, spec: ServerSpec) -> Target:
        if spec.type == "stdio":
            message = f'Server "{spec.name}" is a program on this machine; there is nothing to sign in to.'
            raise InvalidRequest("server.invalid", message, "Give it what it needs in `env`.")
        filled = await resolve(spec, self._ground.environment, self._ground.commands)
        # The owner agreed to this definition, so the address in it may be in this network.
        url = check_url(filled.url or "", local_allowed=True)
        return Target(credential_name(spec), url, local_allowed=True, headers=filled.headers, auth=spec.auth or Auth())

    async def _usable(self, name: str, cwd: Path | None) -> tuple[ServerEntry, ServerSpec]:
        entry = await self._desk.find(name, cwd)
        if (own := own_crib(entry)) is not None:
            raise ConfigError(own.code, f"{own.message}.")
        if entry.spec is None or not entry.startable:
            raise not_startable(entry)
        return entry, entry.spec
