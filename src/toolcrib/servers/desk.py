"""The desk: what servers there are for somebody in a directory, and every change of a definition.

Questions are answered from a `View`, changes go to one file each and are told as an `Edit`; whatever differs after that
is published. Blocking file work runs in threads, one piece at a time. Above: `host` constructs it, REST asks it. It
must never start, resolve or contact anything: a definition is a text here.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from toolcrib.config.edit.entries import ChangeText
from toolcrib.config.edit.undo import last_changed
from toolcrib.config.edit.write import Writing
from toolcrib.config.own import add_own, check_entry, own_place, own_project_place, replace_own
from toolcrib.config.readers.read import Place, ReadEntry
from toolcrib.config.resolve import Origin, origins
from toolcrib.config.trust import TrustBook, TrustQuestion, change_trust, trust_question
from toolcrib.errors import Conflict, InvalidRequest, NotFound
from toolcrib.home import Home
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Discovery, ServerEntry, Source
from toolcrib.servers import edits, transfer
from toolcrib.servers.actions import REMOVAL, Action, switching
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.news import Publish, tell
from toolcrib.servers.unmask import unmasked
from toolcrib.servers.view import View, Views

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often `follow` looks whether a file changed.

A look costs a few milliseconds and sees everything: new files, targets of links, matches of patterns, directories that
were not there. Listening to directories would need it beside all the same, and a new start whenever somebody asks from
elsewhere.
"""

WriteScope = Literal["user", "project"]
OnView = Callable[[Path | None, Discovery | None], None]
"""Hears what there is in a directory (by its real path) when that is new; None when nobody asks from there any more."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Details:
    """One server in full: where each value comes from, what trusting it means, and its version for `If-Match`."""

    server: ServerEntry
    origins: tuple[Origin, ...]
    question: TrustQuestion | None
    version: str

    def to_json(self) -> JsonObject:
        """For the API and the CLI."""
        values = [{"key": each.key, "value": each.shown, "origin": each.origin} for each in self.origins]
        question = self.question.to_json() if self.question is not None else None
        return self.server.to_json() | {"origins": values, "question": question}


@dataclass(frozen=True, slots=True)
class _Ground:
    """A place that can be trusted as a whole: a project's directory, else a file of the person."""

    path: Path
    is_project: bool
    view: View


