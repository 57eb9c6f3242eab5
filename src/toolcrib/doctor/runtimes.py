"""Checks of what agents run on: Claude Code and its sign-in, other coding agents, and what can be installed besides.

Above: `examine`. Below: `sessions.programs`. Nobody is asked over the network; a sign-in is known by what it left here.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from toolcrib.doctor.finding import Finding, of_problem
from toolcrib.doctor.ground import Ground
from toolcrib.errors import Unavailable
from toolcrib.sessions.claude.program import find_cli
from toolcrib.sessions.programs import Programs

_KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)
_EXTRAS = {
    "claude": ("claude_agent_sdk", "sessions of agents with Claude Code"),
    "acp": ("acp", "sessions with other coding agents"),
    "code": ("tree_sitter", "tools that look through source code"),
    "keyring": ("keyring", "sign-ins in the system's keyring"),
    "postgres": ("psycopg", "PostgreSQL as the database"),
}


def check_claude(ground: Ground) -> Iterator[Finding]:
    """Claude Code is there and somebody is signed in."""
    if importlib.util.find_spec("claude_agent_sdk") is None:
        message = "The Claude Agent SDK is not installed, so agents have no sessions with Claude Code."
        yield Finding("claude", "note", message, fix="pip install 'toolcrib[claude]'")
        return
    try:
        cli = find_cli(ground.environment)
    except Unavailable as error:
        yield Finding("claude", "warning", error.message, fix="npm install -g @anthropic-ai/claude-code")
        return
    signed_in = _signed_in(ground)
    if signed_in is None:
        message = "Nobody is signed in to Claude Code, so sessions of agents will fail."
        fix = "Run `claude` and sign in with /login, or set ANTHROPIC_API_KEY."
        yield Finding("claude", "warning", message, str(cli), fix)
    else:
        yield Finding("claude", "ok", f"Claude Code is there; sign-in by {signed_in}.", str(cli))


def _signed_in(ground: Ground) -> str | None:
    key = next((name for name in _KEYS if ground.environment.get(name)), None)
    if key is not None:
        return key
    moved = ground.environment.get("CLAUDE_CONFIG_DIR")
    file = Path(moved) / ".credentials.json" if moved else ground.user_home / ".claude" / ".credentials.json"
    if file.is_file():
        return str(file)
    return "the keychain, as far as one can see" if sys.platform == "darwin" else None


def check_agents(ground: Ground) -> Iterator[Finding]:
    """What `toolcrib.toml` says of other coding agents can be used."""
    for problem in Programs(ground.home.settings_file).read().wrong.values():
        yield of_problem("agents", "warning", problem)


def check_extras(ground: Ground) -> Iterator[Finding]:
    """What could be installed besides; no lack of it is wrong."""
    missing = [name for name, (module, _) in _EXTRAS.items() if importlib.util.find_spec(module) is None]
    told = "; ".join(f"{name}: {_EXTRAS[name][1]}" for name in missing)
    if missing:
        fix = f"pip install 'toolcrib[{','.join(missing)}]'"
        yield Finding("extras", "note", f"Not installed: {', '.join(missing)}.", told, fix)
    else:
        yield Finding("extras", "ok", "Everything that can be added is installed.")
