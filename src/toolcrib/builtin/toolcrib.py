"""The built-in server `toolcrib`: is the crib there, what is it, how many sessions are there.

The handlers are plain functions of explicit dependencies, so that a test needs no server.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib.model.json import JsonObject
from toolcrib.tools import Context, Inject, Provider, ToolServer, tool
from toolcrib.version import __version__


@dataclass(frozen=True, slots=True)
class CribFacts:
    """What the crib knows of itself. `port` is 0 while it does not listen."""

    port: int
    started_at: datetime
    cwd: str


@dataclass(frozen=True, slots=True)
class SessionCounter:
    """Counts the sessions of a working directory."""

    count: Callable[[str], Awaitable[int]]


class Pong(TypedDict):
    """The answer to `ping`."""

    status: str
    timestamp: str
    server: str


class SessionsCounted(TypedDict):
    """The answer to `get_session_count`."""

    count: int
    cwd: str


@tool(read_only=True, always_load=True)
async def ping() -> Pong:
    """Check that the crib answers. Use it to test the connection. Returns status "pong", a timestamp and the server."""
    return {"status": "pong", "timestamp": datetime.now(UTC).isoformat(), "server": "toolcrib"}


@tool(read_only=True)
async def get_server_info(
    include_uptime: Annotated[bool, "Also say for how many seconds the crib has been running."] = False,
    *,
    facts: Annotated[CribFacts, Inject],
) -> dict[str, object]:
    """Say which crib this is. Use it to find out product, version and port. Returns product, port and version."""
    answer: JsonObject = {"product": "Toolcrib", "port": facts.port, "version": __version__}
    if include_uptime:
        answer["uptime_seconds"] = int((datetime.now(UTC) - facts.started_at).total_seconds())
    return answer


@tool(read_only=True)
async def get_session_count(
    *,
    context: Annotated[Context, Inject],
    facts: Annotated[CribFacts, Inject],
    sessions: Annotated[SessionCounter, Inject],
) -> SessionsCounted:
    """Count the agent sessions of the working directory. Returns the count and the directory."""
    cwd = context.principal.cwd or facts.cwd
    return {"count": await sessions.count(cwd), "cwd": cwd}


def toolcrib_server(facts: Callable[[], CribFacts], sessions: SessionCounter) -> ToolServer:
    """The server, with where its handlers get what they need; facts are asked for on every call."""
    return ToolServer(
        "toolcrib",
        tools=[ping, get_server_info, get_session_count],
        providers={CribFacts: Provider(facts, scope="call"), SessionCounter: lambda: sessions},
        kind="builtin",
    )
