"""The crib's work tasks: starts them, runs them in the background, and stores their results.

Each task is a session of an agent with source `agent` in a worktree below the home, on the branch `toolcrib/<id>`, with
a time limit. When it ends, for whatever reason, its changes are committed there. The worktree is removed after some
days; the branch is kept. A task that was running when the crib ended becomes `interrupted`.

Must never grant a task more rights than its creator has.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.sessions.sessions import NewSession, Sessions
from toolcrib.agents.work.git import Git, GitRepository, Worktree
from toolcrib.model.agents import Agent
from toolcrib.model.errors import Conflict, Denied, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, SessionLimits
from toolcrib.model.work import Task, WorkState
from toolcrib.store.engine import Store
from toolcrib.store.work import insert_task, load_task, load_tasks, take_task, update_task

if TYPE_CHECKING:
    from toolcrib.nodes.jobs import Jobs

WORK_JOB: Final = "work_task"
MOST_AT_ONCE: Final = 4
USUAL_SECONDS: Final = 1_800.0
USUAL: Final = SessionLimits(seconds=USUAL_SECONDS)
KEEP: Final = timedelta(days=14)
"""How long an ended task keeps its worktree."""
_GRACE: Final = 120.0
"""Extra seconds for starting and ending the process."""
_LAST_WORDS: Final = 5.0
_LOOK_SECONDS: Final = 6 * 3_600.0
_LONGEST_RESULT: Final = 20_000
_ENDS: Final[dict[str, WorkState]] = {"completed": "completed", "interrupted": "interrupted", "limit": "limit"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be started. `created_by` is the name to display; `creator` is the principal whose rights apply."""

    description: str
    project: str
    agent: Agent
    limits: SessionLimits = USUAL
    created_by: str = "owner"
    creator: Principal | None = None


