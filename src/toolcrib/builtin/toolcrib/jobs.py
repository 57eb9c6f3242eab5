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
    prompt: Annotated[str, "What the agent is told; it sees nothing of this conversation."],
    cron: Annotated[str | None, "Again and again: five cron fields, such as 0 9 * * 1-5."] = None,
    at: Annotated[str | None, "Once: a moment such as 2026-11-16T09:00:00+01:00."] = None,
    timezone: Annotated[str | None, "The time zone of cron; UTC if not given."] = None,
    agent: Annotated[str | None, "Who does it; an agent can only name itself."] = None,
    name: Annotated[str | None, "What it is called."] = None,
    max_minutes: Annotated[int | None, "How long a run may take; 30 if not given.", Field(ge=1, le=1440)] = None,
    *,
    scheduling: SchedulingOf,
    context: Annotated[Context, Inject],
) -> dict[str, object]:
    """Have an agent do something later, once (at) or by a cron expression. Use it when work should not be done now.

    Its runs never have more rights than you have. Returns the job with its id, when in words, the next runs, and what
    would stand in the way of one.
    """
    draft = Draft(name, agent, prompt, cron, timezone, None, at, max_minutes=max_minutes)
    return await scheduling.shown(await scheduling.create(context.principal, draft))


@tool(read_only=True, title="List jobs")
async def list_jobs(*, scheduling: SchedulingOf, context: Annotated[Context, Inject]) -> dict[str, object]:
    """List the jobs and schedules there are for you. Use it to find the id of one. Returns all about each."""
    return {"jobs": [await scheduling.shown(each) for each in await scheduling.list(context.principal)]}


@tool(destructive=True, title="Delete a job")
async def delete_job(
    id: Annotated[str, "The job's id."], *, scheduling: SchedulingOf, context: Annotated[Context, Inject]
) -> dict[str, object]:
    """Delete a job that you made, with its history; a run under way goes on. Returns its id."""
    return {"deleted": (await scheduling.remove(context.principal, id)).id}