class Servers:
    """All that is known and can be changed about server definitions. `cwd` None means: outside of any project."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        user_home: Path,
        publish: Publish,
        on_view: OnView = lambda _, __: None,
    ) -> None:
        self._home = home
        self._environment = environment
        self._writing = Writing(user_home, home.backups, home.root)
        self._views = Views(home, environment, user_home)
        self._publish = publish
        self._on_view = on_view
        self._one_at_a_time = anyio.Lock()

    async def list(self, cwd: Path | None = None) -> Discovery:
        """Every server that somebody in `cwd` has, in all files of all tools."""
        return (await self.view(cwd)).discovery

    async def find(self, name: str, cwd: Path | None = None, *, file: str | None = None) -> ServerEntry:
        """One server, by alias or name, the one in `file` first; also one that was taken off the list."""
        view = await self.view(cwd)
        there = (each for each in view.discovery.servers if file in [source.file for source in each.sources])
        return next((each for each in there if each.name == name), None) or _find(view, name, hidden=True)

    async def get(self, name: str, cwd: Path | None = None) -> Details:
        """One server in full, by alias or name. Raises `server.unknown` with the nearest names."""
        view = await self.view(cwd)
        server = _find(view, name)
        return await self._in_thread(lambda: self._details(view, server))

    async def follow(self) -> None:
        """Notice what others change in files, and publish it, for as long as this runs.

        Every directory that somebody asked from is looked at; before anybody did, what belongs to no project.
        """
        told = set[Path | None]()
        while True:
            await anyio.sleep(LOOK_SECONDS)
            for cwd in self._views.kept() or (None,):
                try:
                    await self.view(cwd)
                except Exception:  # boundary: one directory that cannot be looked at must not end the crib
                    if cwd not in told:
                        logger.exception("The servers of %s cannot be looked at.", cwd or "the person")
                    told.add(cwd)

    async def add(
        self,
        name: str,
        entry: JsonObject,
        *,
        scope: WriteScope = "user",
        cwd: Path | None = None,
        dry_run: bool = False,
    ) -> Edit:
        """Add a server to our file, or to the project's. The owner says so, which is trust."""
        view = await self.view(cwd)
        place = self._own(view, scope)
        done = await self.edit(place, add_own(place, name, entry), dry_run=dry_run)
        if place.project is not None and not dry_run:
            source = Source("toolcrib", "project", str(place.file), None, str(place.project), str(place.directory))
            spec = replace(check_entry(name, entry), source=source)
            await self._change_trust(lambda book: book.with_definitions([spec]))
        return done

    async def replace(
        self,
        name: str,
        entry: JsonObject,
        cwd: Path | None = None,
        *,
        version: str | None = None,
        dry_run: bool = False,
    ) -> Edit:
        """Replace a server of ours; values that are still masked stay what they were."""
        view = await self.view(cwd)
        server = _find(view, name)
        self._check_version(view, server, version)
        written = view.written(server)[0]
        if written.place.format != "toolcrib":
            message = f'Server "{server.name}" stands in {written.place.file} of {written.place.dialect.title}.'
            raise Conflict("server.foreign", message)
        whole = unmasked(entry, server.definition, written.raw)
        change = replace_own(written.place, server.name, whole)
        return await self.edit(written.place, change, dry_run=dry_run, expected=view.version(written.place.file))

    async def remove(
        self,
        name: str,
        cwd: Path | None = None,
        *,
        in_client: bool = False,
        dry_run: bool = False,
        version: str | None = None,
    ) -> Edit:
        """Take a server off the list: out of our file, or hidden by a word in it; `in_client` edits the other file."""
        view = await self.view(cwd)
        server = _find(view, name)
        self._check_version(view, server, version)
        return await self._change_server(view, server, REMOVAL, in_client=in_client, dry_run=dry_run)

    async def switch(
        self, name: str, enabled: bool, cwd: Path | None = None, *, in_client: bool = False, dry_run: bool = False
    ) -> Edit:
        """Turn a server on or off, likewise. Turning one on that was removed from the list brings it back."""
        view = await self.view(cwd)
        server = _find(view, name, hidden=enabled)
        return await self._change_server(view, server, switching(enabled), in_client=in_client, dry_run=dry_run)

    async def trust(self, name: str, cwd: Path | None = None, *, shown: str | None = None) -> ServerEntry:
        """Agree to a definition as it is now; `shown` is the digest of the one that the person looked at."""
        server = _find(await self.view(cwd), name)
        spec = server.spec
        if spec is None:
            raise InvalidRequest("server.invalid", server.problems[0].message)
        if shown is not None and shown != server.digest:
            raise _changed_since(server)
        await self._change_trust(lambda book: book.with_definitions([spec]))
        return _find(await self.view(cwd), server.alias)

    async def untrust(self, name: str, cwd: Path | None = None) -> ServerEntry:
        """Take an agreement back. The owner's own file needs none, so there it cannot be."""
        view = await self.view(cwd)
        server = _find(view, name)
        if server.source.client == "toolcrib" and server.source.project is None:
            message = f'Server "{server.name}" is in Toolcrib\'s own file, where the owner put it.'
            hint = f"Run `toolcrib mcp disable {server.alias}`, or remove it."
            raise InvalidRequest("config.unsupported", message, hint)
        specs = [entry.spec for entry in view.written(server) if entry.spec is not None]
        await self._change_trust(lambda book: book.without_definitions(specs))
        return _find(await self.view(cwd), server.alias)

    async def at(self, path: Path) -> tuple[Details, ...]:
        """The servers that a project's directory, or a file of the person, defines."""
        ground = await self._ground(path)
        servers = _defined_at(ground)
        return await self._in_thread(lambda: tuple(self._details(ground.view, server) for server in servers))

    async def trust_path(self, path: Path, *, shown: Collection[str] | None = None) -> None:
        """Agree to all servers of a project as they are now, or to a file of the person for good."""
        ground = await self._ground(path)
        servers = _defined_at(ground)
        for server in servers:
            if shown is not None and server.digest not in shown:
                raise _changed_since(server)
        specs = [server.spec for server in servers if server.spec is not None]
        await self._change_trust(
            lambda book: book.with_definitions(specs) if ground.is_project else book.with_file(str(ground.path))
        )

    async def untrust_path(self, path: Path) -> None:
        """Take back everything that was agreed to of a project or a file."""
        ground = await self._ground(path)
        entries = [entry for server in _defined_at(ground) for entry in ground.view.written(server)]
        specs = [entry.spec for entry in entries if entry.spec is not None]
        place = ground.view.discovery.project if ground.is_project else str(ground.path)
        await self._change_trust(lambda book: book.without_definitions(specs).without_place(place or ""))

    async def import_(
        self, names: Collection[str] = (), cwd: Path | None = None, *, dry_run: bool = False
    ) -> transfer.Transfer:
        """Take servers of other tools over into our file, all or the named ones."""
        view = await self.view(cwd)
        for name in names:
            _find(view, name)
        own = self._own(view, "user")
        moved = await self._in_thread(lambda: transfer.imports(view, own, self._environment, names))
        return await self._move(own, moved, dry_run=dry_run)

    async def export(self, client: str, names: Collection[str] = (), cwd: Path | None = None) -> transfer.Export:
        """Our servers, or the named ones, as a file of that client."""
        servers = _chosen(await self.view(cwd), names)
        return await self._in_thread(lambda: transfer.exported(servers, client))

    async def export_to(
        self,
        client: str,
        names: Collection[str] = (),
        cwd: Path | None = None,
        *,
        scope: WriteScope = "user",
        dry_run: bool = False,
    ) -> transfer.Transfer:
        """Write our servers, or the named ones, into that client's file."""
        view = await self.view(cwd)
        place = transfer.client_place(view, client, scope)
        moved = transfer.exports(view, _chosen(view, names), client, place)
        return await self._move(place, moved, dry_run=dry_run)

    async def undo(self, file: Path | None = None, *, purpose: str | None = None, dry_run: bool = False) -> Edit:
        """Take back the last change that was made here to this file, or to any; or all the last ones for a purpose."""
        writing = replace(self._writing, purpose=purpose)
        done = await self._in_thread(
            lambda: edits.undo(file or last_changed(self._home.backups), writing, dry_run=dry_run)
        )
        await self._look_again()
        return done

    async def before(self, place: Place, purpose: str) -> tuple[ReadEntry, ...]:
        """The entries that a file would have again if the changes for this purpose were taken back."""
        writing = replace(self._writing, purpose=purpose)
        return await self._in_thread(lambda: edits.entries_before(place, writing))

    async def recognise(self, text: str) -> tuple[tuple[transfer.Proposal, ...], tuple[Problem, ...]]:
        """The servers in a text from the clipboard; nothing is added."""
        return await self._in_thread(lambda: transfer.proposals(text, self._environment))

    async def view(self, cwd: Path | None) -> View:
        """What there is now; what differs from the last time is published."""
        before, view = await self._in_thread(lambda: (self._views.last(cwd), self._views.of(cwd)))
        if before is not view:
            if before is not None:
                tell(self._publish, before, view)
            for gone in self._views.dropped():
                self._on_view(gone, None)
            self._on_view(view.cwd, view.discovery)
        return view

    async def _ground(self, path: Path) -> _Ground:
        is_project = await self._in_thread(path.is_dir)
        view = await self.view(path if is_project else None)
        return _Ground(_normal(path), is_project, view)

    async def _look_again(self) -> None:
        for cwd in self._views.kept():
            await self.view(cwd)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        async with self._one_at_a_time:
            return await anyio.to_thread.run_sync(work)

    async def edit(
        self,
        place: Place,
        change: ChangeText,
        *,
        dry_run: bool = False,
        expected: str | None = None,
        purpose: str | None = None,
        secret: bool = False,
    ) -> Edit:
        """Change one file, for a purpose that an undo can be bound to; `secret` keeps others from reading it."""
        writing = replace(self._writing, purpose=purpose, secret=secret)
        done = await self._in_thread(lambda: edits.edit(place, change, writing, dry_run=dry_run, expected=expected))
        await self._look_again()
        return done

    async def _change_trust(self, change: Callable[[TrustBook], TrustBook]) -> None:
        await self._in_thread(lambda: change_trust(self._home.trust_file, change))
        await self._look_again()

    async def _change_server(
        self, view: View, server: ServerEntry, action: Action, *, in_client: bool, dry_run: bool
    ) -> Edit:
        """One file is changed: the one the server stands in if it is ours or `in_client`, else our own."""
        written = view.written(server)
        own = self._own(view, "user")
        first = written[0]
        if in_client and not first.place.dialect.writable:
            message = f"{first.place.file} is not a file that Toolcrib can edit."
            raise InvalidRequest("config.unsupported", message)
        if in_client or (first.place.format == "toolcrib" and first.place.file != own.file):
            return await self.edit(first.place, action.direct(first), dry_run=dry_run)
        changes = (
            action.direct(entry) if entry.place.file == own.file else action.overlay(own, entry) for entry in written
        )
        return await self.edit(own, together(changes), dry_run=dry_run)

    async def _move(self, place: Place, moved: tuple[transfer.Moved, ...], *, dry_run: bool) -> transfer.Transfer:
        change = transfer.additions(place, moved)
        done = await self.edit(place, change, dry_run=dry_run) if change is not None else None
        return transfer.Transfer(moved, done)

    def _own(self, view: View, scope: WriteScope) -> Place:
        if scope == "user":
            return own_place(self._home.root)
        if not view.around.directories:
            raise InvalidRequest("request.invalid", "A server of a project needs `cwd`, a directory in that project.")
        return own_project_place(view.around.directories[-1])

    def _details(self, view: View, server: ServerEntry) -> Details:
        spec = server.spec
        return Details(
            server,
            origins(spec, self._environment) if spec is not None else (),
            trust_question(spec, self._environment) if spec is not None else None,
            self._version(view, server),
        )

    def _version(self, view: View, server: ServerEntry) -> str:
        """Changes with the file a server stands in and with our own, which may speak about it."""
        files = (Path(server.source.file), self._home.mcp_json)
        return digest([server.alias, *(view.version(file) for file in files)])[:32]

    def _check_version(self, view: View, server: ServerEntry, version: str | None) -> None:
        if version is not None and version != self._version(view, server):
            raise Conflict("request.stale", f'Server "{server.name}" was changed since it was read.')


