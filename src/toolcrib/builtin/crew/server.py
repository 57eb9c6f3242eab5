"""The built-in server `crew`: tools for agents to cooperate and work on their own, within limits.

Combines the domain modules into one server. A tool whose `requires` names a missing service is not offered, and `why`
names the service.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from toolcrib.builtin.crew import (
    code,
    credits,
    github,
    library,
    memory,
    messages,
    owner,
    projects,
    schedules,
    session,
    work,
)
from toolcrib.tools import Provider, ToolServer

SERVER: Final = "crew"
DOMAINS: Final = (messages, memory, library, session, projects, credits, schedules, work, owner, code, github)
CONDITIONS: Final = {
    "github": "a GitHub token: set `github_token` in the settings",
    "runtime": "a runtime for agents: pip install 'toolcrib[claude]'",
    "symbols": "tree-sitter: pip install 'toolcrib[code]'",
}
"""What tools may require, and how to provide it."""

__all__ = ["CONDITIONS", "DOMAINS", "SERVER", "crew_server"]


def crew_server(providers: Mapping[Any, Provider | Callable[..., Any]]) -> ToolServer:
    """Return the server with these providers, by injected type."""
    return ToolServer(
        SERVER,
        tools=[tool for domain in DOMAINS for tool in domain.TOOLS],
        providers=providers,
        kind="builtin",
        conditions=CONDITIONS,
        title="Crew",
        instructions="Tools for agents: message each other, remember, share knowledge, ask and notify the owner.",
    )
