"""The servers of a crib by name: lists them for a directory, and makes every change of a definition.

Lists come from a `ProjectView`. A change edits one file and returns an `Edit`; differences in the list are published
afterwards. Blocking file work runs in threads, one call at a time.

Must never start, resolve or contact anything: a definition is only text here.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread

from toolcrib.base.files.undo import last_changed
from toolcrib.base.files.write import WriteContext
from toolcrib.base.home import Home
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.masking.restore import restore_masked
from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.errors import Conflict, Denied, InvalidRequest
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.problems import Problem
from toolcrib.model.servers import DefinitionSource, Discovery, ServerEntry, ServerSpec
from toolcrib.servers import edits
from toolcrib.servers.actions import REMOVAL, Action, sandboxing, switching
from toolcrib.servers.change_events import Publish, tell
from toolcrib.servers.edit.entries import ChangeText
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.exposure import reveals_gravely
from toolcrib.servers.outside_edits import OutsideEdits
from toolcrib.servers.own_file import add_own, check_entry, own_place, own_project_place, replace_own
from toolcrib.servers.project_view import (
    ProjectView,
    ProjectViews,
    chosen_servers,
    find_server,
    server_after,
)
from toolcrib.servers.readers.read import ConfigFile, ReadEntry
from toolcrib.servers.resolve import ValueOrigin, origins
from toolcrib.servers.sandbox import SandboxChoice, changed_sandbox
from toolcrib.servers.trust import (
    TrustBook,
    TrustQuestion,
    change_trust,
    load_trust,
    trust_question,
)
from toolcrib.servers.trusted_locations import TrustedLocation, defined_at

if TYPE_CHECKING:
    from toolcrib.servers import dangers, transfer
else:
    transfer = lazy_module("toolcrib.servers.transfer")
    dangers = lazy_module("toolcrib.servers.dangers")

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often `follow` checks for changed files.

Polling takes a few milliseconds and notices everything: new files, link targets, pattern matches, new directories. File
watching would still need it as a fallback, and a restart for every new directory.
"""

