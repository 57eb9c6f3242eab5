"""A machine with twelve apps, each with a handwritten file."""

import stat
from dataclasses import dataclass
from pathlib import Path

from change_recorders import Unrecorded
from toolcrib.base.home import Home, prepare_home
from toolcrib.base.settings import Environment
from toolcrib.gate.principals import NamedTokens
from toolcrib.servers.apps.apps import AppDeps, Apps
from toolcrib.servers.servers import Servers
from toolcrib.store.engine import Store

ADDRESS = "http://127.0.0.1:4242"

FILES: dict[str, tuple[str, str]] = {
    "claude-code": (
        ".claude.json",
        '{\n  "numStartups": 7,\n  "mcpServers": {},\n  "projects": {"/x": {"a": [1, 2]}}\n}\n',
    ),
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        '{\n\t"globalShortcut": "Ctrl+Space",\n\t"mcpServers": {\n\t\t"files": {"command": "files-server"}\n\t}\n}',
    ),
    "cursor": (
        ".cursor/mcp.json",
        '{\n  // mine\n  "mcpServers": {\n    "b": {"url": "https://b.example/mcp"}, // b\n  },\n}\n',
    ),
    "vscode": (
        ".config/Code/User/mcp.json",
        '{\r\n  "inputs": [{"id": "k", "type": "promptString"}],\r\n  "servers": { /* none */ }\r\n}\r\n',
    ),
    "codex": (
        ".codex/config.toml",
        'model = "o5" # best\n\n[mcp_servers.docs]\ncommand = "docs"\n\n[projects."/x"]\ntrust_level = "trusted"\n',
    ),
    "gemini": (".gemini/settings.json", '{\n    // theme\n    "theme": "GitHub"\n}\n'),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        '{\n  "$schema": "https://opencode.ai/config.json",\n  "model": "x/y"\n}\n',
    ),
    "windsurf": (
        ".codeium/windsurf/mcp_config.json",
        '{"mcpServers": {"a": {"command": "a", "disabledTools": ["x"]}}}',
    ),
    "zed": (
        ".config/zed/settings.json",
        '// Zed\n{\n  "vim_mode": true,\n  "context_servers": {\n    "x": {"command": "x", "args": []}\n  }\n}\n',
    ),
    "cline": (".cline/data/settings/cline_mcp_settings.json", '{\n  "mcpServers": {}\n}\n'),
    "copilot-cli": (
        ".copilot/mcp-config.json",
        '{\n  "mcpServers": {\n    "z": {"type": "local", "command": "z", "tools": ["*"]}\n  }\n}\n',
    ),
    "goose": (
        ".config/goose/config.yaml",
        "# goose\nGOOSE_MODEL: m\nextensions:\n  developer:\n    type: builtin # part of it\n    enabled: true\n",
    ),
}
"""The file of each app, with its content."""


@dataclass
class AppsMachine:
    """A user's home with apps, and a crib."""

    root: Path
    store: Store
    address: str | None = ADDRESS

    @property
    def user(self) -> Path:
        """The user's home directory."""
        return self.root / "user"

    @property
    def home(self) -> Home:
        """The home of the crib."""
        return prepare_home(self.root / "crib")

    def file(self, client: str) -> Path:
        """Return the file of an app."""
        return self.user / FILES[client][0]

    def install(self, client: str, text: str | None = None, mode: int = 0o644) -> Path:
        """Install an app with its file."""
        file = self.file(client)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((FILES[client][1] if text is None else text).encode())
        file.chmod(mode)
        return file

    async def apps(self) -> "tuple[Apps, NamedTokens, Servers]":
        """Return the crib's apps, tokens and servers."""
        environment = Environment({"HOME": str(self.user), "PATH": str(self.root / "programs")})
        servers = Servers(self.home, environment, self.user, lambda _, __: None, Unrecorded())
        tokens = NamedTokens(self.store)
        await tokens.refresh()
        program = self.root / "programs" / "toolcrib"
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        deps = AppDeps(
            crib=self.home.root,
            address=lambda: self.address,
            command=(str(program),),
            home=str(self.home.root),
            environment=environment,
        )
        return Apps(servers, tokens, deps), tokens, servers


def mode(file: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(file.stat().st_mode)
