"""The built-in server `toolcrib`: information about the crib, its sessions, servers, settings and jobs.

The handlers are plain functions with explicit dependencies, so that tests need no server. Combines the modules of this
package into one server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from typing_extensions import TypedDict

from toolcrib.builtin.scheduling import Scheduling
from toolcrib.builtin.toolcrib.configuration import Configuration, get_config, set_config
from toolcrib.builtin.toolcrib.jobs import create_job, delete_job, list_jobs
from toolcrib.builtin.toolcrib.servers import ServerDirectory, list_servers
from toolcrib.builtin.toolcrib.sessions import (
    SessionDirectory,
    get_session_count,
    get_session_details,
    list_active_sessions,
)
from toolcrib.model.json import JsonObject
from toolcrib.model.version import __version__
from toolcrib.tools import Inject, Provider, ToolServer, tool


@dataclass(frozen=True, slots=True)
class CribFacts:
    """Facts about the crib. `port` is 0 while it does not listen."""

    port: int
    started_at: datetime
    cwd: str


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
    include_uptime: Annotated[bool, "Also return for how many seconds the crib has been running."] = False,
    *,
    facts: Annotated[CribFacts, Inject],
) -> dict[str, object]:
    """Identify this crib. Use it to find product, version and port. Returns product, port and version."""
    answer: JsonObject = {"product": "Toolcrib", "port": facts.port, "version": __version__}
    if include_uptime:
        answer["uptime_seconds"] = int((datetime.now(UTC) - facts.started_at).total_seconds())
    return answer


def toolcrib_server(
    *,
    facts: Callable[[], CribFacts],
    sessions: SessionDirectory,
    servers: ServerDirectory,
    configuration: Configuration,
    scheduling: Scheduling,
) -> ToolServer:
    """Return the server with these services. `facts` is called for every call."""
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
            CribFacts: Provider(facts, scope="call"),
            SessionDirectory: lambda: sessions,
            ServerDirectory: lambda: servers,
            Configuration: lambda: configuration,
            Scheduling: lambda: scheduling,
        },
        kind="builtin",
    )