WriteScope = Literal["user", "project"]
OnView = Callable[[Path | None, Discovery | None], None]
"""Receives the new discovery of a directory (by its real path), or None when its view is evicted."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Details:
    """One server in full: the origin of each value, the trust prompt, and its version for `If-Match`."""

    server: ServerEntry
    origins: tuple[ValueOrigin, ...]
    question: TrustQuestion | None
    version: str

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        values = [{"key": each.key, "value": each.shown, "origin": each.origin} for each in self.origins]
        question = self.question.to_json() if self.question is not None else None
        return self.server.to_json() | {"origins": values, "question": question}


class _Record(NamedTuple):
    """The kind of a change for the audit log, and its details besides file and diff."""

    kind: str
    details: JsonObject


class _Work(Protocol):
    """An edit that can be previewed. Blocking."""

    def __call__(self, *, dry_run: bool) -> Edit: ...


class Servers:
    """Lists and changes server definitions. `cwd` None means outside any project."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        user_home: Path,
        publish: Publish,
        changes: ChangeRecorder,
        secrets: NamedSecrets | None = None,
    ) -> None:
        """`changes` records every edit, including those made outside the crib. `secrets` encrypts saved versions."""
        self._changes = changes
        self._outside_edits = OutsideEdits(home.last_rules, home.trust_file)
        self._home = home
        self._environment = environment
        sealer = (secrets or NamedSecrets(home.secrets)).sealer
        self._writing = WriteContext(user_home, home.backups, home.root, sealer=sealer)
        self._views = ProjectViews(home, environment, user_home)
        self._publish = publish
        self._on_view: OnView = lambda _, __: None
        self._one_at_a_time = anyio.Lock()

    def watch(self, on_view: OnView) -> None:
        """Call `on_view` whenever the servers of a directory changed."""
        self._on_view = on_view

    async def list(self, cwd: Path | None = None) -> Discovery:
        """Return every server visible in `cwd`, from all files of all apps."""
        return (await self.view(cwd)).discovery

    async def find(self, name: str, cwd: Path | None = None, *, file: str | None = None) -> ServerEntry:
        """Return one server by alias or name, preferring the one in `file`; includes hidden servers."""
        view = await self.view(cwd)
        there = (each for each in view.discovery.servers if file in [source.file for source in each.sources])
        return next((each for each in there if each.name == name), None) or find_server(view, name, hidden=True)

    async def get(self, name: str, cwd: Path | None = None) -> Details:
        """Return one server in full, by alias or name. Raises `server.unknown` with the nearest names."""
        view = await self.view(cwd)
        server = find_server(view, name)
        return await self._in_thread(lambda: self._details(view, server))

    async def follow(self) -> None:
        """Detect and publish outside changes of files until cancelled.

        Checks every directory with a cached view; before the first request, only the view without a project.
        """
        reported = set[Path | None]()
        while True:
            await anyio.sleep(LOOK_SECONDS)
            for cwd in self._views.kept() or (None,):
                try:
                    await self.view(cwd)
                except Exception:  # boundary: one unreadable directory must not end the crib
                    if cwd not in reported:
                        logger.exception("The servers of %s could not be read.", cwd or "the user")
                    reported.add(cwd)

    async def add(
        self,
        name: str,
        entry: JsonObject,
        *,
        scope: WriteScope = "user",
        cwd: Path | None = None,
        dry_run: bool = False,
    ) -> Edit:
        """Add a server to our file or the project's. The user's request counts as trust."""
        view = await self.view(cwd)
        place = self._own(view, scope)
        details: JsonObject = {"name": name, "scope": scope}
        done = await self.edit(place, add_own(place, name, entry), dry_run=dry_run, record=("servers.add", details))
        if place.project is not None and not dry_run:
            source = DefinitionSource(
                "toolcrib", "project", str(place.file), None, str(place.project), str(place.directory)
            )
            spec = replace(check_entry(name, entry), source=source)
            await self._change_trust(lambda book: book.with_definitions([spec], secrets=True))
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
        """Replace a server of ours; values that are still masked keep their old content."""
        view = await self.view(cwd)
        server = find_server(view, name)
        self._check_version(view, server, version)
        written = view.written(server)[0]
        if written.place.format != "toolcrib":
            message = f'Server "{server.name}" is defined in {written.place.file} of {written.place.dialect.title}.'
            raise Conflict("server.foreign", message)
        whole = restore_masked(entry, server.definition, written.raw)
        if "registry" in written.raw:
            whole = {"registry": written.raw["registry"], **whole}  # without it the server would lose its sandbox
        change = replace_own(written.place, server.name, whole)
        return await self.edit(
            written.place,
            change,
            dry_run=dry_run,
            expected=view.version(written.place.file),
            record=("servers.change", {"name": server.name}),
        )

    async def remove(
        self,
        name: str,
        cwd: Path | None = None,
        *,
        in_client: bool = False,
        dry_run: bool = False,
        version: str | None = None,
    ) -> Edit:
        """Remove a server from our file, or hide it with an overlay; `in_client` edits the app's file."""
        view = await self.view(cwd)
        server = find_server(view, name)
        self._check_version(view, server, version)
        record = _Record("servers.remove", {"name": server.name})
        return await self._change_server(view, server, REMOVAL, record, in_client=in_client, dry_run=dry_run)

    async def switch(
        self, name: str, enabled: bool, cwd: Path | None = None, *, in_client: bool = False, dry_run: bool = False
    ) -> Edit:
        """Enable or disable a server in the same way. Enabling a hidden one shows it again."""
        view = await self.view(cwd)
        server = find_server(view, name, hidden=enabled)
        record = _Record("servers.enable" if enabled else "servers.disable", {"name": server.name})
        action = switching(enabled)
        return await self._change_server(view, server, action, record, in_client=in_client, dry_run=dry_run)

    async def sandbox(
        self, name: str, choice: SandboxChoice, cwd: Path | None = None, *, dry_run: bool = False
    ) -> Edit:
        """Choose the sandbox of a server, as an overlay in our own file. Raises `sandbox.invalid`."""
        view = await self.view(cwd)
        server = find_server(view, name)
        if server.spec is None:
            raise InvalidRequest("server.invalid", server.problems[0].message)
        sandbox = changed_sandbox(server.spec, choice)
        record = _Record("servers.sandbox", {"name": server.name, "sandbox": sandbox.to_json()})
        return await self._change_server(view, server, sandboxing(sandbox), record, in_client=False, dry_run=dry_run)

    async def trust(
        self, name: str, cwd: Path | None = None, *, shown: str | None = None, secrets: bool = False
    ) -> ServerEntry:
        """Trust a definition as it is now; `shown` is the digest of the one the user reviewed.

        `secrets` is the separate consent to grave exposures. Raises `server.reveals_secrets` if it is missing.
        """
        server = find_server(await self.view(cwd), name)
        spec = server.spec
        if spec is None:
            raise InvalidRequest("server.invalid", server.problems[0].message)
        if shown is not None and shown != server.digest:
            raise _changed_since(server)
        await self._agree([spec], secrets)
        return server_after(await self.view(cwd), server)

    async def keep_trust(self, entries: Collection[tuple[str, str]], cwd: Path | None) -> None:
        """Trust the definitions with these files and names, after the crib changed them on the owner's behalf."""
        readings = (await self.view(cwd)).readings
        found = [
            entry for reading in readings for entry in reading.entries if (entry.source.file, entry.name) in entries
        ]
        specs = [entry.spec for entry in found if entry.spec is not None]
        await self._change_trust(lambda book: book.with_definitions(specs, secrets=True))

    async def untrust(self, name: str, cwd: Path | None = None) -> ServerEntry:
        """Withdraw trust. Raises `config.unsupported` for a server in the user's own file, which needs no trust."""
        view = await self.view(cwd)
        server = find_server(view, name)
        if server.source.client == "toolcrib" and server.source.project is None:
            message = f'Server "{server.name}" is in Toolcrib\'s own file and needs no trust.'
            hint = f"Run `toolcrib mcp disable {server.alias}`, or remove it."
            raise InvalidRequest("config.unsupported", message, hint)
        specs = [entry.spec for entry in view.written(server) if entry.spec is not None]
        await self._change_trust(lambda book: book.without_definitions(specs))
        return server_after(await self.view(cwd), server)

    async def at(self, path: Path) -> tuple[Details, ...]:
        """Return the servers that a project's directory or a file of the user defines."""
        location = await self._location(path)
        servers = defined_at(location, self._environment)
        return await self._in_thread(lambda: tuple(self._details(location.view, server) for server in servers))

    async def trust_path(self, path: Path, *, shown: Collection[str] | None = None, secrets: bool = False) -> None:
        """Trust everything a project or a file of the user defines now; later additions need new consent.

        `secrets` and the errors are as in `trust`.
        """
        location = await self._location(path)
        servers = defined_at(location, self._environment)
        for server in servers:
            if shown is not None and server.digest not in shown:
                raise _changed_since(server)
        await self._agree([server.spec for server in servers if server.spec is not None], secrets)

    async def untrust_path(self, path: Path) -> None:
        """Withdraw all trust in a project or a file."""
        location = await self._location(path)
        servers = defined_at(location, self._environment)
        specs = [server.spec for server in servers if server.spec is not None]
        place = location.view.discovery.project if location.is_project else str(location.path)
        await self._change_trust(lambda book: book.without_definitions(specs).without_place(place or ""))

    async def import_(
        self,
        names: Collection[str] = (),
        cwd: Path | None = None,
        *,
        dry_run: bool = False,
        shown: Collection[str] | None = None,
    ) -> "transfer.Transfer":
        """Import servers of apps into our file, all or the named ones, which counts as trust.

        `shown` are the digests of the untrusted definitions the user reviewed.
        """
        view = await self.view(cwd)
        for name in names:
            find_server(view, name)
        own = self._own(view, "user")
        moved = await self._in_thread(lambda: transfer.imports(view, own, self._environment, names))
        for each in moved:
            if shown is not None and each.question is not None and each.question.digest not in shown:
                raise _changed_since(each.server)
        return await self._move(own, moved, "servers.import", dry_run=dry_run)

    async def export(self, client: str, names: Collection[str] = (), cwd: Path | None = None) -> "transfer.Export":
        """Return our servers, or the named ones, as a file of that app."""
        servers = chosen_servers(await self.view(cwd), names)
        return await self._in_thread(lambda: transfer.exported(servers, client))

    async def export_to(
        self,
        client: str,
        names: Collection[str] = (),
        cwd: Path | None = None,
        *,
        scope: WriteScope = "user",
        dry_run: bool = False,
    ) -> "transfer.Transfer":
        """Write our servers, or the named ones, into that app's file."""
        view = await self.view(cwd)
        place = transfer.client_place(view, client, scope)
        moved = transfer.exports(view, chosen_servers(view, names), client, place)
        return await self._move(place, moved, "servers.export", dry_run=dry_run)

    async def undo(self, file: Path | None = None, *, purpose: str | None = None, dry_run: bool = False) -> Edit:
        """Undo the last change to this file or to any file, or the latest changes made for a purpose."""
        writing = replace(self._writing, purpose=purpose)

        def work(*, dry_run: bool) -> Edit:
            chosen = file or last_changed(self._home.backups)
            done = edits.undo(chosen, writing, dry_run=dry_run)
            if not dry_run:
                self._outside_edits.wrote(chosen, Path(done.file))
            return done

        return await self._record_edit(work, _Record("servers.undo", {}), dry_run=dry_run)

    async def before(self, place: ConfigFile, purpose: str) -> tuple[ReadEntry, ...]:
        """Return the entries of a file after undoing the changes for this purpose."""
        writing = replace(self._writing, purpose=purpose)
        return await self._in_thread(lambda: edits.entries_before(place, writing))

    async def recognise(self, text: str) -> "tuple[tuple[transfer.Proposal, ...], tuple[Problem, ...]]":
        """Return the servers in a pasted text; nothing is added."""
        return await self._in_thread(lambda: transfer.proposals(text, self._environment))

    async def view(self, cwd: Path | None) -> ProjectView:
        """Return the current view and publish what changed since the last one."""
        before, view, outside = await self._in_thread(lambda: self._look(cwd))
        for change in outside:
            self._changes.noticed("servers.file", change)
        if before is not view:
            if before is not None:
                tell(self._publish, before, view)
            for gone in self._views.dropped():
                self._on_view(gone, None)
            self._on_view(view.cwd, view.discovery)
        return view

    def _look(self, cwd: Path | None) -> tuple[ProjectView | None, ProjectView, Sequence[JsonObject]]:
        """Return the last view, the current one, and the outside changes in between."""
        before, view = self._views.last(cwd), self._views.of(cwd)
        return before, view, () if before is view else self._outside_edits.between(before, view)

    async def _location(self, path: Path) -> TrustedLocation:
        is_project = await self._in_thread(path.is_dir)
        view = await self.view(path if is_project else None)
        return TrustedLocation(_normal(path), is_project, view)

    async def _look_again(self) -> None:
        for cwd in self._views.kept():
            await self.view(cwd)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        async with self._one_at_a_time:
            return await anyio.to_thread.run_sync(work)

    async def edit(
        self,
        place: ConfigFile,
        change: ChangeText,
        *,
        dry_run: bool = False,
        expected: str | None = None,
        purpose: str | None = None,
        secret: bool = False,
        removes_secrets: bool = False,
        record: tuple[str, JsonObject] = ("servers.edit", {}),
    ) -> Edit:
        """Change one file. `purpose` can be passed to `undo`; `secret` makes the file unreadable for other users.

        With `removes_secrets`, the old version is saved encrypted. `record` is the kind of change for the audit log,
        and its details besides file and diff.
        """
        writing = replace(self._writing, purpose=purpose, secret=secret, removes_secrets=removes_secrets)

        def work(*, dry_run: bool) -> Edit:
            self._views.check_not_emptied(place.file)
            done = edits.edit(place, change, writing, dry_run=dry_run, expected=expected)
            if not dry_run:
                self._outside_edits.wrote(place.file, Path(done.file))
            return done

        return await self._record_edit(work, _Record(*record), dry_run=dry_run)

    async def _record_edit(self, work: "_Work", record: "_Record", *, dry_run: bool) -> Edit:
        """Preview an edit, then make it with its audit records; an edit without effect leaves none."""
        planned = await self._in_thread(lambda: work(dry_run=True))
        if dry_run:
            return planned

        async def make() -> Edit:
            done = await self._in_thread(lambda: work(dry_run=False))
            await self._look_again()
            return done

        if not planned.changed:
            return await make()
        details = {**record.details, "file": planned.file, "diff": planned.diff}
        return await self._changes.record(record.kind, details, make)

    async def _change_trust(self, change: Callable[[TrustBook], TrustBook]) -> None:
        def work() -> None:
            change_trust(self._home.trust_file, change)
            self._outside_edits.wrote(self._home.trust_file)

        await self._in_thread(work)
        await self._look_again()

    async def _agree(self, specs: Sequence[ServerSpec], secrets: bool) -> None:
        """Record consent to definitions. Raises `server.reveals_secrets` if it does not cover their grave exposures."""
        grave = await self._in_thread(lambda: self._not_agreed(specs)) if not secrets else ()
        if grave:
            names = ", ".join(f'"{spec.name}"' for spec in grave)
            message = f"{names}: credentials or files of yours would be passed on, which needs separate consent."
            raise Denied("server.reveals_secrets", message)
        await self._change_trust(lambda book: book.with_definitions(specs, secrets=secrets))

    def _not_agreed(self, specs: Sequence[ServerSpec]) -> tuple[ServerSpec, ...]:
        """Return the definitions with grave exposures that lack consent."""
        book = load_trust(self._home.trust_file)
        return tuple(spec for spec in specs if not book.may_reveal(spec) and reveals_gravely(spec, self._environment))

    async def _change_server(
        self,
        view: ProjectView,
        server: ServerEntry,
        action: Action,
        record: "_Record",
        *,
        in_client: bool,
        dry_run: bool,
    ) -> Edit:
        """Change one file: the one that defines the server if it is ours or `in_client`, else our own."""
        written = view.written(server)
        own = self._own(view, "user")
        first = written[0]
        if in_client and not first.place.dialect.writable:
            message = f"{first.place.file} is not a file that Toolcrib can edit."
            raise InvalidRequest("config.unsupported", message)
        direct = action.direct
        if direct and (in_client or (first.place.format == "toolcrib" and first.place.file != own.file)):
            return await self.edit(first.place, direct(first), dry_run=dry_run, record=record)
        changes = (
            direct(entry) if direct and entry.place.file == own.file else action.overlay(own, entry)
            for entry in written
        )
        return await self.edit(own, together(changes), dry_run=dry_run, record=record)

    async def _move(
        self, place: ConfigFile, moved: "tuple[transfer.Moved, ...]", kind: str, *, dry_run: bool
    ) -> "transfer.Transfer":
        change = transfer.additions(place, moved)
        done = await self.edit(place, change, dry_run=dry_run, record=(kind, {})) if change is not None else None
        return transfer.Transfer(moved, done)

    def _own(self, view: ProjectView, scope: WriteScope) -> ConfigFile:
        if scope == "user":
            return own_place(self._home.root)
        if not view.around.directories:
            raise InvalidRequest("request.invalid", "A server of a project needs `cwd`, a directory in that project.")
        return own_project_place(view.around.directories[-1])

    def _details(self, view: ProjectView, server: ServerEntry) -> Details:
        spec = server.spec
        return Details(
            server,
            origins(spec, self._environment) if spec is not None else (),
            self._question(server, spec) if spec is not None else None,
            self._version(view, server),
        )

    def _question(self, server: ServerEntry, spec: ServerSpec) -> TrustQuestion:
        """Return the trust prompt, with a warning if the server takes over a name, since rules refer to names."""
        question = trust_question(spec, self._environment)
        if server.shadowed_by is None or spec.source.project is None:
            return question
        message = f"In this project it replaces {server.shadowed_by}, also in rules and permissions."
        return replace(question, dangers=(*question.dangers, dangers.Danger("takes_name", message, grave=True)))

    def _version(self, view: ProjectView, server: ServerEntry) -> str:
        """Return a version that changes with the server's file and with our own, which may contain an overlay."""
        files = (Path(server.source.file), self._home.mcp_json)
        return digest([server.alias, *(view.version(file) for file in files)])[:32]

    def _check_version(self, view: ProjectView, server: ServerEntry, version: str | None) -> None:
        if version is not None and version != self._version(view, server):
            raise Conflict("request.stale", f'Server "{server.name}" changed after it was read.')


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _changed_since(server: ServerEntry) -> Conflict:
    return Conflict("config.changed", f'Server "{server.name}" was redefined after you reviewed it.')
