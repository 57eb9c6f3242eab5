"""Decides for each definition with plaintext secrets how they leave its file.

In a file of ours, the value becomes `${keyring:NAME}`. In the file of an app, a variable is written only if it has this
very value where the crib runs, because the app resolves it without the crib. Otherwise the server moves behind the
crib: the app's entry is removed, ours refers to the keyring, and the app is connected to the crib.

Pure. Must never plan to write a secret anywhere.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerEntry
from toolcrib.servers.apps.connectable import CONNECTABLE, Connectable, ConnectScope, entries_of_crib, place_for
from toolcrib.servers.edit.entries import ChangeText, put_server, remove_server, set_value
from toolcrib.servers.edits import together
from toolcrib.servers.own_file import own_place, own_project_place
from toolcrib.servers.project_view import ProjectView
from toolcrib.servers.readers.read import ConfigFile, ReadEntry, family_of
from toolcrib.servers.secrets.plaintext import PlaintextSecret, replaced, replacements
from toolcrib.servers.transfer import Moved, imports
from toolcrib.servers.variables import SYNTAXES, Field, keyring_reference

MoveHow = Literal["keyring", "variable", "behind"]


@dataclass(frozen=True, slots=True)
class EntryMove:
    """What happens to one definition: `change` edits its file, and `added` is its new entry in our own file `own`.

    `connects` is the app to connect first, and the scope. With a `reason`, nothing happens.
    """

    entry: ReadEntry
    secrets: tuple[PlaintextSecret, ...]
    how: MoveHow = "behind"
    reason: str | None = None
    change: ChangeText | None = None
    own: ConfigFile | None = None
    added: Moved | None = None
    connects: tuple[Connectable, ConnectScope] | None = None
    project: str | None = None
    was_trusted: bool = False

    def rows(self) -> list[JsonObject]:
        """Return the public shape of each secret, with how it moves or why not."""
        more: JsonObject = {"how": self.how} if self.reason is None else {"reason": self.reason}
        return [secret.to_json() | more for secret in self.secrets]


@dataclass(slots=True)
class _Taken:
    """What earlier moves of the same plan already add and connect."""

    servers: set[str] = field(default_factory=set[str])
    apps: set[tuple[str, ConnectScope]] = field(default_factory=set[tuple[str, ConnectScope]])


def planned(
    view: ProjectView,
    found: Collection[PlaintextSecret],
    names: Collection[str],
    environment: Mapping[str, str],
    crib: Path,
) -> tuple[EntryMove, ...]:
    """Return the moves of all secrets, or of those with these names or of these servers. Raises `secret.unknown`."""
    for name in names:
        if not any(name in (each.name, each.entry.name) for each in found):
            raise NotFound("secret.unknown", f'There is no plaintext secret or server "{name}".')
    by_entry: dict[int, list[PlaintextSecret]] = {}
    for each in found:
        by_entry.setdefault(id(each.entry), []).append(each)
    taken = _Taken()
    moves: list[EntryMove] = []
    for secrets in by_entry.values():
        chosen = [each for each in secrets if not names or each.name in names or each.entry.name in names]
        staying = [each for each in secrets if each.stays is not None]
        moves += [EntryMove(each.entry, (each,), reason=each.stays) for each in staying if each in chosen]
        movable = [each for each in chosen if each.stays is None]
        if movable and staying and secrets[0].entry.place.format != "toolcrib":
            reason = f"the server cannot move as a whole, because of {staying[0].key}: {staying[0].stays}"
            moves.append(EntryMove(movable[0].entry, tuple(movable), reason=reason))
        elif movable:
            moves.append(
                _move(view, movable, [each for each in secrets if each.stays is None], environment, crib, taken)
            )
    return tuple(moves)


def _move(
    view: ProjectView,
    chosen: list[PlaintextSecret],
    secrets: list[PlaintextSecret],
    environment: Mapping[str, str],
    crib: Path,
    taken: _Taken,
) -> EntryMove:
    entry = chosen[0].entry
    move = EntryMove(entry, tuple(chosen), was_trusted=_is_trusted(view, entry, environment))
    if not entry.place.dialect.writable or entry.source.scope == "managed" or entry.place.plugin is not None:
        return replace(move, reason=f"{entry.place.file} is not a file that Toolcrib can edit")
    if entry.place.format == "toolcrib":
        written = {each.text: keyring_reference(each.name) for each in chosen}
        return _in_place(move, "keyring", written, entry.source.project)
    variables = _variables(chosen, environment)
    if variables is not None:
        return _in_place(move, "variable", variables, None)
    # The whole server moves, so all of its secrets do.
    return _behind(view, replace(move, secrets=tuple(secrets)), environment, crib, taken)


def _in_place(move: EntryMove, how: MoveHow, written: Mapping[str, str], project: str | None) -> EntryMove:
    entry = move.entry
    if family_of(entry.place) == "json" and all(isinstance(key, str) for key in entry.path):
        members = replacements(entry.raw, written, entry.path)
        change = together(set_value(entry.place, path, value) for path, value in members)
    else:
        change = put_server(entry.place, entry.name, replaced(entry.raw, written))
    return replace(move, how=how, change=change, project=project)


def _variables(secrets: Iterable[PlaintextSecret], environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the app's own references to variables that have these values; None if one has none."""
    by_value = {value: name for name, value in sorted(environment.items(), reverse=True)}
    written: dict[str, str] = {}
    for each in secrets:
        spec = each.entry.spec
        assert spec is not None
        syntax, kind = SYNTAXES[spec.variables], _field(each.key)
        wanted = each.key.partition(".")[2]
        name = wanted if environment.get(wanted) == each.value else by_value.get(each.value)
        if name is None or syntax.write is None or kind not in syntax.fields:
            return None
        written[each.text] = syntax.write.format(name=name)
    return written