class Work:
    """Manages work tasks while open: `async with Work(…) as work`. `place` is the directory of the worktrees."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        git: Git,
        *,
        crib: str,
        place: Path,
        now: Callable[[], datetime],
        jobs: "Jobs | None" = None,
    ) -> None:
        """With `jobs`, another crib on the same database continues a task if this one dies."""
        self._jobs = jobs
        if jobs is not None:
            jobs.handle(WORK_JOB, self._execute)
        self._store = store
        self._sessions = sessions
        self._git = git
        self._crib = crib
        self._place = place
        self._now = now
        self._running: set[str] = set()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._tasks.cancel_scope.cancel)
        for found in await load_tasks(self._store, crib=self._crib):
            if found.state == "running" and self._jobs is not None:
                continue  # its job continues it
            task = await self._mark_lost(found) if found.state == "running" else found
            if task.state == "interrupted" and task.diff is None:
                self._tasks.start_soon(self._commit_lost, task)
        self._tasks.start_soon(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def create(self, new: NewTask) -> Task:
        """Start a task and return it. Raises `work.not_a_repository`, `work.limit`, `work.git`."""
        if len(self._running) >= MOST_AT_ONCE:
            raise Denied("work.limit", f"Work task limit reached: {MOST_AT_ONCE} are running.")
        id = secrets.token_hex(4)
        self._running.add(id)
        try:
            task = await self._begin(id, new, await self._git.find(new.project))
            if self._jobs is not None:
                await self._jobs.defer(WORK_JOB, {"task": id}, lock=f"work:{id}", node=self._crib)
        except BaseException:
            self._running.discard(id)
            raise
        if self._jobs is None:
            self._tasks.start_soon(self._do, task)
        return task

    async def get(self, id: str) -> Task:
        """Return the task; raises `work.unknown`."""
        task = await load_task(self._store, id)
        if task is None:
            raise NotFound("work.unknown", f"There is no work task {id!r}.")
        return task

    async def list(self, state: WorkState | None = None) -> Sequence[Task]:
        """Return tasks, newest first."""
        return await load_tasks(self._store, state=state)

    async def clear(self, id: str) -> Task:
        """Remove the worktree of an ended task; its branch is kept. Raises `work.running`."""
        task = await self.get(id)
        if task.state == "running":
            raise Conflict("work.running", f"Work task {id} is running.")
        if task.worktree is None:
            return task
        await self._git.remove_worktree(task.repository, task.worktree)
        task = replace(task, worktree=None)
        await update_task(self._store, task)
        return task

    async def _begin(self, id: str, new: NewTask, repository: GitRepository) -> Task:
        """Create the task with its worktree and session; clean both up on failure."""
        branch = f"toolcrib/{id}"
        worktree = await self._git.add_worktree(repository, self._place / id, branch)
        try:
            session = await self._sessions.create(await self._new_session(new, worktree.path, repository.inside))
            task = Task(
                id=id,
                description=new.description,
                agent=new.agent.id,
                repository=str(repository.top),
                base=repository.commit,
                branch=branch,
                worktree=str(worktree.path),
                git_dir=str(worktree.git_dir),
                created_at=self._now(),
                created_by=new.created_by,
                session=session.id,
                limits=new.limits,
                creator=new.creator,
            )
            await insert_task(self._store, task, self._crib)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._git.remove_worktree(str(repository.top), str(worktree.path))
                await self._git.remove_branch(str(repository.top), branch)
            raise
        return task

    async def _new_session(self, new: NewTask, worktree: Path, inside: Path) -> NewSession:
        creator = _with_worktree(new.creator, str(await anyio.Path(worktree).resolve()))
        caller = creator.session if creator is not None else None
        return NewSession(
            source="agent",
            cwd=str(worktree / inside),
            agent=new.agent.id,
            mode=new.agent.mode or (creator.mode if creator is not None else None),
            title=" ".join(new.description.split())[:80],
            runner=(await self._sessions.get(caller)).runner if caller is not None else None,
            limits=new.limits,
            creator=creator,
        )

    async def _execute(self, arguments: JsonObject) -> None:
        """Run the task of a job, or continue it if the crib that ran it is dead."""
        task = await load_task(self._store, str(arguments["task"]))
        if task is None or task.state != "running":
            return
        await take_task(self._store, task.id, self._crib)
        self._running.add(task.id)
        await self._do(task)

    async def _do(self, task: Task) -> None:
        """Run the task and store its result."""
        try:
            ended = await self._run_session(task)
            await self._update(await self._commit_work(ended))
        except anyio.get_cancelled_exc_class():
            if self._jobs is not None and not self._jobs.may_write:
                raise
            with anyio.move_on_after(_LAST_WORDS, shield=True):
                reason = "The crib stopped during the task."
                await self._update(replace(task, state="interrupted", ended_at=self._now(), reason=reason))
            raise
        except Exception:  # boundary: one failing task must not affect the others
            logger.exception("Work task %s failed unexpectedly.", task.id)
            broken = replace(
                task, state="failed", ended_at=self._now(), reason="The task failed unexpectedly. See the log."
            )
            await self._update(broken)
        finally:
            self._running.discard(task.id)

    async def _update(self, task: Task) -> None:
        await update_task(self._store, task, self._crib)

    async def _run_session(self, task: Task) -> Task:
        """Run the task's session and return the task with the outcome."""
        id = task.session or ""
        result, state, reason = "", "failed", None
        if task.worktree is not None and not await anyio.Path(task.worktree).is_dir():
            reason = f"The node that ran the task stopped. Its worktree {task.worktree} is not on this machine."
            return replace(task, state="interrupted", ended_at=self._now(), reason=reason, worktree=None)
        try:
            with anyio.fail_after((task.limits.seconds or USUAL_SECONDS) + _GRACE):
                result, state = await self._send_prompt(id, _prompt(task))
        except TimeoutError:
            await self._sessions.interrupt(id)
            state, reason = "limit", "The task reached its time limit and was ended."
        except ToolcribError as error:
            reason = error.message
        session = await self._close_session(id)
        return replace(
            task,
            state=_ENDS.get(state, "failed"),
            ended_at=self._now(),
            result=result[:_LONGEST_RESULT] or None,
            reason=reason or await self._last_error(id, state),
            cost_usd=session.spent.cost_usd,
        )

    async def _close_session(self, id: str) -> Session:
        try:
            return await self._sessions.close(id)
        except Conflict:  # the crib that continued the session ends its process when it is idle
            return await self._sessions.get(id)

    async def _send_prompt(self, id: str, prompt: str) -> tuple[str, str]:
        """Send the prompt, unless another crib has; return the agent's last message and why the turn ended."""
        log = await self._sessions.events(id)
        after = 0 if log.last else (await self._sessions.send(id, prompt)).seq
        answer = ""
        async with aclosing(log.follow(after, is_person=False)) as batches:
            async for batch in batches:
                for event in batch:
                    if event.kind == "text_message" and event.parent is None:
                        answer = str(event.data["text"])
                    elif event.kind == "done":
                        return answer, str(event.data["reason"])
        return answer, "interrupted"

    async def _last_error(self, id: str, state: str) -> str | None:
        """Return the session's last error if the turn did not complete."""
        if state == "completed":
            return None
        errors = [event async for event in self._sessions.transcript(id) if event.kind == "error"]
        return str(errors[-1].data["message"]) if errors else f"The turn ended with state {state}."

    async def _commit_work(self, task: Task) -> Task:
        """Return the task with its work committed and the difference; a git failure is added to the reason."""
        if task.worktree is None:
            return task
        try:
            worktree = Worktree(Path(task.worktree), Path(task.git_dir))
            subject = " ".join(task.description.split())[:72]
            commit = await self._git.keep(worktree, f"{subject}\n\nWork task {task.id} of {task.agent}.")
            return replace(task, diff=await self._git.difference(task.repository, task.base, commit))
        except ToolcribError as error:
            logger.warning("Could not commit the changes of work task %s: %s", task.id, error)
            failure_reason = f"{task.reason} {error.message}" if task.reason else error.message
            return replace(task, reason=failure_reason)

    async def _mark_lost(self, task: Task) -> Task:
        lost = replace(
            task,
            state="interrupted",
            ended_at=self._now(),
            reason="The crib stopped during the task. Its session and its branch show how far it got.",
        )
        await update_task(self._store, lost)
        return lost

    async def _commit_lost(self, task: Task) -> None:
        """Commit the work of a task that was interrupted when the crib ended."""
        await update_task(self._store, await self._commit_work(task))

    async def _follow(self) -> None:
        """Remove expired worktrees periodically."""
        while True:
            try:
                await self._tidy()
            except ToolcribError as error:
                logger.warning("Could not remove old worktrees: %s", error)
            await anyio.sleep(_LOOK_SECONDS)

    async def _tidy(self) -> None:
        before = self._now() - KEEP
        for task in await load_tasks(self._store, crib=self._crib):
            if task.worktree is not None and task.ended_at is not None and task.ended_at < before:
                await self.clear(task.id)


def _with_worktree(creator: Principal | None, worktree: str) -> Principal | None:
    """Return the creator chain with the task's worktree added as a project.

    A task never has more rights than its creator; without this, every edit in the worktree would need an approval.
    """
    if creator is None:
        return None
    return replace(creator, worktree=worktree, creator=_with_worktree(creator.creator, worktree))


def _prompt(task: Task) -> str:
    return (
        f"You work alone on the branch {task.branch}, in a copy of the repository made for this task. Nobody watches; "
        f"work to the end. What you leave uncommitted is committed for you. Say at last what you did and what is left "
        f"to do.\n\n{task.description}"
    )
