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
    action: Annotated[Action, "What to do."],
    id: Annotated[str | None, "The schedule; not needed to list and create."] = None,
    name: Annotated[str | None, "What it is called."] = None,
    prompt: Annotated[str | None, "What the agent is told at each run; it sees nothing of this conversation."] = None,
    cron: Annotated[str | None, "When: five cron fields, such as 0 9 * * 1-5."] = None,
    timezone: Annotated[str | None, "The time zone of cron, such as Europe/Berlin; UTC if not given."] = None,
    every_minutes: Annotated[int | None, "When: every so many minutes.", Field(ge=1)] = None,
    at: Annotated[str | None, "When: once, at this moment, such as 2026-11-16T09:00:00+01:00."] = None,
    agent: Annotated[str | None, "Who does it; an agent can only name itself."] = None,
    mode: Annotated[Mode | None, "The mode of its sessions; what would have to be asked is refused there."] = None,
    tools: Annotated[list[str] | None, "Tools (server/tool) it cannot do without; checked before each run."] = None,
    max_minutes: Annotated[int | None, "How long a run may take; 30 if not given.", Field(ge=1, le=1440)] = None,
    max_cost_usd: Annotated[float | None, "What a run may cost.", Field(gt=0)] = None,
    limit: Annotated[int, "How many runs the history shows.", Field(ge=1, le=200)] = 20,
    *,
    scheduling: Annotated[Scheduling, Inject],
    context: Calling,
) -> Managed:
    """List, create, update, get, pause, resume or delete schedules, or show the history of one.

    Use it to do something later or again and again with no person present. Give exactly one of cron, every_minutes and
    at. Runs have source scheduler, with its blocks, and never more rights than you have now. Returns the schedule with
    when in words, the next runs and its readiness: problems listed there would make a run fail. Limits: 20 schedules,
    for yourself only; you change what you made, and resume what you paused.
    """
    who = context.principal
    draft = Draft(name, agent, prompt, cron, timezone, every_minutes, at, mode, tools, max_minutes, max_cost_usd)
    match action:
        case "list":
            return {"schedules": [await scheduling.shown(each) for each in await scheduling.list(who)]}
        case "history":
            return {"runs": [run.to_json() for run in await scheduling.history(who, id, limit)]}
        case "delete":
            return {"deleted": (await scheduling.remove(who, id)).id}
        case "create":
            found = await scheduling.create(who, draft)
        case "update":
            found = await scheduling.change(who, id, draft)
        case "pause":
            found = await scheduling.pause(who, id)
        case "resume":
            found = await scheduling.resume(who, id)
        case "get":
            found = await scheduling.get(who, id)
    return {"schedule": await scheduling.shown(found)}


TOOLS = (crib_manage_schedule,)
