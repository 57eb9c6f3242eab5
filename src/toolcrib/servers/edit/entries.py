"""Changes one server in an app's text and verifies that nothing else changed.

The result of every change is parsed again. Unless it equals the old content with exactly this entry changed, the change
is refused. An unusual file may be impossible to edit, but it is never damaged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolcrib.base.files.reading import BOM
from toolcrib.base.files.write import FileChange, WriteContext, change_file
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.servers.edit import json_text, toml_text, yaml_text
from toolcrib.servers.edit.unsupported import Unsupported
from toolcrib.servers.readers.dialect import FoundEntry, ReadingContext
from toolcrib.servers.readers.read import PARSERS, ConfigFile, family_of
from toolcrib.servers.syntax.document import Key, KeyPath, SyntaxProblem

ChangeText = Callable[[str], str]


def add_server(place: ConfigFile, name: str, entry: JsonObject) -> ChangeText:
    """Return a change that adds a server. It raises `server.exists` if the file already has the name."""

    def change(text: str) -> str:
        if _path_of(place, text, name, read_only=True) is not None:
            raise Conflict("server.exists", f'Server "{name}" already exists in {place.file}')
        return _checked_edit(place, text, (*_holder(place, text), name), entry)

    return change


def put_server(place: ConfigFile, name: str, entry: JsonObject) -> ChangeText:
    """Return a change that adds a server or replaces the one of this name."""

    def change(text: str) -> str:
        path = _path_of(place, text, name, read_only=True)
        return _checked_edit(place, text, path or (*_holder(place, text), name), entry)

    return change


def remove_server(place: ConfigFile, name: str) -> ChangeText:
    """Return a change that removes a server. It raises `server.unknown`."""

    def change(text: str) -> str:
        return _checked_edit(place, text, _known_path(place, text, name), None)

    return change


def switch_server(place: ConfigFile, name: str, enabled: bool) -> ChangeText:
    """Return a change that enables or disables a server with the app's own switch. It raises `config.unsupported`."""
    switch = place.dialect.switch

    def change(text: str) -> str:
        path = _known_path(place, text, name)
        if switch is None:
            message = f"{place.dialect.title} has no switch for a server in this file."
            raise InvalidRequest("config.unsupported", message)
        return _checked_field(place, text, path, switch, not enabled if switch == "disabled" else enabled)

    return change


def set_value(place: ConfigFile, path: KeyPath, value: Json) -> ChangeText:
    """Return a change that sets one value of a JSON file; None removes it."""

    def change(text: str) -> str:
        return _verify(place, text, lambda: _json_edit(text, path, value), path, value)

    return change


def apply_change(
    place: ConfigFile, change: ChangeText, writing: WriteContext, expected: str | None = None
) -> FileChange:
    """Apply a change of text to a file. `expected` is the version that was read."""
    return change_file(place.file, lambda before: _on_bytes(place.file, before, change), writing, expected)


def _on_bytes(file: Path, before: bytes | None, change: ChangeText) -> bytes | None:
    if before is None:
        return change("").encode()
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("config.encoding", f"{file} is not UTF-8, so it is not changed.") from None
    mark = BOM if text.startswith(BOM) else ""
    return (mark + change(text.removeprefix(BOM))).encode()


def _path_of(place: ConfigFile, text: str, name: str, *, read_only: bool = False) -> KeyPath | None:
    """Return the path of the server of this name; `read_only` skips those that the app itself does not read."""
    named = [found for found in _find_entries(place, text) if found.name == name]
    read = [found.path for found in named if _is_read(found)]
    paths = read if read or read_only else [found.path for found in named]
    return paths[-1] if paths else None


def _is_read(found: FoundEntry) -> bool:
    """Return whether the app reads an entry where it is."""
    return found.misplaced is None and not found.is_elsewhere


def _known_path(place: ConfigFile, text: str, name: str) -> KeyPath:
    path = _path_of(place, text, name)
    if path is None:
        raise NotFound("server.unknown", f'Server "{name}" not found in {place.file}')
    return path


def _holder(place: ConfigFile, text: str) -> KeyPath:
    """Return the keys under which to add a server: next to existing ones, else where the app documents it."""
    holders = [found.path[:-1] for found in _find_entries(place, text) if len(found.path) > 1 and _is_read(found)]
    documented = place.dialect.roots
    return holders[0] if holders and holders[0] not in documented else documented[0]


def _find_entries(place: ConfigFile, text: str) -> tuple[FoundEntry, ...]:
    """Return the unjudged entries of a text in the scope of the file."""
    if not text.strip():
        return ()
    try:
        value = PARSERS[family_of(place)](text).value
    except SyntaxProblem as problem:
        line = f" in line {problem.line}" if problem.line else ""
        raise ConfigError("config.edit", f"{place.file} cannot be edited: {problem.reason}{line}.") from None
    # A file that covers several projects is read for this one only.
    directories = (place.directory,) if place.directory is not None else ()
    layout = place.dialect.find(value, place.dialect, ReadingContext(place.file, directories))
    return tuple(found for found in layout.entries if (found.scope == "local") == (place.scope == "local"))


