"""Builds the Claude Agent SDK's options from a brief: the tools and the hooks, without the user's settings.

Claude Code runs in `plan` or `default`, never in a mode in which it decides itself: the gate enforces session modes. It
reads no settings of the user or the project, since these bring their own hooks and servers.

Must never allow a tool here.
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

from toolcrib.agents.sessions.claude.hooks import ClaudeHooks
from toolcrib.agents.sessions.claude.servers import SessionSdkServer
from toolcrib.agents.sessions.runtime import Brief
from toolcrib.base.files.private import replace_private
from toolcrib.model.principals import Mode

LONGEST_LINE: Final = 32 * 1_048_576
"""Bytes of one message of Claude Code; the SDK ends a session with a longer one."""
LONGEST_ARGUMENT: Final = 64 * 1024
"""Bytes of a prompt on the command line; longer ones go into a file, since systems limit arguments."""
_SETTINGS: Final = json.dumps({"permissions": {"disableAutoMode": "disable"}})


@dataclass(frozen=True, slots=True)
class Start:
    """The conversation to start: a new one, a resumed one, or a fork with a new id."""

    runtime: str
    resume: str | None = None
    is_fork: bool = False

    @classmethod
    def of(cls, brief: Brief, is_kept: bool) -> "Start":
        """Return the start for a brief; `is_kept` is whether Claude Code has the conversation to resume."""
        if brief.resume is None or (brief.fork and not is_kept):
            return cls(str(uuid.uuid4()))
        if brief.fork:
            return cls(str(uuid.uuid4()), brief.resume, is_fork=True)
        return cls(brief.resume, brief.resume if is_kept else None)


@dataclass(frozen=True, slots=True)
class ClaudeLaunch:
    """How Claude Code is started: the wrapper, the environment variables, and the directory for files."""

    wrapper: Path
    variables: Mapping[str, str]
    folder: Path


def permission_mode(mode: Mode) -> PermissionMode:
    """Return Claude Code's own mode: `plan`, or `default`, in which the hooks and the gate decide."""
    return "plan" if mode == "plan" else "default"


def build_options(
    brief: Brief,
    start: Start,
    setting: ClaudeLaunch,
    servers: Mapping[str, SessionSdkServer],
    hooks: ClaudeHooks,
    stderr: Callable[[str], None] | None = None,
) -> ClaudeAgentOptions:
    """Build the options. A long prompt is written to a file."""
    prompt: SystemPromptPreset = {"type": "preset", "preset": "claude_code", "snapshot": False}
    extra: dict[str, str | None] = {}
    if len(brief.prompt.encode()) > LONGEST_ARGUMENT:
        extra["append-system-prompt-file"] = str(_prompt_file(setting.folder, brief.prompt))
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
        # Prompts may come from other agents and programs: `@path` must not read files and `/…` not run commands,
        # bypassing the gate.
        verbatim_prompts=True,
        max_buffer_size=LONGEST_LINE,
        env=dict(setting.variables),
        cli_path=setting.wrapper,
        stderr=stderr,
    )


def _prompt_file(folder: Path, prompt: str) -> Path:
    """Return the file with a prompt, named by its hash: conversations with the same prompt share it."""
    path = folder / f"prompt-{hashlib.sha256(prompt.encode()).hexdigest()[:32]}.md"
    if not path.exists():
        replace_private(path, prompt.encode())
    return path
