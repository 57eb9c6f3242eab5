"""Plugins and extensions: only what their app would load is found, with the app's names and the right root."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.model.servers import Discovery
from toolcrib.servers.discover import discover
from toolcrib.servers.resolve import resolve
from toolcrib.servers.secret_commands import SecretCommands

RUN = "${CLAUDE_PLUGIN_ROOT}/run"


class ClaudeSetup:
    """A user of Claude Code with plugins, and a project."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        (self.project / ".git").mkdir(parents=True)
        self.plugins = self.home / ".claude" / "plugins"

    def write(self, file: Path, value: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, indent=2), encoding="utf-8")

    def cached(self, name: str, version: str = "1.0.0") -> Path:
        """Create a version of a plugin in the cache, with one server in its `.mcp.json`."""
        root = self.plugins / "cache" / "shop" / name / version
        self.write(root / ".claude-plugin" / "plugin.json", {"name": name, "version": version})
        self.write(root / ".mcp.json", {"files": {"command": RUN}})
        return root

    def install(self, *records: tuple[str, Path], enabled: bool | None = True, **rest: str) -> None:
        """Record installed plugins, and whether the settings enable them."""
        listed = {f"{name}@shop": [{"scope": "user", "installPath": str(root), **rest}] for name, root in records}
        self.write(self.plugins / "installed_plugins.json", {"version": 2, "plugins": listed})
        switches = {} if enabled is None else dict.fromkeys(listed, enabled)
        self.write(self.home / ".claude" / "settings.json", {"enabledPlugins": switches})

    def found(self) -> Discovery:
        return discover(
            {"HOME": str(self.home)}, self.project, home=self.home, crib=self.home / ".crib", trusted=lambda _: True
        )

    def names(self) -> list[str]:
        return [entry.name for entry in self.found().servers]


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeSetup:
    return ClaudeSetup(tmp_path)


def test_servers_of_plugins_with_different_roots_are_different(claude: ClaudeSetup) -> None:
    claude.install(("one", claude.cached("one")), ("two", claude.cached("two")))
    assert claude.names() == ["plugin:one:files", "plugin:two:files"]


@pytest.mark.parametrize("enabled", [False, None], ids=["disabled", "never enabled"])
def test_plugin_that_is_not_enabled_offers_nothing(claude: ClaudeSetup, enabled: bool | None) -> None:
    claude.install(("one", claude.cached("one")), enabled=enabled)
    assert claude.names() == []


def test_only_the_installed_version_of_a_plugin_counts(claude: ClaudeSetup) -> None:
    old, new = claude.cached("one", "1.0.0"), claude.cached("one", "1.1.0")
    claude.cached("gone")
    claude.write(old / ".orphaned_at", 0)
    claude.install(("one", new))
    assert [entry.source.file for entry in claude.found().servers] == [str(new / ".mcp.json")]
    claude.write(new / ".orphaned_at", 0)
    assert claude.names() == []


@pytest.mark.parametrize(
    "servers",
    [
        {"files": {"command": RUN}},
        "./servers/list.json",
        "${CLAUDE_PLUGIN_ROOT}/servers/list.json",
        ["servers/list.json"],
    ],
    ids=["inline", "relative", "rooted", "listed"],
)
@pytest.mark.anyio
async def test_manifest_defines_servers_or_names_their_file(claude: ClaudeSetup, servers: Any) -> None:
    root = claude.cached("one")
    (root / ".mcp.json").unlink()
    claude.write(root / ".claude-plugin" / "plugin.json", {"name": "one", "mcpServers": servers})
    claude.write(root / "servers" / "list.json", {"mcpServers": {"files": {"command": RUN}}})
    claude.install(("one", root))
    [entry] = claude.found().servers
    assert (entry.name, entry.problems) == ("plugin:one:files", ())
    assert entry.spec is not None
    assert (await resolve(entry.spec, {}, SecretCommands({}))).command == str(root / "run")


def test_manifest_cannot_name_a_file_outside_the_plugin(claude: ClaudeSetup) -> None:
    root = claude.cached("one")
    claude.write(root / ".claude-plugin" / "plugin.json", {"name": "one", "mcpServers": "../../../secret.json"})
    claude.write(root.parents[2] / "secret.json", {"mcpServers": {"stolen": {"command": "x"}}})
    claude.install(("one", root))
    assert claude.names() == ["plugin:one:files"]


def test_plugin_of_a_local_marketplace_is_loaded_from_its_source(claude: ClaudeSetup, tmp_path: Path) -> None:
    market = tmp_path / "market"
    plugins = [{"name": "one", "source": "./plugins/one"}]
    claude.write(market / ".claude-plugin" / "marketplace.json", {"name": "shop", "plugins": plugins})
    claude.write(market / "plugins" / "one" / ".mcp.json", {"live": {"command": RUN}})
    known = {"shop": {"source": {"source": "directory", "path": str(market)}, "installLocation": str(market)}}
    claude.write(claude.plugins / "known_marketplaces.json", known)
    claude.install(("one", claude.cached("one")))
    assert claude.names() == ["plugin:one:live"]


def test_plugin_of_a_project_counts_only_in_it_while_enabled(claude: ClaudeSetup, tmp_path: Path) -> None:
    root = claude.cached("one")
    claude.install(("one", root), enabled=None, scope="project", projectPath=str(claude.project))
    settings = claude.project / ".claude" / "settings.json"
    claude.write(settings, {"enabledPlugins": {"one@shop": True}})
    assert claude.names() == ["plugin:one:files"]
    claude.write(settings, {"enabledPlugins": {"one@shop": False}})
    assert claude.names() == []


def test_project_cannot_enable_a_plugin_of_the_user(claude: ClaudeSetup) -> None:
    claude.install(("one", claude.cached("one")), enabled=False)
    claude.write(claude.project / ".claude" / "settings.json", {"enabledPlugins": {"one@shop": True}})
    assert claude.names() == []


@pytest.mark.parametrize("app", ["gemini", "qwen"])
@pytest.mark.parametrize(
    ("overrides", "count"),
    [([], 1), (["!{root}/*"], 0), (["!{root}/*", "{root}/project/*"], 1), (["!{root}/elsewhere/*"], 1)],
)
def test_extension_counts_where_it_is_enabled(
    claude: ClaudeSetup, tmp_path: Path, app: str, overrides: list[str], count: int
) -> None:
    folder = claude.home / f".{app}" / "extensions"
    claude.write(
        folder / "mine" / f"{app}-extension.json",
        {"name": "mine", "mcpServers": {"ext": {"command": "${extensionPath}/x"}}},
    )
    rules = [rule.format(root=tmp_path) for rule in overrides]
    claude.write(folder / "extension-enablement.json", {"mine": {"overrides": rules}})
    assert len(claude.names()) == count


def test_linked_extension_is_read_from_its_source(claude: ClaudeSetup, tmp_path: Path) -> None:
    claude.write(
        claude.home / ".gemini" / "extensions" / "mine" / ".gemini-extension-install.json",
        {"type": "link", "source": str(tmp_path / "source")},
    )
    claude.write(
        tmp_path / "source" / "gemini-extension.json", {"name": "mine", "mcpServers": {"ext": {"command": "x"}}}
    )
    assert claude.names() == ["ext"]
