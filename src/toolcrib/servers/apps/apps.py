"""Connects apps to this crib by writing an entry into their files, and reports which apps are connected.

An app that can send headers gets the crib's URL and a token of its own. Other apps get a command that starts a stdio
front, which acts as their token by its name. Files of projects, which other people may read, name no token. The same
change can move the app's other servers behind the crib.

Must never write a secret into a project's file, and never leave a token that no file or link uses.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerEntry, ServerSpec, ServerType
from toolcrib.model.tokens import PREFIX, Level, Token
from toolcrib.servers.apps.connectable import (
    CONNECTABLE,
    Connectable,
    WrittenEntry,
    connectable,
    cribs_among,
    entries_at,
    entries_of_crib,
    is_installed,
    place_for,
    places_of,
    programs_on,
    runs,
)
from toolcrib.servers.apps.connections import (
    OFFERS,
    AppConnected,
    AppConnection,
    AppConnectRequest,
    AppDisconnected,
    AppState,
    OfferedTools,
)
from toolcrib.servers.apps.deep_links import LINKED, DeepLink, deep_link
from toolcrib.servers.crib_entry import NAME, CribEntry, http_spec, stdio_spec
from toolcrib.servers.edit.entries import ChangeText, put_server, remove_server
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.export import entry_for, takes_http
from toolcrib.servers.own_file import own_place
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.read import ConfigFile, ReadEntry
from toolcrib.servers.servers import Servers
from toolcrib.servers.transfer import Moved, Transfer, additions, imports

_NO_SECRET = "tcb_new"
"""Placeholder in a dry run for a secret that does not exist yet; masked like any other secret."""


class TokenBook(Protocol):
    """The part of the token store that is needed here."""

    def named(self, name: str) -> Token | None:
        """Return the token of this name if it is in use."""
        ...

    async def create(self, name: str, *, agent: str | None = None, level: Level | None = None) -> tuple[Token, str]:
        """Create a token and return it with its secret."""
        ...

    async def revoke(self, name: str) -> None:
        """Revoke a token immediately."""
        ...


@dataclass(frozen=True, slots=True)
class AppDeps:
    """How apps reach this crib. `address` returns its permanent URL, or None while it is unknown.

    `home` is None for the default home.
    """

    crib: Path
    address: Callable[[], str | None]
    command: tuple[str, ...]
    home: str | None
    environment: Mapping[str, str]

    @property
    def path(self) -> str:
        """The search path for programs."""
        return self.environment.get("PATH", os.defpath)


@dataclass(frozen=True, slots=True)
class _Context:
    """The state before a change: the app, its file, and the crib's existing entry."""

    row: Connectable
    view: ProjectView
    place: ConfigFile
    installed: bool
    there: WrittenEntry | None
    programs: frozenset[str]


