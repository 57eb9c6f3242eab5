"""The Claude Code program: its location, its environment variables, and the wrapper that starts it.

The SDK can add variables to this process's environment but not remove any, so it starts a wrapper that does. Claude
Code and its commands get what a user's program needs, its own settings, and nothing of the crib.

Must never pass a variable that is not listed here.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from toolcrib.agents.sessions.claude.launch import KEPT
from toolcrib.base.files.private import replace_private
from toolcrib.base.processes.start import NETWORK_NAMES
from toolcrib.model.errors import Unavailable

_MESSAGE: Final = re.compile(rb'"type":\s*"(?:user|assistant)"')
_PLAIN: Final = frozenset(
    [
        "PATH",
        "HOME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "COLORTERM",
        "NO_COLOR",
        "ENABLE_TOOL_SEARCH",
        "API_TIMEOUT_MS",
        "BASH_DEFAULT_TIMEOUT_MS",
        "BASH_MAX_TIMEOUT_MS",
        "USE_BUILTIN_RIPGREP",
        *NETWORK_NAMES,
    ]
)
_FAMILIES: Final = ("LC_", "XDG_", "ANTHROPIC_", "CLAUDE_", "DISABLE_", "MCP_", "MAX_")
_CLOUDS: Final = {"CLAUDE_CODE_USE_BEDROCK": ("AWS_",), "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "GCLOUD_", "CLOUD_ML_")}
"""Cloud credentials, passed only if the model is accessed through that cloud."""
_OF_ANOTHER_SESSION: Final = re.compile(
    r"CLAUDE_(PID|EFFORT|ENV_FILE|PROJECT_DIR|AUTO_BACKGROUND_TASKS"
    r"|CODE_(CHILD_SESSION|SESSION_ID|SSE_PORT|EXECPATH|ENTRYPOINT|MESSAGING_\w+|REMOTE\w*|SIMPLE))"
)
"""Variables that a Claude Code session sets for its child processes; a crib started by one does not pass them on."""
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SETTINGS: Final = {
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # a turn ends with its result
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",  # agents have their brain
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "ENABLE_TOOL_SEARCH": "true",  # always set; otherwise a resumed conversation would differ from the original
}


def cli_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Claude Code, including the variable that lists the others for the wrapper."""
    clouds = [family for switch, families in _CLOUDS.items() if environment.get(switch) for family in families]
    families = (*_FAMILIES, *clouds)
    given = {
        name: value
        for name, value in environment.items()
        if (name in _PLAIN or name.startswith(families)) and not _OF_ANOTHER_SESSION.fullmatch(name) and "," not in name
    }
    variables = {**given, **_SETTINGS}
    return {**variables, KEPT: ",".join(sorted(variables))}


def has_kept(environment: Mapping[str, str], conversation: str) -> bool:
    """Return whether Claude Code can resume a conversation with this id, in any directory.

    Its file starts with metadata; Claude Code refuses to resume a conversation without any message.
    """
    moved = environment.get("CLAUDE_CONFIG_DIR")
    config = Path(moved) if moved else Path(environment.get("HOME") or Path.home(), ".claude")
    if not _ID.fullmatch(conversation):
        return False
    return any(map(_has_message, (config / "projects").glob(f"*/{conversation}.jsonl")))


def _has_message(transcript: Path) -> bool:
    with transcript.open("rb") as lines:
        return any(_MESSAGE.search(line) for line in lines)


def find_cli(environment: Mapping[str, str]) -> Path:
    """Return the Claude Code bundled with the SDK, else the installed one. Raises `runner.missing`."""
    sdk = find_spec("claude_agent_sdk")
    for place in (sdk.submodule_search_locations or ()) if sdk is not None else ():
        bundled = Path(place, "_bundled", "claude")
        if bundled.is_file():
            return bundled
    installed = shutil.which("claude", path=environment.get("PATH", os.defpath))
    if installed is None:
        raise Unavailable("runner.missing", "Claude Code is not installed.")
    return Path(installed)


def write_wrapper(folder: Path, cli: Path) -> Path:
    """Write the wrapper for this Claude Code atomically, since other processes may be starting it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wrapper = folder / "claude"
    launch = Path(__file__).with_name("launch.py")
    command = shlex.join([sys.executable, "-I", "-S", str(launch), str(cli)])
    text = f'#!/bin/sh\nexec {command} "$@"\n'
    if not wrapper.is_file() or wrapper.read_text(encoding="utf-8") != text:
        replace_private(wrapper, text.encode(), 0o700)
    return wrapper
