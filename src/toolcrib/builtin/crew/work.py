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
            raise InvalidRequest("request.invalid", "The task has no agent.", "Give the ID of an agent.")
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
        return creator.agent is None and (creator.kind, creator.name) == (principal.kind, principal.name)


Service = Annotated[WorkService, Inject]


@tool(title="Create a work task", requires="runtime", timeout=300)
async def crib_create_work_task(
    description: Annotated[str, "The task, with all context.", Field(min_length=1, max_length=LONGEST_DESCRIPTION)],
    project: Annotated[str | None, "A directory of a git repository. Default: your working directory."] = None,
    agent: Annotated[str | None, "ID of the agent for the task. Default: yourself."] = None,
    max_minutes: Annotated[int, "Maximum duration in minutes.", Field(ge=1, le=LONGEST_MINUTES)] = USUAL_MINUTES,
    *,
    service: Service,
    context: Calling,
) -> GivenTask:
    """Run a task in the background, on its own git branch.

    Use it for work on code that should not change the files here, or that can run while you do something else. An agent
    works in a fresh copy of the last commit, without uncommitted changes, and never with more rights than you have.
    Returns the task immediately, with its id and branch; check it with crib_check_work_status.
    Limits: a git repository with a commit, 4 tasks at once, 240 minutes.
    """
    return {"task": (await service.give(context.principal, description, project, agent, max_minutes)).to_json()}


@tool(title="Check a work task", read_only=True, requires="runtime")
async def crib_check_work_status(
    task_id: Annotated[str, "The task's id."], *, service: Service, context: Calling
) -> GivenTask:
    """Show the state of a work task. Use it for a task you created; it may take many minutes, so do not poll often.

    Returns the task: state (running, completed, failed, limit, interrupted), and once it has ended result (the agent's
    last message), diff (the changes on its branch, as git diff --stat), and reason if it failed.
    """
    return {"task": (await service.find(context.principal, task_id)).to_json()}


@tool(title="List work tasks", read_only=True, requires="runtime")
async def crib_list_work_tasks(
    status: Annotated[WorkState | None, "Only tasks in this state."] = None,
    limit: Annotated[int, "Maximum number of results.", Field(ge=1, le=100)] = 20,
    *,
    service: Service,
    context: Calling,
) -> ListedTasks:
    """List the work tasks you created or work on, newest first. Use it to find the id of a task.

    Returns each without its result and diff, and with the beginning of its description.
    """
    found = await service.list(context.principal, status, limit)
    return {"tasks": [_short(task.to_json()) for task in found]}


def _short(shape: JsonObject) -> JsonObject:
    kept = {key: value for key, value in shape.items() if key not in ("result", "diff")}
    return {**kept, "description": shape["description"][:_SHOWN]}


TOOLS = (crib_create_work_task, crib_check_work_status, crib_list_work_tasks)
