"""Finds the servers of installed plugins and extensions, as their apps do.

A plugin's files count only while the app would load them: Claude Code's `installed_plugins.json` names the installed
version and `enabledPlugins` enables it; Gemini CLI and Qwen Code keep one directory per extension and the disabled ones
in `extension-enablement.json`. Disabled, uninstalled and outdated plugins yield no files.

Reads only state files of the apps. A project's settings can enable or disable nothing but plugins that were installed
for this project.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolcrib.base.files.reading import FileText, read_text
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.servers.places import TABLE, ConfigFiles, Machine, all_places, directory_of
from toolcrib.servers.readers.read import ConfigFile
from toolcrib.servers.syntax import jsonc
from toolcrib.servers.syntax.document import SyntaxProblem

_ORPHANED = ".orphaned_at"
_EXTENSIONS = (("gemini", "gemini-extension"), ("qwen", "qwen-extension"))
MAX_EXTENSIONS = 500


def config_files(around: Machine) -> ConfigFiles:
    """Return every file that may contain servers: the table's, then those of installed plugins and extensions."""
    found = all_places(around)
    state = _State()
    plugins = (*_claude_plugins(around, state), *_extensions(around, state), *_plugin_sources(around, state))
    # Every app prefers its own files to those of plugins.
    ranked = (replace(place, rank=len(TABLE) + index) for index, place in enumerate(plugins))
    return found._replace(files=(*found.files, *ranked), consulted=tuple(state.consulted))


@dataclass(slots=True)
class _State:
    """Reads state files and remembers which, so that a change of one is noticed."""

    consulted: list[Path] = field(default_factory=list[Path])

    def json(self, file: Path) -> Json:
        """Return the content of a JSON file; None if it is missing or invalid."""
        self.consulted.append(file)
        content = read_text(file)
        if not isinstance(content, FileText):
            return None
        try:
            return jsonc.parse(content.text).value
        except SyntaxProblem:
            return None


def _claude_plugins(around: Machine, state: _State) -> Iterator[ConfigFile]:
    """Yield the files of Claude Code's plugins that are installed and enabled."""
    claude = directory_of("{claude}", around)
    if claude is None:
        return
    installed = as_object(at(state.json(claude / "plugins" / "installed_plugins.json"), "plugins"))
    if not installed:
        return
    enabled = _enabled_plugins(around, state, claude)
    markets = as_object(state.json(claude / "plugins" / "known_marketplaces.json")) or {}
    for key, records in installed.items():
        listed = as_list(records)
        for record in [each for item in (listed or [records]) if (each := as_object(item)) is not None]:
            root = _plugin_root(key, record, markets, state)
            if root is not None and _is_enabled(key, record, enabled):
                yield from _plugin_files(key.rpartition("@")[0] or key, root, state)
                break


def _enabled_plugins(around: Machine, state: _State, claude: Path) -> Mapping[str | None, JsonObject]:
    """Return `enabledPlugins` of the user's settings (None), and of each project directory by its path."""
    user = as_object(at(state.json(claude / "settings.json"), "enabledPlugins")) or {}
    found: dict[str | None, JsonObject] = {None: user}
    for directory in around.directories:
        shared, local = (
            as_object(at(state.json(directory / ".claude" / name), "enabledPlugins")) or {}
            for name in ("settings.json", "settings.local.json")
        )
        found |= {path: {**shared, **local} for path in (str(directory), os.path.realpath(directory))}
    return found


def _is_enabled(key: str, record: JsonObject, enabled: Mapping[str | None, JsonObject]) -> bool:
    if as_text(record.get("scope")) in ("project", "local"):
        return enabled.get(as_text(record.get("projectPath")) or "", {}).get(key) is True
    return enabled[None].get(key) is True


