"""Secrets of definitions: lists plaintext ones, moves them into the keyring, undoes that, and replaces stored values.

A move stores the values first, then connects apps, then edits files. If a step fails, the earlier ones are taken back.

Must never return, record or log a value.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread

from toolcrib.base.files.reading import content_digest, read_bytes
from toolcrib.base.home import Home
from toolcrib.base.named_secrets import NamedSecrets, SecretRecord, unknown_secret
from toolcrib.model.errors import Conflict, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.servers.apps.apps import Apps
from toolcrib.servers.apps.connectable import Connectable, ConnectScope
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.servers.edit.entries import ChangeText
from toolcrib.servers.edits import Edit, together
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.read import ConfigFile
from toolcrib.servers.secrets.journal import MoveJournal, MoveRecord
from toolcrib.servers.secrets.plaintext import PlaintextSecret, plaintext_secrets
from toolcrib.servers.secrets.plan import EntryMove, planned
from toolcrib.servers.servers import Servers
from toolcrib.servers.transfer import additions
from toolcrib.servers.variables import spec_references

Restart = Callable[[str], Awaitable[tuple[str, ...]]]
"""Restarts the running servers that use a secret, and returns their names."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A stored secret, and the servers whose definitions refer to it."""

    record: SecretRecord
    used_by: tuple[str, ...]

    def to_json(self) -> JsonObject:
        """Return the public shape; the value is not part of it."""
        return {"name": self.record.name, **self.record.to_json(), "usedBy": list(self.used_by)}


@dataclass(frozen=True, slots=True)
class SecretMove:
    """The result of a move, or of a dry run."""

    moves: tuple[EntryMove, ...]
    changes: tuple[Edit, ...]
    connected: tuple[str, ...]
    dry_run: bool

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        rows = [row for move in self.moves for row in move.rows()]
        return {
            "moved": [row for row in rows if "how" in row],
            "skipped": [row for row in rows if "reason" in row],
            "connected": list(self.connected),
            "changes": [change.to_json() for change in self.changes],
            "dryRun": self.dry_run,
        }


@dataclass(frozen=True, slots=True)
class SecretMoveUndone:
    """The result of undoing a move, or of a dry run."""

    changes: tuple[Edit, ...]
    disconnected: tuple[str, ...]
    removed: tuple[str, ...]
    dry_run: bool

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "changes": [change.to_json() for change in self.changes],
            "disconnected": list(self.disconnected),
            "removed": list(self.removed),
            "dryRun": self.dry_run,
        }


