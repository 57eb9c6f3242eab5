"""The tools that use this crib: which of them are connected, and writing it into their own files, with a way back.

A tool that can send headers gets the crib's address and a token of its own; one that cannot, and every file of a
project, which others may read, gets a command that starts a front and holds no secret. Whatever a tool has besides can
be moved behind the crib in the same change.

Above: `host` makes it, REST asks it. Below: `desk` changes the files, tokens come from above. It must never write a
secret into a project's file, and never leave a token behind that neither a file nor a link has.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import anyio
import anyio.to_thread

from toolcrib.config.crib_entry import NAME, http_spec, stdio_spec
from toolcrib.config.edit.entries import ChangeText, put_server, remove_server
from toolcrib.config.export import entry_for, takes_http
from toolcrib.config.own import own_place
from toolcrib.config.readers.read import Place, ReadEntry
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerEntry, ServerSpec, ServerType
from toolcrib.model.tokens import PREFIX, Token
from toolcrib.servers.connectable import (
    CONNECTABLE,
    Connectable,
    Written,
    connectable,
    cribs_among,
    entries_at,
    entries_of_crib,
    is_installed,
    place_for,
    places_of,
    runs,
)
from toolcrib.servers.connections import Asked, ClientState, Connected, Connection, Disconnected
from toolcrib.servers.deep_links import LINKED, DeepLink, deep_link
from toolcrib.servers.desk import Servers
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.transfer import Moved, Transfer, additions, imports
from toolcrib.servers.view import View

_NO_SECRET = "tcb_new"
"""Stands for a secret that is not made yet where a change is only shown; it is masked like any other."""


class TokenBook(Protocol):
    """The named tokens, as far as they are needed here."""

    def named(self, name: str) -> Token | None:
        """The token of this name, if it is in use."""
        ...

    async def create(self, name: str, *, agent: str | None = None) -> tuple[Token, str]:
        """Make a token; gives it and its secret."""
        ...

    async def revoke(self, name: str) -> None:
        """End a token at once."""
        ...


@dataclass(frozen=True, slots=True)
class Reach:
    """How tools come to this crib. `address` is where it can be found for good; None while nobody can say.

    `home` is None where it is the usual one.
    """

    crib: Path
    address: Callable[[], str | None]
    command: tuple[str, ...]
    home: str | None
    environment: Mapping[str, str]

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return self.environment.get("PATH", os.defpath)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What there is before a change: the tool, its file, and the entry that stands there."""

    row: Connectable
    view: View
    place: Place
    installed: bool
    there: Written | None


