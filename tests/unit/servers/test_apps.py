"""The table of apps: each app is read from its own files and has a citation, and at least 25 are written."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.servers.discover import discover
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.citations import CITATIONS

_STDIO = {"command": "npx", "args": ["-y", "pkg"]}
_COMMON = json.dumps({"mcpServers": {"s": _STDIO}})
_VSCODE = json.dumps({"servers": {"s": {"type": "stdio", **_STDIO}}})
_AGENT = "mcp:\n  servers:\n    s:\n      command: npx\n      args: ['-y', pkg]\n"
_LIBRECHAT = (
    "version: 1.3.1\ninterface:\n  mcpServers:\n    use: true\n"
    "mcpServers:\n  s:\n    command: npx\n    args:\n      - -y\n      - pkg\n"
)

HOME_FILES = {
    ".config/github-copilot/intellij/mcp.json": ("copilot-jetbrains", _VSCODE),
    ".agents/mcp.json": ("dot-agents", _COMMON),
    ".pi/agent/mcp.json": ("pi", _COMMON),
    ".config/Qoder/SharedClientCache/mcp.json": ("qoder", _COMMON),
    ".qoder/settings.json": ("qoder", _COMMON),
    ".openclaw/openclaw.json": ("openclaw", json.dumps({"mcp": {"servers": {"s": _STDIO}}})),
    ".vibe/config.toml": (
        "vibe",
        '[[mcp_servers]]\nname = "s"\ntransport = "stdio"\ncommand = "npx"\nargs = ["-y", "pkg"]\n',
    ),
    ".iflow/settings.json": ("iflow", _COMMON),
    ".grok/config.toml": ("grok", '[mcp_servers.s]\ncommand = "npx"\nargs = ["-y", "pkg"]\nenabled = true\n'),
    ".kimi/mcp.json": ("kimi", _COMMON),
    ".codebuddy/.mcp.json": ("codebuddy", _COMMON),
    ".openhands/mcp.json": ("openhands", json.dumps({"mcpServers": {"s": {"transport": "stdio", **_STDIO}}})),
    ".rovodev/mcp.json": ("rovodev", json.dumps({"mcpServers": {"s": {"transport": "stdio", **_STDIO}}})),
    ".tabnine/mcp_servers.json": ("tabnine", _COMMON),
    ".tabnine/agent/settings.json": ("tabnine", _COMMON),
    ".kimi-code/mcp.json": ("kimi", _COMMON),
    ".hermes/config.yaml": ("hermes", "mcp_servers:\n  s:\n    command: npx\n    args: ['-y', pkg]\n"),
    ".config/mcphub/servers.json": ("mcphub", _COMMON),
    ".mcphost.json": (
        "mcphost",
        json.dumps({"mcpServers": {"s": {"type": "local", "command": ["npx", "-y", "pkg"]}}}),
    ),
    ".mcphost.yml": ("mcphost", "mcpServers:\n  s:\n    type: local\n    command: [npx, '-y', pkg]\n"),
    ".local/share/Jan/data/mcp_config.json": (
        "jan",
        json.dumps({"mcpServers": {"s": {**_STDIO, "url": "", "active": True}}}),
    ),
    ".config/anythingllm-desktop/storage/plugins/anythingllm_mcp_servers.json": ("anythingllm", _COMMON),
    ".boltai/mcp.json": ("boltai", _COMMON),
    ".omp/mcp.json": ("oh-my-pi", _COMMON),
    ".config/Trae CN/User/mcp.json": ("trae", _COMMON),
    ".aws/amazonq/agents/default.json": ("amazon-q", _COMMON),
}
PROJECT_FILES = {
    ".ai/mcp/mcp.json": ("jetbrains-ai", _COMMON),
    ".air/mcp.json": ("air", _COMMON),
    ".idx/mcp.json": ("firebase-studio", _COMMON),
    ".agents/mcp.json": ("dot-agents", _COMMON),
    ".pi/mcp.json": ("pi", _COMMON),
    ".qoder/mcp.json": ("qoder", _COMMON),
    ".openclaw/openclaw.json": ("openclaw", json.dumps({"mcp": {"servers": {"s": _STDIO}}})),
    ".vibe/config.toml": (
        "vibe",
        '[[mcp_servers]]\nname = "s"\ntransport = "stdio"\ncommand = "npx"\nargs = ["-y", "pkg"]\n',
    ),
    ".windsurf/mcp.json": ("windsurf", _COMMON),
    ".amazonq/agents/default.json": ("amazon-q", _COMMON),
    ".iflow/settings.json": ("iflow", _COMMON),
    ".grok/settings.json": (
        "grok",
        json.dumps({"mcpServers": {"s": {"name": "s", "transport": {"type": "stdio", **_STDIO}}}}),
    ),
    ".kimi/mcp.json": ("kimi", _COMMON),
    ".codebuddy/mcp.json": ("codebuddy", _COMMON),
    ".openhands/mcp.json": ("openhands", _COMMON),
    ".rovodev/mcp.json": ("rovodev", _COMMON),
    ".tabnine/mcp_servers.json": ("tabnine", _COMMON),
    ".kiro/agents/one.json": ("kiro", json.dumps({"name": "one", "mcpServers": {"s": _STDIO}})),
    ".mcphub/servers.json": ("mcphub", _COMMON),
    "librechat.yaml": ("librechat", _LIBRECHAT),
    "fastagent.config.yaml": ("fast-agent", _AGENT),
    "fast-agent.yaml": ("fast-agent", "mcp:\n  targets:\n    - name: s\n      target: npx -y pkg\n"),
    "mcp_agent.config.yaml": ("mcp-agent", _AGENT),
    ".codex-plugin/plugin.json": ("codex", json.dumps({"name": "p", "mcpServers": {"s": _STDIO}})),
    ".cursor-plugin/plugin.json": ("cursor", json.dumps({"name": "p", "mcpServers": {"s": _STDIO}})),
}


def list_servers(root: Path, files: dict[Path, str]) -> list[Any]:
    """Return the servers that are found on a machine with exactly these files."""
    (root / "project" / ".git").mkdir(parents=True)
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    found = discover(
        {}, root / "project", home=root / "home", crib=root / "crib", trusted=lambda _: True, platform="linux"
    )
    assert found.problems == ()
    return list(found.servers)


@pytest.mark.parametrize(
    ("folder", "file", "app", "text"),
    [
        *(("home", file, app, text) for file, (app, text) in HOME_FILES.items()),
        *(("project", file, app, text) for file, (app, text) in PROJECT_FILES.items()),
    ],
)
def test_app_is_read_from_its_own_file(tmp_path: Path, folder: str, file: str, app: str, text: str) -> None:
    [server] = list_servers(tmp_path, {tmp_path / folder / file: text})
    assert (server.source.client, server.name, server.problems) == (app, "s", ())
    assert server.spec is not None
    assert (server.spec.type, server.spec.command, server.spec.args) == ("stdio", "npx", ("-y", "pkg"))
    assert server.source.line is not None


@pytest.mark.parametrize("app", ["codex", "cursor"])
def test_file_named_by_a_plugin_manifest_in_a_project_is_read(tmp_path: Path, app: str) -> None:
    project = tmp_path / "project"
    manifest = json.dumps({"name": "p", "mcpServers": "./servers/mcp.json"})
    [server] = list_servers(
        tmp_path, {project / f".{app}-plugin" / "plugin.json": manifest, project / "servers" / "mcp.json": _COMMON}
    )
    assert (server.source.client, server.source.file) == (app, str(project / "servers" / "mcp.json"))


def test_remote_forms_of_new_apps_are_understood(tmp_path: Path) -> None:
    home = tmp_path / "home"
    vibe = '[[mcp_servers]]\nname = "vibe"\ntransport = "http"\nurl = "https://v"\napi_key_env = "KEY"\n'
    found = list_servers(
        tmp_path,
        {
            home / ".vibe/config.toml": vibe,
            home / ".openclaw/openclaw.json": json.dumps({"mcp": {"servers": {"claw": {"url": "https://c"}}}}),
            home / ".local/share/Jan/data/mcp_config.json": json.dumps(
                {"mcpServers": {"jan": {"command": "", "type": "http", "url": "https://j", "active": False}}}
            ),
            tmp_path / "project" / "fast-agent.yaml": "mcp:\n  targets:\n    - {name: fast, target: 'https://f/mcp'}\n",
        },
    )
    assert {each.name: (each.spec.type, each.enabled) for each in found} == {
        "vibe": ("http", True),
        "claw": ("sse", True),
        "jan": ("http", False),
        "fast": ("http", True),
    }
    assert next(each.spec.header_env for each in found if each.name == "vibe") == {"Authorization": "Bearer ${KEY}"}


def test_at_least_50_apps_are_read_and_25_written_each_with_a_citation() -> None:
    own = {"toolcrib", "mcp-json", "fastmcp", "registry", "mcpb", "kilo-legacy"}
    apps = set(CLIENTS) - own
    assert len(apps) >= 50
    assert len([app for app in apps if CLIENTS[app].writable]) >= 25
    assert set(CITATIONS) == set(CLIENTS) - {"toolcrib"}
