"""Checks the runtimes of agents: Claude Code and its sign-in, other coding agents, optional extras.

Makes no network request. A sign-in is recognised by the files and variables it leaves on this machine.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from toolcrib.agents.sessions.claude.program import find_cli
from toolcrib.agents.sessions.programs import Programs
from toolcrib.doctor.finding import Finding, of_problem
from toolcrib.doctor.surroundings import Surroundings
from toolcrib.gate.search.embeddings import unusable
from toolcrib.model.errors import Unavailable

_KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)
_EXTRAS = {
    "claude": ("claude_agent_sdk", "agent sessions with Claude Code"),
    "acp": ("acp", "sessions with other coding agents"),
    "code": ("tree_sitter", "tools that search source code"),
    "monty": ("pydantic_monty", "programs that call tools (code mode)"),
    "keyring": ("keyring", "sign-ins in the system's keyring"),
    "otel": ("opentelemetry.proto", "traces, metrics and logs by OTLP"),
    "postgres": ("psycopg", "PostgreSQL as the database"),
    "sandbox": ("nono_py", "sandboxes for stdio servers"),
    "search": ("model2vec", "search for tools by meaning"),
}


def check_claude(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that Claude Code is installed and signed in."""
    if importlib.util.find_spec("claude_agent_sdk") is None:
        message = "The Claude Agent SDK is not installed, so agents cannot run sessions with Claude Code."
        yield Finding("claude", "note", message, fix="pip install 'toolcrib[claude]'")
        return
    try:
        cli = find_cli(surroundings.environment)
    except Unavailable as error:
        yield Finding("claude", "warning", error.message, fix="npm install -g @anthropic-ai/claude-code")
        return
    signed_in = _signed_in(surroundings)
    if signed_in is None:
        message = "Claude Code is not signed in, so agent sessions will fail."
        fix = "Run `claude` and sign in with /login, or set ANTHROPIC_API_KEY."
        yield Finding("claude", "warning", message, str(cli), fix)
    else:
        yield Finding("claude", "ok", f"Claude Code is installed; signed in by {signed_in}.", str(cli))


def _signed_in(surroundings: Surroundings) -> str | None:
    key = next((name for name in _KEYS if surroundings.environment.get(name)), None)
    if key is not None:
        return key
    moved = surroundings.environment.get("CLAUDE_CONFIG_DIR")
    file = Path(moved) / ".credentials.json" if moved else surroundings.user_home / ".claude" / ".credentials.json"
    if file.is_file():
        return str(file)
    return "the keychain (not verified)" if sys.platform == "darwin" else None


def check_agents(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the coding agents configured in `toolcrib.toml` are valid."""
    for problem in Programs(surroundings.home.settings_file).read().wrong.values():
        yield of_problem("agents", "warning", problem)


def check_search(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that the model in `search_model` can be used; without one, the search ranks by words."""
    model = surroundings.settings.search_model
    if model is None:
        return
    if reason := unusable(model):
        message = f"The search ranks by words only. {reason}"
        fix = "pip install 'toolcrib[search]', and set search_model to the directory of a model (docs/search.md)."
        yield Finding("search", "warning", message, str(model), fix)
    else:
        yield Finding("search", "ok", "The search also ranks by meaning.", str(model))


def check_extras(surroundings: Surroundings) -> Iterator[Finding]:
    """List optional extras that are not installed; a missing extra is not an error."""
    missing = [name for name, (module, _) in _EXTRAS.items() if importlib.util.find_spec(module) is None]
    evidence = "; ".join(f"{name}: {_EXTRAS[name][1]}" for name in missing)
    if missing:
        fix = f"pip install 'toolcrib[{','.join(missing)}]'"
        yield Finding("extras", "note", f"Not installed: {', '.join(missing)}.", evidence, fix)
    else:
        yield Finding("extras", "ok", "All optional extras are installed.")
