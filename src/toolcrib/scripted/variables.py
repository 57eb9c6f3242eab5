"""The variables by which Claude Code thinks with a scripted model, and asks for nothing else.

Above: `testing` and demonstrations put them into the environment of what they start. Values only; nothing is set here.
"""

from typing import Final

NEEDED: Final = frozenset({"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"})
"""Variables without which programs do not run, or not as well."""


def claude_variables(model: str) -> dict[str, str]:
    """For Claude Code with the model at this address.

    It tries once, so that failures show at once. `IS_SANDBOX` is there since it refuses some modes to root without.
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