class Clients:
    """The tools of one person, connected to one crib."""

    def __init__(self, desk: Servers, tokens: TokenBook, reach: Reach) -> None:
        self._desk = desk
        self._tokens = tokens
        self._reach = reach

    async def list(self, cwd: Path | None = None) -> tuple[ClientState, ...]:
        """Every tool that can be connected, found on this machine or not."""
        view = await self._desk.view(cwd)
        return await anyio.to_thread.run_sync(lambda: tuple(self._state(row, view) for row in CONNECTABLE))

    async def connect(
        self, asked: Asked, *, move: bool = False, anyway: bool = False, dry_run: bool = False
    ) -> Connected:
        """Write this crib into a tool's file, or mend the entry that is there; `move` takes its other servers over.

        Raises `client.unknown`, and `client.missing` for a tool that is not on this machine unless `anyway`.
        """
        ground = await self._ground(asked)
        if not (ground.installed or anyway or dry_run):
            raise _missing(ground)
        spec, reasons, token = await self._wanted(asked, ground, dry_run=dry_run)
        try:
            moved, removals = await self._move(ground, dry_run=dry_run) if move else (None, ())
            changes: list[ChangeText] = [remove_server(ground.place, each.name) for each in removals]
            if reasons or ground.there is None:
                changes.append(put_server(ground.place, spec.name, _entry(spec, ground)))
            change = await self._desk.edit(
                ground.place,
                together(iter(changes)),
                dry_run=dry_run,
                purpose=_purpose(ground, asked.agent),
                secret=spec.type == "http",
            )
        except BaseException:
            if token is not None:
                with anyio.CancelScope(shield=True):
                    await self._tokens.revoke(token)
            raise
        return Connected(ground.row, ground.installed, spec.name, spec.type, asked.agent, change, reasons, moved)

    async def link(self, asked: Asked, *, dry_run: bool = False) -> DeepLink:
        """A link that has a tool install this crib by itself, with a token of its own, which `undo` ends.

        Raises `client.unknown`, and `config.unsupported` for a tool without such links.
        """
        ground = await self._ground(asked)
        if ground.row.name not in LINKED:
            raise InvalidRequest("config.unsupported", f"{ground.row.title} has no links that install a server.")
        spec, _, _ = await self._wanted(asked, ground, dry_run=dry_run)
        if spec.url is None:
            raise InvalidRequest(
                "config.unsupported", "This crib has no address that lasts.", "Start `toolcrib serve`."
            )
        link = None if dry_run else deep_link(ground.row.name, spec)
        token = _token_name(ground.row, asked.agent)
        return DeepLink(ground.row, asked.agent, spec.name, spec.url, tuple(spec.headers), token, link)

    async def undo(self, asked: Asked, *, dry_run: bool = False) -> Disconnected:
        """Bring a tool's file back to what it was before it was connected, and end the token.

        If somebody changed the file since, only the entry goes. Raises `client.not_connected`.
        """
        ground = await self._ground(asked)
        token = _token_name(ground.row, asked.agent)
        has_token = asked.scope == "user" and self._tokens.named(token) is not None
        change, exact = await self._take_back(ground, asked.agent, dry_run=dry_run)
        if change is None and not has_token:
            raise NotFound("client.not_connected", f"{ground.row.title} is not connected to this crib.")
        if has_token and not dry_run:
            await self._tokens.revoke(token)
        return Disconnected(ground.row, asked.agent, change, exact, token if has_token else None)

    async def _ground(self, asked: Asked) -> _Ground:
        row = connectable(asked.client)
        view = await self._desk.view(asked.cwd)

        def look() -> _Ground:
            place = place_for(row, view, asked.scope)
            fitting = (each for each in entries_of_crib(view, place) if each.says.agent == asked.agent)
            return _Ground(row, view, place, is_installed(row, view, self._reach.path), next(fitting, None))

        return await anyio.to_thread.run_sync(look)

    def _state(self, row: Connectable, view: View) -> ClientState:
        place = place_for(row, view, "user")
        found = [
            Connection(
                each.read.name,
                each.read.spec.type if each.read.spec is not None else "stdio",
                each.read.source.file,
                each.read.source.line,
                each.says.agent,
                tuple(self._faults(row, each)),
            )
            for file in places_of(row, view)
            for each in entries_of_crib(view, file)
        ]
        others = len(entries_at(view, place)) - len(entries_of_crib(view, place))
        over = "http" if takes_http(row.name) and self._reach.address() is not None else "stdio"
        installed = is_installed(row, view, self._reach.path)
        return ClientState(row, installed, str(place.file), over, tuple(found), others)

    async def _wanted(
        self, asked: Asked, ground: _Ground, *, dry_run: bool
    ) -> tuple[ServerSpec, tuple[str, ...], str | None]:
        """The definition that should stand there, what is wrong with the one that does, and the token made for it."""
        there, address = ground.there, self._reach.address()
        name = there.read.name if there is not None else NAME if asked.agent is None else f"{NAME}-{asked.agent}"
        if there is None and name in {read.name for read in entries_at(ground.view, ground.place)}:
            message = f'{ground.place.file} has another server named "{name}".'
            raise InvalidRequest("server.exists", message, "Rename or remove it there first.")
        reasons = (*self._faults(ground.row, there),) if there is not None else ()
        if asked.scope == "project" or asked.stdio or address is None or not takes_http(ground.row.name):
            spec = stdio_spec(name, self._reach.command, home=self._reach.home, agent=asked.agent)
            return spec, (*reasons, *_moved_to("stdio", there)), None
        url = _url(address, asked.agent)
        secret = there.says.secret if there is not None else None
        if secret is not None and self._is_valid(ground.row, there):
            return http_spec(name, url, secret), (*reasons, *_moved_to("http", there)), None
        reasons = (*reasons, *_moved_to("http", there))
        if dry_run:
            return http_spec(name, url, _NO_SECRET), reasons, None
        token = _token_name(ground.row, asked.agent)
        if self._tokens.named(token) is not None:
            await self._tokens.revoke(token)
        _, secret = await self._tokens.create(token, agent=asked.agent)
        return http_spec(name, url, secret), reasons, token

    def _faults(self, row: Connectable, there: Written) -> Iterator[str]:
        """What keeps an entry from reaching this crib."""
        says, spec, address = there.says, there.read.spec, self._reach.address()
        if spec is not None and not spec.enabled:
            yield "it is switched off"
        if says.url is not None:
            wanted = _url(address, says.agent) if address is not None else None
            if wanted is not None and says.url.rstrip("/") != wanted:
                yield f"it points to {says.url}, and the crib is at {wanted}"
            if not self._is_valid(row, there):
                yield "its token is not valid"
            return
        if not runs(says.command or "", self._reach.path):
            yield f"it starts {says.command}, which is not there"
        if says.home is None and self._reach.home is not None:
            yield f"it does not name the home {self._reach.home}"
        elif says.home is not None and os.path.realpath(says.home) != str(self._reach.crib):
            yield f"it starts the crib of {says.home}"

    def _is_valid(self, row: Connectable, there: Written | None) -> bool:
        if there is None or there.says.secret is None:
            return False
        token = self._tokens.named(_token_name(row, there.says.agent))
        digest = hashlib.sha256(there.says.secret.encode()).digest()
        return token is not None and token.agent == there.says.agent and hmac.compare_digest(token.digest, digest)

    async def _take_back(self, ground: _Ground, agent: str | None, *, dry_run: bool) -> tuple[Edit | None, bool]:
        place, purpose = ground.place, _purpose(ground, agent)
        try:
            # Where somebody else changed the file in between, the way back ends at an earlier entry of ours.
            left = [each.says for each in cribs_among(await self._desk.before(place, purpose))]
            if not any(says.agent == agent and (says.secret or "").startswith(PREFIX) for says in left):
                return await self._desk.undo(place.file, purpose=purpose, dry_run=dry_run), True
        except NotFound as error:
            if error.code != "config.nothing_to_undo":
                raise
        if ground.there is None:
            return None, False
        return await self._desk.edit(place, remove_server(place, ground.there.read.name), dry_run=dry_run), False

    async def _move(self, ground: _Ground, *, dry_run: bool) -> tuple[Transfer, tuple[ReadEntry, ...]]:
        """Take over what else stands in a tool's file: into our own, and the entries that may go from there."""
        own = own_place(self._reach.crib)
        cribs = {each.read.name for each in entries_of_crib(ground.view, ground.place)}
        entries = [read for read in entries_at(ground.view, ground.place) if read.name not in cribs]
        told: list[Moved] = []
        removals: list[ReadEntry] = []
        for read in entries:
            moved = self._taken(ground.view, read, own)
            if moved is None:
                continue
            told.append(moved)
            if moved.reason is None:
                removals.append(read)
        added = additions(own, [each for each in told if each.entry])
        edit = await self._desk.edit(own, added, dry_run=dry_run) if added is not None else None
        return Transfer(tuple(told), edit), tuple(removals)

    def _taken(self, view: View, read: ReadEntry, own: Place) -> Moved | None:
        """What becomes of one entry; None for one that the owner took off the list."""
        server = next((each for each in view.discovery.servers if _is_of(each, read)), None)
        if server is None:
            return None
        if any(source.file == str(own.file) for source in server.sources):
            return Moved(server, server.alias)  # it is here already: it only has to go there
        told = imports(view, own, self._reach.environment, [server.alias])
        moved = next(each for each in told if each.server is server)
        if moved.reason is None and moved.problems:
            return replace(moved, reason=moved.problems[0].message, entry={})
        return moved