class DefinitionSecrets:
    """The secrets in the definitions of one user, and those that the crib stores for them."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        stored: NamedSecrets,
        servers: Servers,
        apps: Apps,
        restart: Restart,
    ) -> None:
        self._home = home
        self._environment = environment
        self._stored = stored
        self._servers = servers
        self._apps = apps
        self._restart = restart
        self._journal = MoveJournal(home.secrets)
        self._one_at_a_time = anyio.Lock()

    async def plaintext(self, cwd: Path | None = None) -> tuple[PlaintextSecret, ...]:
        """Return the plaintext secrets in the files of all apps."""
        return self._find(await self._servers.view(cwd))

    async def stored(self, cwd: Path | None = None) -> tuple[StoredSecret, ...]:
        """Return the stored secrets by name, with the servers visible in `cwd` that use them."""
        users = await self._users(cwd)
        records = sorted(self._stored.records().values(), key=lambda record: record.name)
        return tuple(StoredSecret(record, users.get(record.name, ())) for record in records)

    async def set(
        self, name: str, value: str, cwd: Path | None = None, *, in_project: bool = False
    ) -> tuple[SecretRecord, tuple[str, ...]]:
        """Store or replace a secret, and restart the servers that use it.

        `in_project` limits a new one to the project in `cwd`.
        """
        root = await self._project(cwd) if in_project else None
        async with self._one_at_a_time:
            record = await anyio.to_thread.run_sync(self._stored.put, name, value, root)
        return record, await self._restart(name)

    async def remove(self, name: str, cwd: Path | None = None) -> None:
        """Remove a stored secret. Raises `secret.unknown`, and `secret.in_use` if a definition refers to it."""
        if name not in self._stored.records():
            raise unknown_secret(name)
        users = (await self._users(cwd)).get(name)
        if users:
            raise Conflict("secret.in_use", f'The secret "{name}" is used by {", ".join(users)}.')
        async with self._one_at_a_time:
            await anyio.to_thread.run_sync(self._stored.remove, name)

    async def move(self, names: Collection[str] = (), cwd: Path | None = None, *, dry_run: bool = False) -> SecretMove:
        """Move plaintext secrets into the keyring: all, or those with these names or of these servers."""
        async with self._one_at_a_time:
            view = await self._servers.view(cwd)
            found = self._find(view)
            moves = planned(view, found, names, self._environment, self._home.root)
            doable = [move for move in moves if move.reason is None]
            connects = [move.connects for move in doable if move.connects is not None]
            titles = tuple(row.title for row, _ in connects)
            if dry_run or not doable:
                changes = [(await self._apps.connect(_request(*each, cwd), dry_run=True)).change for each in connects]
                for place, change in _edits(doable):
                    changes.append(await self._servers.edit(place, change, dry_run=True))
                return SecretMove(moves, tuple(changes), titles, dry_run)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            record = MoveRecord(secrets.token_hex(6), now, str(cwd) if cwd is not None else None)
            changes = await self._carry_out(doable, connects, record, cwd)
            return SecretMove(moves, tuple(changes), titles, dry_run)

    async def can_undo(self) -> bool:
        """Return whether there is a move to undo."""
        return await anyio.to_thread.run_sync(self._journal.last) is not None

    async def undo(self, *, dry_run: bool = False) -> SecretMoveUndone:
        """Undo the last move: restore every file byte for byte, disconnect apps it connected, remove what it stored.

        Raises `secret.nothing_moved`, and `config.changed` before anything is restored if a file was changed since.
        """
        async with self._one_at_a_time:
            record = await anyio.to_thread.run_sync(self._journal.last)
            if record is None:
                raise NotFound("secret.nothing_moved", "No move of secrets is recorded.")
            return await self._take_back(record, dry_run=dry_run)

    def _find(self, view: ProjectView) -> tuple[PlaintextSecret, ...]:
        entries = [entry for reading in view.readings for entry in reading.entries]
        return plaintext_secrets(entries, self._environment, tuple(self._stored.records()))

    async def _carry_out(
        self,
        moves: list[EntryMove],
        connects: list[tuple[Connectable, ConnectScope]],
        record: MoveRecord,
        cwd: Path | None,
    ) -> list[Edit]:
        """Store, connect and edit. If a step fails, everything before it is taken back."""
        done: list[Edit] = []
        try:
            record = await self._keep(moves, record)
            for row, scope in connects:
                record = replace(record, connected=(*record.connected, (row.name, scope)))
                await anyio.to_thread.run_sync(self._journal.write, record)
                done.append((await self._apps.connect(_request(row, scope, cwd), anyway=True)).change)
            for place, change in _edits(moves):
                record = await self._note_file(record, place.file)
                names: JsonObject = {"secrets": list(record.names)}
                edit = await self._servers.edit(
                    place, change, purpose=record.purpose, removes_secrets=True, record=("secrets.move", names)
                )
                done.append(edit)
            await self._servers.keep_trust(_still_trusted(moves), cwd)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._take_back(record, exact=False)
            raise
        return done

    async def _keep(self, moves: list[EntryMove], record: MoveRecord) -> MoveRecord:
        """Store the values that definitions will refer to."""
        kept: dict[str, tuple[str, str | None]] = {}
        for move in (each for each in moves if each.how != "variable"):
            for secret in move.secrets:
                _, project = kept.get(secret.name, (None, None))
                kept[secret.name] = secret.value, project or move.project
        record = replace(record, names=tuple(kept))
        await anyio.to_thread.run_sync(self._journal.write, record)
        for name, (value, project) in kept.items():
            await anyio.to_thread.run_sync(self._stored.put, name, value, project)
        return record

    async def _note_file(self, record: MoveRecord, file: Path) -> MoveRecord:
        if str(file) in dict(record.files):
            return record
        before = await anyio.to_thread.run_sync(_digest, file)
        record = replace(record, files=(*record.files, (str(file), before)))
        await anyio.to_thread.run_sync(self._journal.write, record)
        return record

    async def _take_back(self, record: MoveRecord, *, dry_run: bool = False, exact: bool = True) -> SecretMoveUndone:
        """Undo a move. Without `exact`, files that the move did not change yet are skipped."""
        restorable: list[Path] = []
        for name, before in record.files:
            file = Path(name)
            if await anyio.to_thread.run_sync(_digest, file) == before:
                continue  # another undo restored it
            try:
                await self._servers.undo(file, purpose=record.purpose, dry_run=True)
            except NotFound:
                if exact:
                    message = f"{file} was changed after the secrets were moved, so it cannot be restored exactly."
                    raise Conflict("config.changed", message) from None
                continue
            restorable.append(file)
        changes = [
            await self._servers.undo(file, purpose=record.purpose, dry_run=dry_run) for file in reversed(restorable)
        ]
        disconnected = [client for client, _ in record.connected]
        cwd = Path(record.cwd) if record.cwd is not None else None
        for client, scope in record.connected if not dry_run else ():
            try:
                request = AppConnectRequest(client, cwd, scope="project" if scope == "project" else "user")
                undone = (await self._apps.undo(request)).change
            except NotFound:
                continue  # the owner disconnected it, or it was not connected yet
            changes += [undone] if undone is not None else []
        removed = await self._forget(record, cwd, dry_run=dry_run)
        return SecretMoveUndone(tuple(changes), tuple(disconnected), removed, dry_run)

    async def _forget(self, record: MoveRecord, cwd: Path | None, *, dry_run: bool) -> tuple[str, ...]:
        """Remove the secrets that a move stored, except those in use and those that were replaced since."""
        users = await self._users(cwd) if not dry_run else {}
        stored = self._stored.records()
        gone = [
            name
            for name in record.names
            if (kept := stored.get(name)) is not None and kept.changed is None and not users.get(name)
        ]
        if not dry_run:
            for name in gone:
                await anyio.to_thread.run_sync(self._stored.remove, name)
            await anyio.to_thread.run_sync(self._journal.forget, record)
        return tuple(gone)

    async def _users(self, cwd: Path | None) -> dict[str, tuple[str, ...]]:
        """Return the names of the servers that refer to each secret, in `cwd` and outside of projects."""
        users: dict[str, dict[str, None]] = {}
        for place in dict.fromkeys((cwd, None)):
            readings = (await self._servers.view(place)).readings
            for entry in (entry for reading in readings for entry in reading.entries):
                for _, reference in spec_references(entry.spec) if entry.spec is not None else ():
                    if reference.kind == "keyring":
                        users.setdefault(reference.name, {})[entry.name] = None
        return {name: tuple(names) for name, names in users.items()}

    async def _project(self, cwd: Path | None) -> str:
        project = (await self._servers.list(cwd)).project
        if project is None:
            raise InvalidRequest("request.invalid", "There is no project here.", "Run it inside a project.")
        return project


def _request(row: Connectable, scope: ConnectScope, cwd: Path | None) -> AppConnectRequest:
    """Return the request for a connection over stdio: it needs no running crib, and puts no token into the file."""
    return AppConnectRequest(row.name, cwd, scope=scope, stdio=True, level="ask" if scope == "user" else None)


def _edits(moves: list[EntryMove]) -> list[tuple[ConfigFile, ChangeText]]:
    """Return one edit per file and scope: first our own files, so that no server is missing in between."""
    changes: dict[ConfigFile, list[ChangeText]] = {}
    for move in moves:
        change = additions(move.own, [move.added]) if move.own is not None and move.added is not None else None
        if move.own is not None and change is not None:
            changes.setdefault(move.own, []).append(change)
    for move in moves:
        if move.change is not None:
            changes.setdefault(move.entry.place, []).append(move.change)
    return [(place, together(iter(listed))) for place, listed in changes.items()]


def _still_trusted(moves: list[EntryMove]) -> set[tuple[str, str]]:
    """Return the files and names of definitions that stay trusted: trusted before, and changed only by the move."""
    changed = {(move.entry.source.file, move.entry.name) for move in moves if move.was_trusted and move.added is None}
    added = {
        (str(move.own.file), move.added.name)
        for move in moves
        if move.own is not None and move.own.project is not None and move.added is not None
    }
    return changed | added


def _digest(file: Path) -> str | None:
    content = read_bytes(file)
    return content_digest(content) if isinstance(content, bytes) else None
