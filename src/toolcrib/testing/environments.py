"""The environment of programs under test: what they need to run, and nothing that belongs to whoever runs the tests.

Above: `cribs` and `plugin`. Below: `settings`, which alone reads the environment. Values only; nothing is set here.
"""

from pathlib import Path

from toolcrib.settings import Environment

KEPT = frozenset({"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"})
"""Variables without which programs do not run, or not as well."""


def bare_environment(home: Path) -> Environment:
    """What is needed to start programs, with this HOME."""
    current = Environment.current()
    return Environment({**{name: current[name] for name in KEPT & current.keys()}, "HOME": str(home)})


def claude_environment(home: Path, model: str) -> Environment:
    """The same for Claude Code, which then thinks with the model at this address and asks for nothing else.

    It tries once, so that failures show at once. `IS_SANDBOX` is there since it refuses some modes to root without.
    """
    return Environment(
        {
            **bare_environment(home),
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
    )
