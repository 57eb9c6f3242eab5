"""A brief as options of the Claude Agent SDK: the tools, the hooks, and nothing of the user's settings.

Claude Code is started in `plan` or in `default`, never in a mode in which it decides by itself: the modes of sessions
are the gate's. It reads no settings of the user or of the project, since those bring hooks and servers of their own.

Above: `runner`, and whoever drives the SDK in a loop of their own. Below: the SDK. It must never allow a tool here.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk.types import McpServerConfig, PermissionMode, SystemPromptPreset

from toolcrib.model.principals import Mode
from toolcrib.sessions.claude.hooks import Hooks
from toolcrib.sessions.claude.program import put_whole
from toolcrib.sessions.claude.servers import SdkServer
from toolcrib.sessions.runner import Brief

LONGEST_LINE: Final = 32 * 1_048_576
"""Bytes of one message of Claude Code; the SDK ends a session that says more."""
LONGEST_ARGUMENT: Final = 64 * 1024
"""Bytes of a prompt on a command line; a longer one is put into a file, since systems bound their arguments."""
_SETTINGS: Final = json.dumps({"permissions": {"disableAutoMode": "disable"}})


@dataclass(frozen=True, slots=True)
class Start:
    """Which conversation is begun: a new one by its id, one that is gone on with, or a copy of that under a new id."""

    runtime: str
    resume: str | None = None
    is_fork: bool = False

    @classmethod
    def of(cls, brief: Brief, is_kept: bool) -> "Start":
        """The start that a brief asks for; `is_kept` says whether Claude Code has the conversation to go on with."""
        if brief.resume is None or (brief.fork and not is_kept):
            return cls(str(uuid.uuid4()))
        if brief.fork:
            return cls(str(uuid.uuid4()), brief.resume, is_fork=True)
        return cls(brief.resume, brief.resume if is_kept else None)


@dataclass(frozen=True, slots=True)
class Setting:
    """How Claude Code is started here: by which wrapper, with which variables, with which folder for files."""

    wrapper: Path
    variables: Mapping[str, str]
    folder: Path


def permission_mode(mode: Mode) -> PermissionMode:
    """The mode for Claude Code itself: in `plan` it is told to plan, all else is between the hooks and the gate."""
    return "plan" if mode == "plan" else "default"


def build_options(
    brief: Brief,
    start: Start,
    setting: Setting,
    servers: Mapping[str, SdkServer],
    hooks: Hooks,
    stderr: Callable[[str], None] | None = None,
) -> ClaudeAgentOptions:
    """The options. A long prompt is written into the folder."""
    prompt: SystemPromptPreset = {"type": "preset", "preset": "claude_code", "snapshot": False}
    extra: dict[str, str | None] = {}
    if len(brief.prompt.encode()) > LONGEST_ARGUMENT:
        extra["append-system-prompt-file"] = str(_written(setting.folder, brief.prompt))
    elif brief.prompt:
        prompt["append"] = brief.prompt
    return ClaudeAgentOptions(
        system_prompt=prompt,
        extra_args=extra,
        cwd=brief.cwd,
        model=brief.model,
        tools=list(brief.own_tools),
        mcp_servers={name: cast(McpServerConfig, server) for name, server in servers.items()},
        strict_mcp_config=True,
        setting_sources=[],
        settings=_SETTINGS,
        permission_mode=permission_mode(brief.mode),
        can_use_tool=hooks.confirm,
        hooks=hooks.matchers(),
        resume=start.resume,
        fork_session=start.is_fork,
        session_id=None if start.resume == start.runtime else start.runtime,
        max_turns=brief.limits.turns,
        max_budget_usd=brief.limits.cost_usd,
        include_partial_messages=True,
        forward_subagent_text=True,
        # What is sent may come from other agents and from programs: `@path` must not read files for them, nor `/…` run
        # commands, past the gate.
        verbatim_prompts=True,
        max_buffer_size=LONGEST_LINE,
        env=dict(setting.variables),
        cli_path=setting.wrapper,
        stderr=stderr,
    )


def _written(folder: Path, prompt: str) -> Path:
    """The file with a prompt, named by its contents: conversations with the same prompt share it."""
    path = folder / f"prompt-{hashlib.sha256(prompt.encode()).hexdigest()[:32]}.md"
    if not path.exists():
        put_whole(path, prompt, 0o600)
    return path
