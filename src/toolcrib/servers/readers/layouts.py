"""Finds the entries of a file: one function per layout.

A layout never judges an entry. An entry in the wrong location is still found and marked `misplaced`, so that nothing is
dropped silently.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.servers.readers.dialect import Dialect, FoundEntry, Layout, ReadingContext
from toolcrib.servers.syntax.document import KeyPath

COMMON_ROOTS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp_servers",),
    ("context_servers",),
    ("mcp",),
    ("amp.mcpServers",),
    ("amp", "mcpServers"),
    ("extensions",),
)
"""Every root key of any app. Servers under one that the file's app does not read are reported."""

_ENDPOINT_KEYS = frozenset({"command", "url", "httpUrl", "serverUrl", "serverURL", "uri", "cmd"})


def by_name(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find an object of servers under a root key."""
    document = as_object(value)
    if document is None:
        return Layout(oddities=(("the file does not contain an object", ()),)) if dialect.dedicated else Layout()
    return _with_elsewhere(_under_root(document, dialect), document, dialect)


def _under_root(document: JsonObject, dialect: Dialect) -> Layout:
    """Find the servers under the app's own key; in files that contain only servers, also under that of another app."""
    roots = (*dialect.roots, *(COMMON_ROOTS if dialect.dedicated else ()))
    for number, root in enumerate(roots):
        held = at(document, *root)
        if held is None:
            continue
        oddities: tuple[tuple[str, KeyPath], ...] = ()
        if number >= len(dialect.roots):
            documented, used = ".".join(dialect.roots[0]), ".".join(root)
            oddities = ((f'{dialect.title} reads "{documented}", not "{used}"', root),)
            layout = _members(held, root, oddities)
            return replace(layout, entries=tuple(replace(entry, is_elsewhere=True) for entry in layout.entries))
        return _members(held, root, oddities)
    return _without_root(document, dialect)


def _with_elsewhere(layout: Layout, document: JsonObject, dialect: Dialect) -> Layout:
    """Add the servers under keys that only other apps read, as misplaced entries."""
    read = {*dialect.roots, *(entry.path[:-1] for entry in layout.entries)}
    elsewhere = tuple(
        FoundEntry(
            name,
            raw,
            (*root, name),
            f'{dialect.title} does not read "{".".join(root)}" in this file',
            dialect.fix or f'Move it under "{".".join(dialect.roots[0])}".',
            is_elsewhere=True,
        )
        for root in COMMON_ROOTS
        if root not in read
        for name, raw in (as_object(at(document, *root)) or {}).items()
        if _endpoint(as_object(raw) or {})
    )
    return replace(layout, entries=(*layout.entries, *elsewhere)) if elsewhere else layout


def by_name_or_bare(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Like `by_name`, but also accept a file that is itself the object of servers."""
    layout = by_name(value, dialect, context)
    if layout.entries and all(entry.misplaced and not entry.is_elsewhere for entry in layout.entries):
        return Layout(tuple(replace(entry, misplaced=None) for entry in layout.entries))
    return layout


def settings_only(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find no entries but misplaced ones: the file only enables and disables servers."""
    return _with_elsewhere(Layout(), as_object(value) or {}, replace(dialect, roots=()))


def script(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Report a program that an app runs for its configuration; its servers are unknown without running it."""
    return Layout(oddities=((f"{dialect.title} runs this program for its configuration; Toolcrib does not", ()),))


def claude_state(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find entries in `~/.claude.json`: the user's servers, and each project's under `projects`."""
    user = by_name(value, dialect, context)
    entries = list(user.entries)
    for directory in context.directories:
        for key in _spellings(directory):
            held = at(value, "projects", key, "mcpServers")
            local = _members(held, ("projects", key, "mcpServers"), ()) if held is not None else Layout()
            entries += [replace(entry, directory=directory, scope="local") for entry in local.entries]
    return Layout(tuple(entries), user.oddities)


def _spellings(directory: Path) -> list[str]:
    """Return the paths Claude Code may have stored for a directory: as entered, and resolved."""
    return list(dict.fromkeys((str(directory), str(directory.resolve()))))


def claude_plugin(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find entries in a plugin's manifest. Files named there instead are read on their own; see `extensions`."""
    held = at(value, "mcpServers")
    listed = as_list(held)
    if held is None or isinstance(held, str):
        return Layout()
    if listed is None:
        return _members(held, ("mcpServers",), ())
    layouts = [_members(item, ("mcpServers", index), ()) for index, item in enumerate(listed) if as_object(item)]
    return Layout(tuple(entry for layout in layouts for entry in layout.entries))


def opencode(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find opencode's servers under `mcp`, or in the newer form under `mcp.servers`."""
    newer = as_object(at(value, "mcp", "servers"))
    if newer is not None and not _endpoint(newer):
        return _members(newer, ("mcp", "servers"), ())
    return by_name(value, dialect, context)


def zed(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find Zed's servers; those of extensions have settings here and nothing to start."""
    return _mark_built_in(by_name(value, dialect, context), _zed_kind)


def goose(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find Goose's servers and mark its built-in extensions among them."""
    return _mark_built_in(by_name(value, dialect, context), _goose_kind)


def continue_(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find Continue's servers: a list with names in YAML, the common form in its JSON files."""
    items = as_list(at(value, "mcpServers"))
    if items is None:
        return by_name(value, dialect, context)
    entries = (
        FoundEntry(as_text(at(item, "name")) or "", item, ("mcpServers", index)) for index, item in enumerate(items)
    )
    used = tuple(entry for entry in entries if at(entry.raw, "uses") is None)
    followed = len(items) - len(used)
    note = f"{followed} entries use remote blocks, which are not read"
    return Layout(used, ((note, ("mcpServers",)),) if followed else ())


def vibe(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find Mistral Vibe's servers: a list of tables with names."""
    items = as_list(at(value, "mcp_servers"))
    if items is None:
        return by_name(value, dialect, context)
    return Layout(
        tuple(
            FoundEntry(as_text(at(item, "name")) or "", item, ("mcp_servers", index))
            for index, item in enumerate(items)
        )
    )


def fast_agent(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find fast-agent's servers under `mcp.servers`, and its short form `mcp.targets`: a URL or a command line."""
    layout = by_name(value, dialect, context)
    targets = enumerate(as_list(at(value, "mcp", "targets")) or ())
    short = (
        FoundEntry(as_text(at(item, "name")) or f"target {index + 1}", _target(item), ("mcp", "targets", index))
        for index, item in targets
    )
    return replace(layout, entries=(*layout.entries, *short))


def _target(item: Json) -> Json:
    """Return the entry of a target; a command line that cannot be split is left for `judge` to refuse."""
    entry = dict(as_object(item) or {})
    target = as_text(entry.pop("target", None)) or ""
    if target.startswith(("http://", "https://")):
        return {**entry, "url": target}
    try:
        words = shlex.split(target)
    except ValueError:
        words = []
    return {**entry, "command": words[0] if words else "", "args": words[1:]}


def warp(value: Json, dialect: Dialect, context: ReadingContext) -> Layout:
    """Find Warp's servers: several wrapper keys, a bare object of servers, or one bare server."""
    single = as_object(value)
    if single is not None and _endpoint(single):
        return Layout((FoundEntry(context.file.stem.lstrip(".") or "server", value, ()),))
    return by_name_or_bare(value, dialect, context)


def _members(held: Json, root: KeyPath, oddities: tuple[tuple[str, KeyPath], ...]) -> Layout:
    by_key = as_object(held)
    if by_key is not None:
        return Layout(tuple(FoundEntry(name, raw, (*root, name)) for name, raw in by_key.items()), oddities)
    listed = as_list(held)
    if listed is not None:
        why, fix = "the servers are in a list, not in an object by name", "Write an object with one key per server."
        found = (
            FoundEntry(as_text(at(raw, "name")) or f"entry {number + 1}", raw, (*root, number), why, fix)
            for number, raw in enumerate(listed)
        )
        return Layout(tuple(found), oddities)
    return Layout(oddities=(*oddities, (f'"{root[-1]}" is not an object', root)))


def _without_root(value: JsonObject, dialect: Dialect) -> Layout:
    root = ".".join(dialect.roots[0])
    if not dialect.dedicated:
        return Layout()
    why = f"it is at the top level of the file, which {dialect.title} does not read"
    fix = f'Move it under "{root}".'
    bare = tuple(
        FoundEntry(name, raw, (name,), why, fix) for name, raw in value.items() if _endpoint(as_object(raw) or {})
    )
    return Layout(bare) if bare else Layout(oddities=((f'the file has no "{root}"', ()),))


def _endpoint(raw: JsonObject) -> bool:
    return any(isinstance(raw.get(key), str | list | dict) for key in _ENDPOINT_KEYS)


def _zed_kind(raw: JsonObject) -> str | None:
    return None if _endpoint(raw) else "extension"


def _goose_kind(raw: JsonObject) -> str | None:
    kind = as_text(raw.get("type"))
    return kind if kind in ("builtin", "platform", "frontend", "inline_python") else None


def _mark_built_in(layout: Layout, kind_of: Callable[[JsonObject], str | None]) -> Layout:
    entries = tuple(
        replace(entry, built_in=kind_of(raw)) if (raw := as_object(entry.raw)) is not None else entry
        for entry in layout.entries
    )
    return Layout(entries, layout.oddities)
