"""Claude Code and Gemini CLI install, disable and uninstall plugins; Toolcrib lists the servers that they load."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from long_tests import takes_long
from toolcrib.agents.sessions.claude.program import find_cli
from toolcrib.model.errors import Unavailable
from toolcrib.servers.discover import discover
from toolcrib.testing.environments import bare_environment

pytestmark = takes_long

_LISTED = re.compile(r"^(plugin:\S+?): (\S+)", re.MULTILINE)


class Marketplace:
    """A local marketplace with two plugins, and a user of Claude Code."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.project = root / "market", root / "home", root / "project"
        for directory in (self.home, self.project / ".git"):
            directory.mkdir(parents=True)
        try:
            self._claude = str(find_cli(bare_environment(self.home)))
        except Unavailable as error:
            pytest.skip(error.message)
        self.release("1.0.0")
        self.claude("plugin", "marketplace", "add", str(self.root))

    def release(self, version: str) -> None:
        """Write this version of the plugins."""
        inline = {"one": {"command": "${CLAUDE_PLUGIN_ROOT}/inline"}}
        manifests = {"alpha": {"mcpServers": inline}, "beta": {"mcpServers": "./list.json"}}
        listed = [{"name": name, "source": f"./{name}", "version": version} for name in manifests]
        market = {"name": "shop", "owner": {"name": "me"}, "plugins": listed}
        self._write(self.root / ".claude-plugin" / "marketplace.json", market)
        for name, manifest in manifests.items():
            described = {"name": name, "version": version, "description": name, **manifest}
            self._write(self.root / name / ".claude-plugin" / "plugin.json", described)
            self._write(self.root / name / ".mcp.json", {"two": {"command": f"${{CLAUDE_PLUGIN_ROOT}}/{version}"}})
        named = {"mcpServers": {"three": {"command": "${CLAUDE_PLUGIN_ROOT}/listed"}}}
        self._write(self.root / "beta" / "list.json", named)

    def claude(self, *arguments: str) -> str:
        """Run Claude Code."""
        quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "IS_SANDBOX": "1"}
        done = subprocess.run(
            [self._claude, *arguments],
            cwd=self.project,
            env={**bare_environment(self.home), **quiet},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout

    def check(self, *expected: str) -> None:
        """Compare Claude Code's list with Toolcrib's: names and commands."""
        listed_by_claude = dict(_LISTED.findall(self.claude("mcp", "list")))
        assert sorted(listed_by_claude) == sorted(expected)
        found = discover(
            {}, self.project, home=self.home, crib=self.home / ".crib", trusted=lambda _: True, platform="linux"
        )
        listed_by_toolcrib = {
            entry.name: entry.spec.command.replace("${CLAUDE_PLUGIN_ROOT}", entry.source.root or "")
            for entry in found.servers
            if entry.spec is not None and entry.spec.command is not None
        }
        assert listed_by_toolcrib == listed_by_claude

    @staticmethod
    def _write(file: Path, value: object) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")


def test_plugins_are_listed_as_claude_code_lists_them(tmp_path: Path) -> None:
    market = Marketplace(tmp_path)
    market.check()
    for name in ("alpha", "beta"):
        market.claude("plugin", "install", f"{name}@shop")
    beta = ("plugin:beta:three", "plugin:beta:two")
    market.check("plugin:alpha:one", "plugin:alpha:two", *beta)
    market.claude("plugin", "disable", "alpha@shop")
    market.check(*beta)
    market.release("1.1.0")
    market.claude("plugin", "marketplace", "update", "shop")
    market.claude("plugin", "update", "beta@shop")
    market.check(*beta)
    market.claude("plugin", "enable", "alpha@shop")
    market.claude("plugin", "uninstall", "beta@shop")
    market.check("plugin:alpha:one", "plugin:alpha:two")


def test_extensions_are_listed_while_gemini_cli_loads_them(tmp_path: Path, client_programs: Path) -> None:
    home, project, extension = tmp_path / "home", tmp_path / "home" / "project", tmp_path / "extension"
    for directory in (home / ".gemini", project / ".git", extension):
        directory.mkdir(parents=True)
    (home / ".gemini" / "settings.json").write_text('{"security": {"folderTrust": {"enabled": false}}}', "utf-8")
    manifest = {"name": "mine", "version": "1.0.0", "mcpServers": {"found": {"command": "${extensionPath}/run"}}}
    (extension / "gemini-extension.json").write_text(json.dumps(manifest), encoding="utf-8")

    def gemini(*arguments: str) -> str:
        done = subprocess.run(
            [str(client_programs / "gemini"), *arguments],
            cwd=project,
            env=dict(bare_environment(home)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout + done.stderr

    def listed() -> tuple[bool, bool]:
        found = discover({}, project, home=home, crib=home / ".crib", trusted=lambda _: True, platform="linux")
        # `gemini mcp list` also has the servers of disabled extensions, which a session does not start.
        is_loaded = "Enabled (Workspace): true" in gemini("extensions", "list")
        return is_loaded, [entry.name for entry in found.servers] == ["found"]

    assert listed() == (False, False)
    for change, expected in (
        (("link", str(extension), "--consent"), True),
        (("disable", "mine", "--scope", "user"), False),
        (("enable", "mine", "--scope", "user"), True),
        (("uninstall", "mine"), False),
    ):
        output = gemini("extensions", *change)
        assert listed() == (expected, expected), output