def _find(view: View, name: str, *, hidden: bool = False) -> ServerEntry:
    found = view.discovery.find(name)
    if found is None and hidden:
        found = next((each for each in view.discovery.hidden if name in (each.alias, each.name)), None)
    if found is not None:
        return found
    known = sorted({word for each in view.discovery.servers for word in (each.name, each.alias)})
    near = get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else None
    raise NotFound("server.unknown", f'Server "{name}" not found.', hint)


def _chosen(view: View, names: Collection[str]) -> tuple[ServerEntry, ...]:
    """The named servers, else all of ours that are in force."""
    if names:
        return tuple(_find(view, name) for name in names)
    own = (server for server in view.discovery.servers if server.source.client == "toolcrib")
    return tuple(server for server in own if server.shadowed_by is None)


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _defined_at(ground: _Ground) -> tuple[ServerEntry, ...]:
    view, path = ground.view, ground.path
    usable = [server for server in view.discovery.servers if server.spec is not None]
    if ground.is_project:
        return tuple(server for server in usable if server.source.project == view.discovery.project)
    if path not in {place.file for place in view.places}:
        message = f"{path} is neither a directory nor a file in which a tool of yours keeps servers."
        raise NotFound("server.unknown", message)
    return tuple(server for server in usable if server.source.file == str(path))


def _changed_since(server: ServerEntry) -> Conflict:
    return Conflict("config.changed", f'Server "{server.name}" was changed since it was shown.')