class Apps:
    """The user's apps and their connections to one crib."""

    def __init__(self, desk: Servers, tokens: TokenBook, deps: AppDeps) -> None:
        self._desk = desk
        self._tokens = tokens
        self._deps = deps

    async def list(self, cwd: Path | None = None, programs: frozenset[str] | None = None) -> tuple[AppState, ...]:
        """Return every app that can be connected, installed or not. `programs` is as in `AppConnectRequest`."""
        view = await self._desk.view(cwd)

        def look() -> tuple[AppState, ...]:
            found = self._programs(programs)
            return tuple(self._state(row, view, found) for row in CONNECTABLE)

        return await anyio.to_thread.run_sync(look)

    async def connect(
        self, asked: AppConnectRequest, *, move: bool = False, anyway: bool = False, dry_run: bool = False
    ) -> AppConnected:
        """Write this crib into an app's file, or repair the existing entry. `move` also takes over the app's other
        servers.

        Raises `client.unknown`, and `client.missing` for an app that is not installed unless `anyway` is set.
        """
        context = await self._context(asked)
        if not (context.installed or anyway or dry_run):
            raise _missing(context)
        spec, reasons, token = await self._plan_definition(asked, context, dry_run=dry_run)
        try:
            moved, removals = await self._move(context, dry_run=dry_run) if move else (None, ())
            changes: list[ChangeText] = [remove_server(context.place, each.name) for each in removals]
            if reasons or context.there is None:
                changes.append(put_server(context.place, spec.name, _entry(spec, context)))
            change = await self._desk.edit(
                context.place,
                together(iter(changes)),
                dry_run=dry_run,
                purpose=_purpose(context, asked.agent),
                secret=spec.type == "http",
            )
        except BaseException:
            if token is not None:
                with anyio.CancelScope(shield=True):
                    await self._tokens.revoke(token)
            raise
        level = self._level(asked, context) if asked.scope == "user" else None
        return AppConnected(
            context.row, context.installed, spec.name, spec.type, asked.agent, change, reasons, moved, level,
            _choose_listing(asked, context.there) if spec.type == "http" else "all", "tools=" in (spec.url or ""),
        )  # fmt: skip

    async def link(self, asked: AppConnectRequest, *, dry_run: bool = False) -> DeepLink:
        """Return a link that makes an app install this crib, with a token of its own, which `undo` revokes.

        Raises `client.unknown`, and `config.unsupported` for an app without such links.
        """
        context = await self._context(asked)
        if context.row.name not in LINKED:
            raise InvalidRequest("config.unsupported", f"{context.row.title} has no links that install a server.")
        if self._deps.address() is None:
            raise InvalidRequest(
                "config.unsupported", "This crib has no address that lasts.", "Start `toolcrib serve`."
            )
        spec, _, _ = await self._plan_definition(replace(asked, scope="user", stdio=False), context, dry_run=dry_run)
        assert spec.url is not None
        link = None if dry_run else deep_link(context.row.name, spec)
        token = token_name(context.row, asked.agent)
        return DeepLink(context.row, asked.agent, spec.name, spec.url, tuple(spec.headers), token, link)

    async def undo(self, asked: AppConnectRequest, *, dry_run: bool = False) -> AppDisconnected:
        """Restore an app's file to its state before it was connected, and revoke the token.

        If the file was changed since, only the crib's entry is removed. In a project's file, a request without an agent
        means the entry without one, else the first. Raises `client.not_connected`.
        """
        if asked.scope == "project" and asked.agent is None:
            asked = replace(asked, agent=await self._first_agent(asked))
        context = await self._context(asked)
        token = token_name(context.row, asked.agent)
        has_token = asked.scope == "user" and self._tokens.named(token) is not None
        change, exact = await self._take_back(context, asked.agent, dry_run=dry_run)
        if change is None and not has_token:
            raise NotFound("client.not_connected", f"{context.row.title} is not connected to this crib.")
        if has_token and not dry_run:
            await self._tokens.revoke(token)
        return AppDisconnected(context.row, asked.agent, change, exact, token if has_token else None)

    async def _first_agent(self, asked: AppConnectRequest) -> str | None:
        row, view = connectable(asked.client), await self._desk.view(asked.cwd)
        place = place_for(row, view, asked.scope)
        agents = [each.says.agent for each in await anyio.to_thread.run_sync(entries_of_crib, view, place)]
        return None if None in agents else next(iter(agents), None)

    async def _context(self, asked: AppConnectRequest) -> _Context:
        row = connectable(asked.client)
        view = await self._desk.view(asked.cwd)

        def look() -> _Context:
            place = place_for(row, view, asked.scope)
            fitting = (each for each in entries_of_crib(view, place) if each.says.agent == asked.agent)
            programs = self._programs(asked.programs)
            return _Context(row, view, place, is_installed(row, view, programs), next(fitting, None), programs)

        return await anyio.to_thread.run_sync(look)

    def _programs(self, found: frozenset[str] | None) -> frozenset[str]:
        return found if found is not None else programs_on(self._deps.path)

    def _state(self, row: Connectable, view: ProjectView, programs: frozenset[str]) -> AppState:
        place = place_for(row, view, "user")
        found = [
            AppConnection(
                each.read.name,
                each.read.spec.type if each.read.spec is not None else "stdio",
                each.read.source.file,
                each.read.source.line,
                each.says.agent,
                tuple(self._faults(row, each, programs)),
                each.says.url is not None or each.says.token is not None,
                _named_listing(each.says),
                "project" if file.scope == "project" else "user",
            )
            for file in places_of(row, view)
            for each in entries_of_crib(view, file)
        ]
        others = len(entries_at(view, place)) - len(entries_of_crib(view, place))
        over = "http" if takes_http(row.name) and self._deps.address() is not None else "stdio"
        installed = is_installed(row, view, programs)
        return AppState(row, installed, str(place.file), over, tuple(found), others)

    async def _plan_definition(
        self, asked: AppConnectRequest, context: _Context, *, dry_run: bool
    ) -> tuple[ServerSpec, tuple[str, ...], str | None]:
        """Return the desired definition, the faults of the existing entry, and the name of a token created for it."""
        there, address = context.there, self._deps.address()
        name = there.read.name if there is not None else NAME if asked.agent is None else f"{NAME}-{asked.agent}"
        if there is None and name in {read.name for read in entries_at(context.view, context.place)}:
            message = f'{context.place.file} has another server named "{name}".'
            raise InvalidRequest("server.exists", message, "Rename or remove it there first.")
        reasons = (*self._faults(context.row, there, context.programs),) if there is not None else ()
        over: ServerType = "http" if address is not None and takes_http(context.row.name) else "stdio"
        over = "stdio" if asked.scope == "project" or asked.stdio else over
        tools = _choose_listing(asked, there)
        if over == "http" and there is not None and there.says.url is not None and _changes_listing(asked, there):
            reasons = (*reasons, f"it lists {_LISTED[tools]}")
        reasons = (*reasons, *_moved_to(over, there))

        def spec(secret: str | None) -> ServerSpec:
            if over == "http" and address is not None and secret is not None:
                return http_spec(name, f"{_url(address, asked.agent)}{_query(asked, tools, there)}", secret)
            token = token_name(context.row, asked.agent) if asked.scope == "user" else None
            return stdio_spec(name, self._deps.command, home=self._deps.home, agent=asked.agent, token=token)

        if asked.scope == "project":
            return spec(None), reasons, None
        is_same = there is not None and not _moved_to(over, there) and self._is_valid(context.row, there)
        if is_same and self._has_level(asked, context):
            return spec(there.says.secret if there is not None else None), reasons, None
        if there is not None and not self._has_level(asked, context):
            reasons = (*reasons, f"its level becomes {asked.level}")
        if dry_run:
            return spec(_NO_SECRET), reasons, None
        token = token_name(context.row, asked.agent)
        if self._tokens.named(token) is not None:
            await self._tokens.revoke(token)
        _, secret = await self._tokens.create(token, agent=asked.agent, level=asked.level)
        return spec(secret), reasons, token

    def _level(self, asked: AppConnectRequest, context: _Context) -> Level | None:
        token = self._tokens.named(token_name(context.row, asked.agent))
        return asked.level or (token.level if token is not None else None)

    def _has_level(self, asked: AppConnectRequest, context: _Context) -> bool:
        """Return whether the app's token has the requested level, if one is requested."""
        token = self._tokens.named(token_name(context.row, asked.agent))
        return asked.level is None or (token is not None and token.level == asked.level)

    def _faults(self, row: Connectable, there: WrittenEntry, programs: frozenset[str]) -> Iterator[str]:
        """Yield the reasons why an entry does not reach this crib."""
        says, spec, address = there.says, there.read.spec, self._deps.address()
        if spec is not None and not spec.enabled:
            yield "it is switched off"
        if says.url is not None:
            wanted = _url(address, says.agent) if address is not None else None
            if wanted is not None and says.url.partition("?")[0].rstrip("/") != wanted:
                yield f"it points to {says.url}, and the crib is at {wanted}"
            if not self._is_valid(row, there):
                yield "its token is not valid"
            return
        if there.read.source.scope == "user" and says.token is None:
            yield "it acts as you and has no access level"
        elif says.token is not None and not self._is_valid(row, there):
            yield "its token is not valid"
        if not runs(says.command or "", programs):
            yield f"it starts {says.command}, which is not there"
        if says.home is None and self._deps.home is not None:
            yield f"it does not name the home {self._deps.home}"
        elif says.home is not None and os.path.realpath(says.home) != str(self._deps.crib):
            yield f"it starts the crib of {says.home}"

    def _is_valid(self, row: Connectable, there: WrittenEntry | None) -> bool:
        if there is None:
            return False
        name = token_name(row, there.says.agent)
        token = self._tokens.named(name)
        if there.says.secret is None:
            return token is not None and there.says.token == name and token.agent == there.says.agent
        digest = hashlib.sha256(there.says.secret.encode()).digest()
        return token is not None and token.agent == there.says.agent and hmac.compare_digest(token.digest, digest)

    async def _take_back(self, context: _Context, agent: str | None, *, dry_run: bool) -> tuple[Edit | None, bool]:
        place, purpose = context.place, _purpose(context, agent)
        try:
            # If another program changed the file in between, undo would restore an earlier entry of this crib.
            left = [each.says for each in cribs_among(await self._desk.before(place, purpose))]
            if not any(says.agent == agent and (says.secret or "").startswith(PREFIX) for says in left):
                return await self._desk.undo(place.file, purpose=purpose, dry_run=dry_run), True
        except NotFound as error:
            if error.code != "config.nothing_to_undo":
                raise
        if context.there is None:
            return None, False
        return await self._desk.edit(place, remove_server(place, context.there.read.name), dry_run=dry_run), False

    async def _move(self, context: _Context, *, dry_run: bool) -> tuple[Transfer, tuple[ReadEntry, ...]]:
        """Move the other servers of an app's file into our own file; return the transfer and the entries to remove."""
        own = own_place(self._deps.crib)
        cribs = {each.read.name for each in entries_of_crib(context.view, context.place)}
        entries = [read for read in entries_at(context.view, context.place) if read.name not in cribs]
        all_moved: list[Moved] = []
        removals: list[ReadEntry] = []
        for read in entries:
            moved = self._plan_move(context.view, read, own)
            if moved is None:
                continue
            all_moved.append(moved)
            if moved.reason is None:
                removals.append(read)
        added = additions(own, [each for each in all_moved if each.entry])
        edit = await self._desk.edit(own, added, dry_run=dry_run) if added is not None else None
        return Transfer(tuple(all_moved), edit), tuple(removals)

    def _plan_move(self, view: ProjectView, read: ReadEntry, own: ConfigFile) -> Moved | None:
        """Return what happens to one entry; None if the user removed the server from the list."""
        server = next((each for each in view.discovery.servers if _is_of(each, read)), None)
        if server is None:
            return None
        if any(source.file == str(own.file) for source in server.sources):
            return Moved(server, server.alias)  # already in our file: only removed from the app's
        imported = imports(view, own, self._deps.environment, [server.alias])
        moved = next(each for each in imported if each.server is server)
        if moved.reason is None and moved.problems:
            return replace(moved, reason=moved.problems[0].message, entry={})
        return moved