def _field(key: str) -> Field:
    fields: tuple[Field, ...] = ("env", "headers", "args", "url", "auth")
    return next(each for each in fields if key.startswith(each))


def _behind(view: ProjectView, move: EntryMove, environment: Mapping[str, str], crib: Path, taken: _Taken) -> EntryMove:
    entry = move.entry
    row = next((each for each in CONNECTABLE if each.name == entry.place.dialect.client), None)
    if row is None:
        title = entry.place.dialect.title
        return replace(move, reason=f"{title} cannot refer to the keyring, and the crib cannot be connected to it")
    in_project = entry.source.project is not None and entry.source.scope == "project"
    scope: ConnectScope = "project" if in_project else "user"
    root = view.around.directories[-1] if view.around.directories else None
    if in_project and entry.place.directory != root:
        return replace(move, reason=f"it is not in the root directory of the project {entry.source.project}")
    own = own_project_place(root) if in_project and root is not None else own_place(crib)
    try:
        place = place_for(row, view, scope)
    except InvalidRequest as error:
        return replace(move, reason=error.message.rstrip("."))
    is_connected = any(each.says.agent is None for each in entries_of_crib(view, place))
    added = _taken_over(view, entry, own, environment, taken)
    if isinstance(added, str):
        return replace(move, reason=added)
    connects = None if is_connected or (row.name, scope) in taken.apps else (row, scope)
    if connects is not None:
        taken.apps.add((row.name, scope))
    if added is not None:
        taken.servers.add(added.server.alias)
        written = {each.text: keyring_reference(each.name) for each in move.secrets}
        added = replace(added, entry=replaced(added.entry, written))
    change = remove_server(entry.place, entry.name)
    project = str(own.project) if own.project is not None else None
    return replace(move, change=change, own=own, added=added, connects=connects, project=project)


def _taken_over(
    view: ProjectView, entry: ReadEntry, own: ConfigFile, environment: Mapping[str, str], taken: _Taken
) -> Moved | str | None:
    """Return the import of an entry into our own file, None if it is there already, or the reason why it cannot be."""
    server = next((each for each in view.discovery.servers if _is_of(each, entry)), None)
    if server is None:
        return "it was removed from the list of servers"
    if server.alias in taken.servers or any(source.file == str(own.file) for source in server.sources):
        return None
    moved = next(each for each in imports(view, own, environment, [server.alias]) if each.server is server)
    if moved.reason is None and moved.problems:
        return moved.problems[0].message
    return moved.reason or moved


def _is_of(server: ServerEntry, read: ReadEntry) -> bool:
    return read.source in server.sources and read.name in (server.name, *server.same_as)


def _is_trusted(view: ProjectView, entry: ReadEntry, environment: Mapping[str, str]) -> bool:
    return entry.spec is not None and view.book.covers(entry.spec, environment)
