"""The built-in server `crew`: what agents need to work together and on their own, inside limits.

One module for each domain, plain functions with injected services; here they become one server. All of them are always
part of it; one whose `requires` names a service that is not there is not offered, and `why` says which it lacks.

Above: the host registers it with providers of the services. Below: the modules of the domains.
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
"""What tools here may require, and how one has it."""

__all__ = ["CONDITIONS", "DOMAINS", "SERVER", "crew_server"]


def crew_server(providers: Mapping[Any, Provider | Callable[..., Any]]) -> ToolServer:
    """The server on these services: what a tool is injected → how it is had."""
    return ToolServer(
        SERVER,
        tools=[tool for domain in DOMAINS for tool in domain.TOOLS],
        providers=providers,
        kind="builtin",
        conditions=CONDITIONS,
        title="Crew",
        instructions="Agents of one crib: ask each other, remember, share what you know, ask and tell the owner.",
    )