def _plugin_root(key: str, record: JsonObject, markets: JsonObject, state: _State) -> Path | None:
    """Return the directory a plugin is loaded from: where it was installed, or its source in a local marketplace."""
    name, _, market = key.rpartition("@")
    known = markets.get(market)
    location = as_text(at(known, "installLocation"))
    if as_text(at(known, "source", "source")) == "directory" and location is not None:
        listed = as_list(at(state.json(Path(location) / ".claude-plugin" / "marketplace.json"), "plugins")) or []
        source = next((as_text(at(item, "source")) for item in listed if at(item, "name") == name), None)
        if source is not None and source.startswith("./"):
            return Path(os.path.normpath(Path(location) / source))
    path = as_text(record.get("installPath"))
    if path is None or not Path(path).is_absolute() or (Path(path) / _ORPHANED).exists():
        return None
    return Path(path)


def _plugin_files(plugin: str, root: Path, state: _State) -> Iterator[ConfigFile]:
    """Yield the manifest, the plugin's `.mcp.json`, and the files that the manifest names in `mcpServers`."""
    manifest = root / ".claude-plugin" / "plugin.json"
    yield ConfigFile("claude-plugin", "user", manifest, plugin=plugin, root=root)
    named = at(state.json(manifest), "mcpServers")
    paths = [text for item in as_list(named) or [named] if (text := as_text(item)) is not None]
    inside = [file for path in paths if (file := _inside(root, path)) is not None]
    for file in dict.fromkeys([root / ".mcp.json", *inside]):
        yield ConfigFile("claude-plugin-mcp", "user", file, plugin=plugin, root=root)


def _plugin_sources(around: Machine, state: _State) -> Iterator[ConfigFile]:
    """Yield the files that the manifests of Codex and Cursor plugins name, for a project that is such a plugin."""
    for directory in around.directories:
        for app in ("codex", "cursor"):
            manifest = directory / f".{app}-plugin" / "plugin.json"
            named = as_text(at(state.json(manifest), "mcpServers")) if manifest.is_file() else None
            file = _inside(directory, named) if named is not None else None
            if file is not None and file not in (directory / ".mcp.json", directory / "mcp.json"):
                yield ConfigFile(f"{app}-plugin-mcp", "project", file, 0, directory, around.project, root=directory)


def _inside(root: Path, path: str) -> Path | None:
    """Return a file that a manifest names, unless it lies outside the plugin."""
    file = Path(os.path.normpath(root / path.replace("${CLAUDE_PLUGIN_ROOT}", str(root))))
    return file if file.is_relative_to(root) else None


def _extensions(around: Machine, state: _State) -> Iterator[ConfigFile]:
    """Yield the manifests of the extensions that Gemini CLI and Qwen Code load in the working directory."""
    for app, format in _EXTENSIONS:
        folder = around.home / f".{app}" / "extensions"
        try:
            directories = sorted(path for path in folder.iterdir() if path.is_dir())[:MAX_EXTENSIONS]
        except OSError:
            continue
        rules = as_object(state.json(folder / "extension-enablement.json")) or {}
        for directory in directories:
            root = _extension_root(directory, app, state)
            manifest = root / f"{app}-extension.json"
            name = as_text(at(state.json(manifest), "name")) or directory.name
            if _applies(as_list(at(rules, name, "overrides")) or [], around):
                yield ConfigFile(format, "user", manifest, root=root)


def _extension_root(directory: Path, app: str, state: _State) -> Path:
    """Return the directory of an extension; a linked one is loaded from its source."""
    link = state.json(directory / f".{app}-extension-install.json")
    source = as_text(at(link, "source"))
    return Path(source) if as_text(at(link, "type")) == "link" and source and Path(source).is_absolute() else directory


def _applies(overrides: list[Json], around: Machine) -> bool:
    """Return whether an extension is enabled in the working directory: the last matching rule decides."""
    cwd = around.directories[0] if around.directories else around.home
    path = f"{str(cwd).rstrip('/')}/"
    enabled = True
    for rule in overrides:
        text = as_text(rule) or ""
        base = text.removeprefix("!").removesuffix("*")
        base = base if base.endswith("/") else f"{base}/"
        if path == base or (text.endswith("*") and path.startswith(base)):
            enabled = not text.startswith("!")
    return enabled
