"""Environment variables for Claude Code with a scripted model and no other network.

Only returns values; the process environment is not changed.
"""

from typing import Final

NEEDED: Final = frozenset({"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"})
"""Variables that programs need to run properly."""


def claude_variables(model: str) -> dict[str, str]:
    """Return the variables for Claude Code with the model at this URL.

    No retries, so that failures show immediately. Without `IS_SANDBOX`, Claude Code refuses some modes as root.
    """
    return {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",
    }
