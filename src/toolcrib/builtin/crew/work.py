"""Crew tools for work tasks: create one, and check its state.

A program creates tasks in or below its own directory and sees its own tasks; a person is not restricted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import anyio
from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.agents.work.work import NewTask, Work
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.builtin.caller import Calling, as_creator, check_depth, speaker
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.errors import Denied, InvalidRequest, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionLimits
from toolcrib.model.work import Task, WorkState
from toolcrib.tools import Inject, tool

LONGEST_MINUTES: Final = 240
USUAL_MINUTES: Final = 30
LONGEST_DESCRIPTION: Final = 32_000
_SHOWN: Final = 300


class GivenTask(TypedDict):
    """The answer of the tools about one task."""

    task: JsonObject


class ListedTasks(TypedDict):
    """The answer to `crib_list_work_tasks`."""

    tasks: list[JsonObject]


@dataclass(frozen=True, slots=True)
class WorkService:
    """Work tasks on behalf of a caller; `cwd` is the default directory for callers without one.

    `is_closed` returns whether a directory is in the crib's home, for a caller.
    """

    work: Work
    zoo: Zoo
    is_person: Callable[[Principal], bool]
    cwd: Callable[[], str]
    is_closed: Callable[[str, Principal], bool]

    async def give(
        self, principal: Principal, description: str, project: str | None, agent: str | None, minutes: int
    ) -> Task:
        """Start a task. Raises `crew.too_deep`, `agent.unknown`, `work.…`."""
        check_depth(principal)
        is_person = self.is_person(principal)
        own = str(await anyio.Path(principal.cwd or self.cwd()).resolve())
        place = str(await anyio.Path(own, project or "").resolve())
        if not is_person and place != own and not is_inside(place, own):
            raise Denied("work.elsewhere", f"{project} is not in {own}, where {speaker(principal)} works.")
        if await anyio.to_thread.run_sync(self.is_closed, place, principal):
            raise Denied("work.elsewhere", f"{place} is in the crib's home, which is closed to agents.")
        doer = agent or principal.agent
        if doer is None:
            raise InvalidRequest("request.invalid", "Which agent is to do it?", "Give the ID of one.")
        return await self.work.create(
            NewTask(
                description=description,
                project=place,
                agent=(await self.zoo.get(doer)).agent,
                limits=SessionLimits(seconds=minutes * 60.0),
                created_by=speaker(principal),
                creator=None if is_person else as_creator(principal),
            )
        )

    async def find(self, principal: Principal, id: str) -> Task:
        """Return a task visible to the caller; raise `work.unknown`."""
        task = await self.work.get(id)
        if not self._sees(principal, task):
            raise NotFound("work.unknown", f"There is no work task {id!r}.")
        return task

    async def list(self, principal: Principal, state: WorkState | None, limit: int) -> list[Task]:
        """Return the tasks visible to the caller, newest first."""
        return [task for task in await self.work.list(state) if self._sees(principal, task)][:limit]

    def _sees(self, principal: Principal, task: Task) -> bool:
        creator = task.creator
        if self.is_person(principal) or (principal.agent is not None and principal.agent == task.agent):
            return True
        if creator is None:
            return False
        if principal.agent is not None:
            return creator.agent == principal.agent
        return creator.agent is None and creator.identity == principal.identity


Desk = Annotated[WorkService, Inject]


@tool(title="Give a work task", requires="runtime", timeout=300)
async def crib_create_work_task(
    description: Annotated[
        str, "What is to be done, with all one has to know.", Field(min_length=1, max_length=LONGEST_DESCRIPTION)
    ],
    project: Annotated[str | None, "A directory of a git repository; where you work if not given."] = None,
    agent: Annotated[str | None, "ID of the agent that does it; you yourself if not given."] = None,
    max_minutes: Annotated[int, "How long it may take.", Field(ge=1, le=LONGEST_MINUTES)] = USUAL_MINUTES,
    *,
    desk: Desk,
    context: Calling,
) -> GivenTask:
    """Have a task done in the background, on a git branch of its own.

    Use it for work on code that should not disturb the files here, or that can go on while you do something else. An
    agent works in a fresh copy of the last commit, never with more rights than you have; changes that are not committed
    are not part of it. Returns the task at once, with its id and branch; see how it goes with crib_check_work_status.
    Limits: a git repository with a commit, 4 tasks at once, 240 minutes.
    """
    return {"task": (await desk.give(context.principal, description, project, agent, max_minutes)).to_json()}


@tool(title="Check a work task", read_only=True, requires="runtime")
async def crib_check_work_status(
    task_id: Annotated[str, "The task's id."], *, desk: Desk, context: Calling
) -> GivenTask:
    """Say how a work task stands. Use it for a task you gave; it may take many minutes, so do not ask all the time.

    Returns the task: state (running, completed, failed, limit, interrupted), and once it has ended result (what the
    agent said last), diff (what differs on its branch, as git diff --stat tells it), reason if something was wrong.
    """
    return {"task": (await desk.find(context.principal, task_id)).to_json()}


@tool(title="List work tasks", read_only=True, requires="runtime")
async def crib_list_work_tasks(
    status: Annotated[WorkState | None, "Only those that stand so."] = None,
    limit: Annotated[int, "At most so many.", Field(ge=1, le=100)] = 20,
    *,
    desk: Desk,
    context: Calling,
) -> ListedTasks:
    """List the work tasks you gave or do, the newest first. Use it to find the id of one.

    Returns each without its result and diff, and with the beginning of its description.
    """
    found = await desk.list(context.principal, status, limit)
    return {"tasks": [_short(task.to_json()) for task in found]}


def _short(shape: JsonObject) -> JsonObject:
    kept = {key: value for key, value in shape.items() if key not in ("result", "diff")}
    return {**kept, "description": shape["description"][:_SHOWN]}


TOOLS = (crib_create_work_task, crib_check_work_status, crib_list_work_tasks)
