"""Tools of the server `toolcrib` for jobs: work to do later, once or repeatedly.

A job is a schedule and visible as one. `builtin.scheduling` checks permissions.
"""

from typing import Annotated

from pydantic import Field

from toolcrib.builtin.scheduling import Draft, Scheduling
from toolcrib.tools import Context, Inject, tool

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
