"""The built-in server `toolcrib`: information about the crib, its sessions, servers, settings and jobs.

The handlers are plain functions with explicit dependencies, so that tests need no server. Combines the modules of this
package into one server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.builtin.scheduling import Draft, Scheduling
from toolcrib.builtin.toolcrib.configuration import Configuration, get_config, set_config
from toolcrib.builtin.toolcrib.servers import ServerDirectory, list_servers
from toolcrib.builtin.toolcrib.sessions import (
    SessionDirectory,
    get_session_count,
    get_session_details,
    list_active_sessions,
)
from toolcrib.model.json import JsonObject
from toolcrib.model.version import __version__
from toolcrib.tools import Context, Inject, Provider, ToolServer, tool

SchedulingOf = Annotated[Scheduling, Inject]


@tool(title="Create a job")
async def create_job(
    prompt: Annotated[str, "The prompt; the agent does not see this conversation."],
    cron: Annotated[str | None, "Repeatedly: a cron expression with five fields, such as 0 9 * * 1-5."] = None,
    at: Annotated[str | None, "Once: a time such as 2026-11-16T09:00:00+01:00."] = None,
    timezone: Annotated[str | None, "The time zone of cron. Default: UTC."] = None,
    agent: Annotated[str | None, "The agent to run; an agent can only name itself."] = None,
    name: Annotated[str | None, "The name."] = None,
    max_minutes: Annotated[int | None, "Maximum duration of a run. Default: 30.", Field(ge=1, le=1440)] = None,
    *,
    scheduling: SchedulingOf,
    context: Annotated[Context, Inject],
) -> dict[str, object]:
    """Schedule a prompt for an agent, once (at) or by a cron expression. Use it for work that should not run now.

    Its runs never have more rights than you have. Returns the job with its id, its cadence in words, the next runs, and
    problems that would make a run fail.
    """
    draft = Draft(name, agent, prompt, cron, timezone, None, at, max_minutes=max_minutes)
    return await scheduling.shown(await scheduling.create(context.principal, draft))


@tool(read_only=True, title="List jobs")
async def list_jobs(*, scheduling: SchedulingOf, context: Annotated[Context, Inject]) -> dict[str, object]:
    """List your jobs and schedules. Use it to find the id of a job. Returns all fields of each."""
    return {"jobs": [await scheduling.shown(each) for each in await scheduling.list(context.principal)]}


@tool(destructive=True, title="Delete a job")
async def delete_job(
    id: Annotated[str, "The job's id."], *, scheduling: SchedulingOf, context: Annotated[Context, Inject]
) -> dict[str, object]:
    """Delete a job that you created, with its history; a running run continues. Returns its id."""
    return {"deleted": (await scheduling.remove(context.principal, id)).id}


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
