"""The crew tool for schedules: an agent schedules its own work. `builtin.scheduling` checks permissions."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.builtin.caller import Calling
from toolcrib.builtin.scheduling import Draft, Scheduling
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.tools import Inject, tool

Action = Literal["list", "create", "update", "get", "pause", "resume", "history", "delete"]


class Managed(TypedDict):
    """The answer to `crib_manage_schedule`: what the action is about."""

    schedules: NotRequired[list[JsonObject]]
    schedule: NotRequired[JsonObject]
    runs: NotRequired[list[JsonObject]]
    deleted: NotRequired[str]


@tool(destructive=True, title="Manage schedules")
async def crib_manage_schedule(
    action: Annotated[Action, "The action."],
    id: Annotated[str | None, "The schedule; not needed to list and create."] = None,
    name: Annotated[str | None, "The name."] = None,
    prompt: Annotated[str | None, "The prompt of each run; the agent does not see this conversation."] = None,
    cron: Annotated[str | None, "When: a cron expression with five fields, such as 0 9 * * 1-5."] = None,
    timezone: Annotated[str | None, "The time zone of cron, such as Europe/Berlin. Default: UTC."] = None,
    every_minutes: Annotated[int | None, "When: an interval in minutes.", Field(ge=1)] = None,
    at: Annotated[str | None, "When: once, at this time, such as 2026-11-16T09:00:00+01:00."] = None,
    agent: Annotated[str | None, "The agent to run; an agent can only name itself."] = None,
    mode: Annotated[Mode | None, "The mode of its sessions; calls that need an approval are denied there."] = None,
    tools: Annotated[list[str] | None, "Required tools (server/tool); checked before each run."] = None,
    max_minutes: Annotated[int | None, "Maximum duration of a run. Default: 30.", Field(ge=1, le=1440)] = None,
    max_cost_usd: Annotated[float | None, "Maximum cost of a run.", Field(gt=0)] = None,
    limit: Annotated[int, "Number of runs in the history.", Field(ge=1, le=200)] = 20,
    *,
    scheduling: Annotated[Scheduling, Inject],
    context: Calling,
) -> Managed:
    """List, create, update, get, pause, resume or delete schedules, or show the history of one.

    Use it to run something later or repeatedly, without a person. Give exactly one of cron, every_minutes and at. Runs
    have source scheduler, with its blocks, and never more rights than you have now. Returns the schedule with its
    cadence in words, the next runs and its readiness: the problems listed there would make a run fail. Limits: 20
    schedules, for yourself only; you can change those you created, and resume those you paused.
    """
    requester = context.principal
    draft = Draft(name, agent, prompt, cron, timezone, every_minutes, at, mode, tools, max_minutes, max_cost_usd)
    match action:
        case "list":
            return {"schedules": [await scheduling.shown(each) for each in await scheduling.list(requester)]}
        case "history":
            return {"runs": [run.to_json() for run in await scheduling.history(requester, id, limit)]}
        case "delete":
            return {"deleted": (await scheduling.remove(requester, id)).id}
        case "create":
            found = await scheduling.create(requester, draft)
        case "update":
            found = await scheduling.change(requester, id, draft)
        case "pause":
            found = await scheduling.pause(requester, id)
        case "resume":
            found = await scheduling.resume(requester, id)
        case "get":
            found = await scheduling.get(requester, id)
    return {"schedule": await scheduling.shown(found)}


TOOLS = (crib_manage_schedule,)