def _checked_edit(place: ConfigFile, text: str, path: KeyPath, entry: JsonObject | None) -> str:
    family = family_of(place)
    if family == "json":
        return _verify(place, text, lambda: _json_edit(text, path, entry), path, entry)
    if family == "toml":
        return _verify(place, text, lambda: _toml_edit(text, tuple(str(key) for key in path), entry), path, entry)
    return _verify(place, text, lambda: _yaml_edit(place, text, path, entry), path, entry)


def _checked_field(place: ConfigFile, text: str, path: KeyPath, key: str, value: bool) -> str:
    family = family_of(place)
    whole = (*path, key)
    if family == "json":
        return _verify(place, text, lambda: json_text.set_member(text, whole, value), whole, value)
    if family == "toml":
        keys = tuple(str(part) for part in path)
        return _verify(place, text, lambda: toml_text.set_field(text, keys, key, value), whole, value)
    name = _yaml_name(text, path)
    return _verify(place, text, lambda: yaml_text.set_field(text, str(path[0]), name, key, value), whole, value)


def _json_edit(text: str, path: KeyPath, value: Json) -> str:
    return json_text.remove_member(text, path) if value is None else json_text.set_member(text, path, value)


def _toml_edit(text: str, path: tuple[str, ...], entry: JsonObject | None) -> str:
    return toml_text.remove_entry(text, path) if entry is None else toml_text.set_entry(text, path, entry)


def _yaml_edit(place: ConfigFile, text: str, path: KeyPath, entry: JsonObject | None) -> str:
    root, name = str(path[0]), _yaml_name(text, path)
    if entry is None:
        return yaml_text.remove_entry(text, root, name)
    return yaml_text.set_entry(text, root, name, entry, _is_listed(place))


def _is_listed(place: ConfigFile) -> bool:
    """Return whether the entries of a file are items of a list, identified by name."""
    return place.dialect.client == "continue" and family_of(place) == "yaml"


def _yaml_name(text: str, path: KeyPath) -> str:
    key = path[-1]
    if isinstance(key, str):
        return key
    listed = as_list(at(PARSERS["yaml"](text).value, str(path[0]))) or []
    return as_text(at(listed[key], "name")) or "" if key < len(listed) else ""


def _verify(place: ConfigFile, text: str, edit: Callable[[], str], path: KeyPath, value: Json) -> str:
    """Return the edited text if it parses to the old content with exactly this value changed."""
    parse = PARSERS[family_of(place)]
    try:
        before = parse(text).value if text.strip() else None
        changed = edit()
        after = parse(changed).value
    except (Unsupported, SyntaxProblem) as reason:
        detail = reason.reason if isinstance(reason, SyntaxProblem) else str(reason)
        raise ConfigError("config.edit", f"{place.file} cannot be edited: {detail}.") from None
    expected = _expected_content(before, path, value, _is_listed(place))
    if after != expected and (value is not None or _without_empty(after, path) != _without_empty(expected, path)):
        raise ConfigError("config.edit", f"{place.file} cannot be edited without changing other parts of it.")
    return changed


def _expected_content(before: Json, path: KeyPath, value: Json, listed_entries: bool) -> Json:
    """Return the old content with one value set or, if None, removed. Parts off the path are shared, not copied."""
    key, rest = path[0], path[1:]
    listed = as_list(before)
    if listed is not None:
        return _expected_items(listed, key, value)
    mapping = dict(as_object(before) or {})
    if rest:
        below = mapping.get(str(key))
        empty: Json = [] if listed_entries else {}
        mapping[str(key)] = _expected_content(empty if below is None else below, rest, value, listed_entries)
    elif value is None:
        mapping.pop(str(key), None)
    else:
        mapping[str(key)] = value
    return mapping


def _without_empty(value: Json, path: KeyPath) -> Json:
    """Return the content without empty tables on the way to `path`, which TOML need not write."""
    mapping = as_object(value)
    if mapping is None or len(path) < 2 or str(path[0]) not in mapping:
        return value
    below = _without_empty(mapping[str(path[0])], path[1:])
    kept = {key: item for key, item in mapping.items() if key != path[0]}
    return kept if below == {} else {**kept, str(path[0]): below}


def _expected_items(items: list[Any], key: Key, value: Json) -> list[Any]:
    entry = as_object(value) or {}
    if not isinstance(key, int):
        return [*items, {"name": key, **entry}]
    changed = [{"name": at(items[key], "name"), **entry}] if value is not None else []
    return [*items[:key], *changed, *items[key + 1 :]]
