"""The built-in server `toolcrib`: is the crib there, what is it, who is at work in it, how is it configured.

The handlers are plain functions of explicit dependencies, so that a test needs no server. Those about sessions, servers
and settings stand in modules of their own; here they become one server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib.builtin.configuration import Configuration, get_config, set_config
from toolcrib.builtin.jobs import create_job, delete_job, list_jobs
from toolcrib.builtin.scheduling import Scheduling
from toolcrib.builtin.servers import ServerDirectory, list_servers
from toolcrib.builtin.sessions import (
    SessionDirectory,
    get_session_count,
    get_session_details,
    list_active_sessions,
)
from toolcrib.model.json import JsonObject
from toolcrib.tools import Inject, Provider, ToolServer, tool
from toolcrib.version import __version__


@dataclass(frozen=True, slots=True)
class CribFacts:
    """What the crib knows of itself. `port` is 0 while it does not listen."""

    port: int
    started_at: datetime
    cwd: str


@dataclass(frozen=True, slots=True)
class Services:
    """Where the handlers get what they need: facts are asked for on every call, the others once, at the first."""

    facts: Callable[[], CribFacts]
    sessions: Callable[[], SessionDirectory]
    servers: Callable[[], ServerDirectory]
    configuration: Callable[[], Configuration]
    scheduling: Callable[[], Scheduling]


class Pong(TypedDict):
    """The answer to `ping`."""

    status: str
    timestamp: str
    server: str


@tool(read_only=True, always_load=True)
async def ping() -> Pong:
    """Check that the crib answers. Use it to test the connection. Returns status "pong", a timestamp and the server."""
    return {"status": "pong", "timestamp": datetime.now(UTC).isoformat(), "server": "toolcrib"}


@tool(read_only=True, always_load=True)
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


def toolcrib_server(services: Services) -> ToolServer:
    """The server on these services."""
    return ToolServer(
        "toolcrib",
        tools=[
            ping,
            get_server_info,
            get_session_count,
            list_active_sessions,
            get_session_details,
            list_servers,
            get_config,
            set_config,
            create_job,
            list_jobs,
            delete_job,
        ],
        providers={
            CribFacts: Provider(services.facts, scope="call"),
            SessionDirectory: services.sessions,
            ServerDirectory: services.servers,
            Configuration: services.configuration,
            Scheduling: services.scheduling,
        },
        kind="builtin",
    )