def _is_of(server: ServerEntry, read: ReadEntry) -> bool:
    return read.source in server.sources and read.name in (server.name, *server.same_as)


def _entry(spec: ServerSpec, context: _Context) -> JsonObject:
    """Return the entry for an app's file, keeping fields that its user added to an entry of the same type."""
    written = entry_for(spec, context.row.name).entry
    there = context.there
    if there is None or there.read.spec is None or there.read.spec.type != spec.type:
        return written
    switch = context.place.dialect.switch
    return {key: value for key, value in there.read.raw.items() if key != switch} | written


def _moved_to(wanted: ServerType, there: WrittenEntry | None) -> tuple[str, ...]:
    if there is None or there.read.spec is None or there.read.spec.type == wanted:
        return ()
    return ("it reaches the crib over stdio" if wanted == "http" else "it reaches the crib over HTTP",)


_LISTED = {"all": "all tools", "search": "tools to search with", "code": "tools to write programs with"}


def _choose_listing(asked: AppConnectRequest, there: WrittenEntry | None) -> OfferedTools:
    """Return how tools are listed: as asked for, else as the entry says, else as is best for a new one."""
    if asked.tools is not None or there is None or there.says.url is None:
        return asked.tools or asked.tools_if_new
    return _named_listing(there.says) or "all"