def _is_of(server: ServerEntry, read: ReadEntry) -> bool:
    return read.source in server.sources and read.name in (server.name, *server.same_as)


def _entry(spec: ServerSpec, ground: _Ground) -> JsonObject:
    """The entry for a tool's file; what its owner added to an entry of the same kind stays."""
    written = entry_for(spec, ground.row.name).entry
    there = ground.there
    if there is None or there.read.spec is None or there.read.spec.type != spec.type:
        return written
    switch = ground.place.dialect.switch
    return {key: value for key, value in there.read.raw.items() if key != switch} | written


def _moved_to(wanted: ServerType, there: Written | None) -> tuple[str, ...]:
    if there is None or there.read.spec is None or there.read.spec.type == wanted:
        return ()
    return ("it reaches the crib over stdio" if wanted == "http" else "it reaches the crib over HTTP",)


def _url(address: str, agent: str | None) -> str:
    return f"{address}/mcp" if agent is None else f"{address}/mcp/agents/{quote(agent, safe='')}"


def _token_name(row: Connectable, agent: str | None) -> str:
    return f"connect-{row.name}" if agent is None else f"connect-{row.name}-{agent}"


def _purpose(ground: _Ground, agent: str | None) -> str:
    return f"connect {ground.row.name}" if agent is None else f"connect {ground.row.name} {agent}"


def _missing(ground: _Ground) -> NotFound:
    row, file = ground.row, ground.place.file
    programs = f", and no program {' or '.join(row.programs)} is on the path" if row.programs else ""
    message = f"{row.title} was not found on this machine: there is no {file.parent}{programs}."
    hint = f"Start it once, or add `--anyway` to write {file} all the same."
    return NotFound("client.missing", message, hint)
