"""The table of apps: one row per format.

To add an app, add a row here and its files to `servers.places`. It needs a new function only if its layout or field
names are unique.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolcrib.servers.readers import layouts, published, rules, translate
from toolcrib.servers.readers.dialect import Dialect, no_rules

_STRICT = frozenset({"comments", "trailing commas"})
_STRICT_NO_BOM = frozenset({"comments", "trailing commas", "byte order mark"})
_COMMENTS_ONLY = frozenset({"trailing commas"})
_COMMENTS_NO_BOM = frozenset({"trailing commas", "byte order mark"})


def _common(client: str, title: str, **rest: object) -> Dialect:
    return replace(Dialect(client, title, layouts.by_name, translate.as_written), **rest)  # pyright: ignore[reportArgumentType] - fields of Dialect


_VSCODE_ROOTS = (("servers",),)
_AGENT_FRAMEWORK: Mapping[str, object] = {
    "family": "yaml",
    "roots": (("mcp", "servers"),),
    "dedicated": False,
    "seconds": True,
    "variables": "braces",
}
_ROWS: tuple[Dialect, ...] = (
    _common("toolcrib", "Toolcrib", switch="enabled", variables="toolcrib"),
    _common("claude-code", "Claude Code", refuses=_STRICT, needs_type=True, cwd=False, variables="claude"),
    _common("claude-desktop", "Claude Desktop", refuses=_STRICT_NO_BOM, variables="none"),
    _common("cursor", "Cursor", variables="vscode"),
    _common("vscode", "VS Code", roots=_VSCODE_ROOTS, variables="vscode"),
    _common("visual-studio", "Visual Studio", roots=_VSCODE_ROOTS, variables="vscode"),
    _common("copilot-cli", "Copilot CLI", find=layouts.by_name_or_bare, variables="copilot"),
    _common("windsurf", "Windsurf", switch="disabled", variables="env-colon"),
    _common(
        "zed",
        "Zed",
        find=layouts.zed,
        translate=translate.zed,
        roots=(("context_servers",),),
        dedicated=False,
        switch="enabled",
        seconds=True,
    ),
    _common(
        "codex",
        "Codex",
        translate=translate.codex,
        family="toml",
        roots=(("mcp_servers",),),
        dedicated=False,
        switch="enabled",
        seconds=True,
        merges=True,
    ),
    _common("gemini", "Gemini CLI", rules=rules.gemini, dedicated=False, refuses=_COMMENTS_NO_BOM, variables="dollar"),
    _common(
        "qwen",
        "Qwen Code",
        rules=rules.gemini,
        dedicated=False,
        refuses=_COMMENTS_ONLY,
        untyped="sse",
        variables="dollar-plain",
    ),
    _common(
        "opencode",
        "opencode",
        find=layouts.opencode,
        translate=translate.opencode,
        roots=(("mcp",),),
        dedicated=False,
        needs_type=True,
        switch="enabled",
        merges=True,
        variables="opencode",
    ),
    _common(
        "kilo",
        "Kilo",
        find=layouts.opencode,
        translate=translate.opencode,
        roots=(("mcp",),),
        dedicated=False,
        needs_type=True,
        switch="enabled",
        merges=True,
        cwd=False,
        variables="opencode",
    ),
    _common(
        "kilo-legacy",
        "Kilo (before 7)",
        refuses=_STRICT_NO_BOM,
        needs_type=True,
        switch="disabled",
        seconds=True,
        cwd=False,
    ),
    _common(
        "cline",
        "Cline",
        translate=translate.cline,
        refuses=_STRICT,
        untyped="sse",
        switch="disabled",
        seconds=True,
        variables="env-colon",
    ),
    _common("roo", "Roo Code", refuses=_STRICT, needs_type=True, switch="disabled", seconds=True, variables="vscode"),
    _common(
        "continue",
        "Continue",
        find=layouts.continue_,
        translate=translate.continue_,
        family="yaml",
        dedicated=False,
        variables="continue",
    ),
    _common(
        "goose",
        "Goose",
        find=layouts.goose,
        translate=translate.goose,
        family="yaml",
        roots=(("extensions",),),
        dedicated=False,
        switch="enabled",
        seconds=True,
        variables="goose",
    ),
    _common("junie", "Junie"),
    _common("amp", "Amp", roots=(("amp.mcpServers",),), dedicated=False, variables="braces"),
    _common("kiro", "Kiro", switch="disabled", variables="braces"),
    _common("lm-studio", "LM Studio"),
    _common(
        "warp",
        "Warp",
        find=layouts.warp,
        roots=(("mcpServers",), ("servers",), ("mcp_servers",), ("mcp", "servers")),
        variables="warp",
    ),
    _common(
        "crush",
        "Crush",
        translate=translate.crush,
        roots=(("mcp",),),
        dedicated=False,
        switch="disabled",
        seconds=True,
        merges=True,
        variables="crush",
    ),
    _common("oh-my-pi", "oh-my-pi", rules=rules.oh_my_pi, refuses=_STRICT, switch="enabled", variables="oh-my-pi"),
    _common("factory", "Factory droid", refuses=_COMMENTS_NO_BOM, switch="disabled", cwd=False, variables="factory"),
    _common("trae", "Trae", variables="vscode"),
    _common("antigravity", "Antigravity", refuses=frozenset({"byte order mark"}), switch="disabled"),
    _common("amazon-q", "Amazon Q", switch="disabled", variables="env-colon-env"),
    _common("auggie", "Auggie", dedicated=False, refuses=frozenset({"byte order mark"}), switch="disabled"),
    _common("air", "JetBrains Air", variables="braces"),
    _common("anythingllm", "AnythingLLM"),
    _common("boltai", "BoltAI"),
    _common("codebuddy", "CodeBuddy", switch="disabled", variables="braces"),
    _common("copilot-jetbrains", "GitHub Copilot for JetBrains", roots=_VSCODE_ROOTS, variables="vscode"),
    _common("dot-agents", "the .agents folder", variables="braces"),
    _common("fast-agent", "fast-agent", find=layouts.fast_agent, writable=False, **_AGENT_FRAMEWORK),
    _common("firebase-studio", "Firebase Studio", variables="braces"),
    _common(
        "grok",
        "Grok Build",
        translate=translate.grok,
        family="toml",
        roots=(("mcp_servers",),),
        dedicated=False,
        switch="enabled",
        variables="claude",
    ),
    _common(
        "hermes", "Hermes", family="yaml", roots=(("mcp_servers",),), dedicated=False, switch="enabled", seconds=True
    ),
    _common(
        "iflow",
        "iFlow CLI",
        rules=rules.gemini,
        dedicated=False,
        refuses=_COMMENTS_ONLY,
        untyped="sse",
        variables="dollar-plain",
    ),
    _common("jan", "Jan", translate=translate.jan, switch="active"),
    _common("jetbrains-ai", "JetBrains AI Assistant", variables="braces"),
    _common("kimi", "Kimi Code CLI", translate=translate.kimi, switch="enabled"),
    _common("librechat", "LibreChat", family="yaml", dedicated=False, untyped="sse", variables="librechat"),
    _common("mcp-agent", "mcp-agent", writable=False, **_AGENT_FRAMEWORK),
    _common("mcphost", "MCPHost", translate=translate.mcphost, dedicated=False, variables="mcphost"),
    _common("mcphub", "MCP Hub for Neovim", switch="disabled", variables="mcphub"),
    _common("openclaw", "OpenClaw", roots=(("mcp", "servers"),), dedicated=False, untyped="sse", switch="enabled"),
    _common("openhands", "OpenHands CLI", switch="enabled"),
    _common("pi", "Pi", variables="braces"),
    _common("qoder", "Qoder", switch="disabled"),
    _common("rovodev", "Rovo Dev CLI", dedicated=False),
    _common("tabnine", "Tabnine", rules=rules.gemini, dedicated=False, variables="dollar"),
    _common(
        "vibe",
        "Mistral Vibe",
        find=layouts.vibe,
        translate=translate.vibe,
        family="toml",
        roots=(("mcp_servers",),),
        dedicated=False,
        writable=False,
    ),
    _common("mcp-json", "a plain mcp.json", switch="enabled", variables="claude"),
    _common("fastmcp", "FastMCP", find=published.fastmcp, writable=False, dedicated=False, variables="braces"),
    _common(
        "registry", "the MCP registry", find=published.registry, writable=False, dedicated=False, variables="claude"
    ),
    _common("mcpb", "MCPB", find=published.mcpb, writable=False, dedicated=False, variables="mcpb"),
)

CLIENTS: Mapping[str, Dialect] = {row.client: row for row in _ROWS}
"""Every app by its name, as used by `--client` and shown in `sources`."""

_CLAUDE, _VSCODE = CLIENTS["claude-code"], CLIENTS["vscode"]
_MANIFEST: Mapping[str, Any] = {
    "find": layouts.claude_plugin,
    "family": "json",
    "roots": (("mcpServers",),),
    "dedicated": False,
    "writable": False,
    "merges": False,
    "variables": "claude-plugin",
}
_PLUGIN_FILE: Mapping[str, Any] = {**_MANIFEST, "find": layouts.by_name_or_bare, "dedicated": True}

FORMATS: Mapping[str, Dialect] = {
    **CLIENTS,
    "claude-state": replace(_CLAUDE, find=layouts.claude_state, dedicated=False, needs_type=True),
    "claude-settings": replace(
        _CLAUDE,
        find=layouts.settings_only,
        rules=rules.claude,
        dedicated=False,
        writable=False,
        fix='Move it to "mcpServers" in .mcp.json of the project, or in ~/.claude.json.',
    ),
    "claude-plugin": replace(
        _CLAUDE, find=layouts.claude_plugin, dedicated=False, writable=False, variables="claude-plugin"
    ),
    "claude-plugin-mcp": replace(_CLAUDE, find=layouts.by_name_or_bare, writable=False, variables="claude-plugin"),
    "claude-dir": replace(CLIENTS["oh-my-pi"], title="oh-my-pi (Claude's folder)"),
    "gemini-extension": replace(CLIENTS["gemini"], writable=False, variables="gemini-extension"),
    "qwen-extension": replace(CLIENTS["qwen"], writable=False, variables="gemini-extension"),
    "vscode-settings": replace(_VSCODE, roots=(("mcp", "servers"), ("mcp.servers",)), dedicated=False),
    "devcontainer": replace(_VSCODE, roots=(("customizations", "vscode", "mcp", "servers"),), dedicated=False),
    "crush-script": replace(CLIENTS["crush"], find=layouts.script, family="script", writable=False),
    "pasted": replace(
        CLIENTS["mcp-json"], title="a pasted text", find=layouts.by_name_or_bare, writable=False, variables="pasted"
    ),
    "continue-json": replace(CLIENTS["continue"], family="json"),
    "amazon-q-agent": replace(CLIENTS["amazon-q"], dedicated=False),
    "kiro-agent": replace(CLIENTS["kiro"], dedicated=False),
    "codex-plugin": replace(CLIENTS["codex"], **_MANIFEST, translate=translate.as_written, seconds=False),
    "codex-plugin-mcp": replace(CLIENTS["codex"], **_PLUGIN_FILE, translate=translate.as_written, seconds=False),
    "cursor-plugin": replace(CLIENTS["cursor"], **_MANIFEST),
    "cursor-plugin-mcp": replace(CLIENTS["cursor"], **_PLUGIN_FILE),
    "grok-settings": replace(
        CLIENTS["grok"], title="Grok CLI", translate=translate.cline, family="json", roots=(("mcpServers",),)
    ),
    "tabnine-servers": replace(CLIENTS["tabnine"], rules=no_rules, dedicated=True),
    "qoder-settings": replace(CLIENTS["qoder"], title="Qoder CLI", dedicated=False),
}
"""The formats of files: the apps' main ones, and their other files under separate names."""