def _named_listing(says: CribEntry) -> OfferedTools | None:
    return next((each for each in OFFERS if each == says.tools), None)


def _changes_listing(asked: AppConnectRequest, there: WrittenEntry) -> bool:
    """Return whether the entry names another way to list tools. An agent may have its own, so `all` is named there."""
    default = "all" if asked.agent is None else None
    if asked.tools is None:
        return there.says.tools is not None and _named_listing(there.says) is None
    return (there.says.tools or default) != asked.tools


def _url(address: str, agent: str | None) -> str:
    return f"{address}/mcp" if agent is None else f"{address}/mcp/agents/{quote(agent, safe='')}"


def _query(asked: AppConnectRequest, tools: OfferedTools, there: WrittenEntry | None) -> str:
    """Return the query of the crib's address. Options that a user added to an existing entry are kept as written."""
    written = urlsplit(there.says.url or "").query if there is not None else ""
    if there is None or there.says.url is None or _changes_listing(asked, there):
        kept = [each for each in written.split("&") if each and not each.startswith("tools=")]
        is_named = tools != "all" or (asked.agent is not None and asked.tools == "all")
        written = "&".join([*kept, *([f"tools={tools}"] if is_named else [])])
    return f"?{written}" if written else ""


def token_name(row: Connectable, agent: str | None) -> str:
    """Return the name of the token that an app connects with."""
    return f"connect-{row.name}" if agent is None else f"connect-{row.name}-{agent}"


def _purpose(context: _Context, agent: str | None) -> str:
    return f"connect {context.row.name}" if agent is None else f"connect {context.row.name} {agent}"


def _missing(context: _Context) -> NotFound:
    row, file = context.row, context.place.file
    programs = f", and no program {' or '.join(row.programs)} is on the path" if row.programs else ""
    message = f"{row.title} was not found on this machine: there is no {file}{programs}."
    hint = f"Start it once, or add `--anyway` to write {file} all the same."
    return NotFound("client.missing", message, hint)
