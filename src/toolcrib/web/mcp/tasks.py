"""Tasks (SEP-2663): long calls of modern clients that declare the extension `io.modelcontextprotocol/tasks`.

A call that is not done after `TASK_AFTER` seconds is answered with a task, and continues in its own task. The client
polls `tasks/get` or subscribes, answers questions with `tasks/update`, and cancels with `tasks/cancel`. Tasks are
stored, so results can be fetched after a restart. A call whose server had answered with a task of its own goes on
there: the next crib waits for that task. Any other call that a restart interrupted has failed. The number of unfinished
tasks of a principal is limited, and so is what is stored for it; a task that expires is cancelled and deleted.

Must never show a task to another principal, or create one before it is durable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import anyio
from anyio.abc import TaskGroup

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject, digest, dumps, is_array, is_object, loads
from toolcrib.model.jsonrpc import RpcError
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    KEY,
    META,
    MISSING_CAPABILITY,
    SERVER_INFO_KEY,
    TASKS_EXTENSION,
)
from toolcrib.model.sources import ProtocolError
from toolcrib.store.engine import Store
from toolcrib.store.mcp_tasks import (
    McpTaskRow,
    add_mcp_task,
    change_mcp_task,
    load_mcp_task,
    open_mcp_tasks,
    remove_expired_mcp_tasks,
    trim_mcp_tasks,
)
from toolcrib.web.mcp.request import McpRequest
from toolcrib.web.mcp.task import RESUMED, TERMINAL, McpTask, Outcome, UpstreamTask

logger = logging.getLogger(__name__)

TASK_AFTER = 0.5
"""Seconds after which a call becomes a task."""
TASKS_OF_ONE = 100
"""Unfinished tasks per principal. Further calls are refused; those that already run are answered without a task."""
STORED_OF_ONE = 1_000
"""Ended tasks that are kept per principal. Older ones are deleted before they expire."""
BYTES_OF_ONE = 64 * 1024 * 1024
"""Bytes of ended tasks that are kept per principal."""
TRIM_EVERY = 20
"""Ended tasks between two checks of these limits."""
CLEAN_SECONDS = 600.0
"""Seconds between two deletions of expired tasks."""
_SUBSCRIPTION_KEY = KEY + "subscriptionId"
_INTERRUPTED = "The crib was restarted before the call ended. It may have run."


def declares_tasks(meta: JsonObject) -> bool:
    """Return whether the client of a request supports tasks."""
    capabilities: Json = meta.get(CAPABILITIES_KEY)
    extensions: Json = capabilities.get("extensions") if is_object(capabilities) else None
    return is_object(extensions) and TASKS_EXTENSION in extensions


class TaskCandidate:
    """A call that becomes a task if it takes long."""

    def __init__(
        self,
        request: McpRequest,
        promote: Callable[[McpRequest], Awaitable[None]],
        keep: Callable[[McpTask, Principal, str, str], Awaitable[Callable[[], bool]]],
    ) -> None:
        """`keep` makes the task of a server outlive this process."""
        self._request = request
        self._promote = promote
        self._keep = keep
        self._promotion: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(TASK_AFTER, self.start)
        request.candidate = self

    def start(self) -> None:
        """Begin to make the call a task. Idempotent."""
        self._timer.cancel()
        if self._promotion is None:
            self._promotion = asyncio.ensure_future(self._promote(self._request))

    async def on_upstream_task(self, server: str, task_id: str) -> Callable[[], bool]:
        """Make the call a task now, because its server did, unless it was answered or waits for its client.

        Return a function that decides whether the server's task goes on if the call is cancelled.
        """
        self.start()
        await self.until_settled()
        task = self._request.task
        if task is None:
            return lambda: False
        return await self._keep(task, self._request.principal, server, task_id)

    async def until_settled(self) -> None:
        """Wait until it is known whether the call becomes a task, if that has begun."""
        if self._promotion is not None:
            with suppress(ToolcribError):  # without a database, the call goes on without a task
                await asyncio.shield(self._promotion)

    async def asks(self, outcome: JsonObject) -> bool:
        """Have a task's client answer what the server asks by its result; return whether to repeat the call."""
        task = self._request.task
        questions: Json = outcome.get("inputRequests")
        if task is None or outcome.get("resultType") != "input_required":
            return False
        answers: JsonObject = {}
        try:
            for key, question in (questions if is_object(questions) else {}).items():
                answers[key] = await task.ask(question["method"], question.get("params") or {})
        except ProtocolError as error:
            raise RpcError(error.code, error.message, error.data) from error
        message = self._request.message
        state = {"requestState": outcome["requestState"]} if "requestState" in outcome else {}
        kept = {key: value for key, value in message.params.items() if key != "requestState"}
        self._request.message = message._replace(params={**kept, "inputResponses": answers, **state})
        return True

    async def settle(self) -> McpTask | None:
        """Return the task that the call became, if it did."""
        self._timer.cancel()
        await self.until_settled()
        return self._request.task


class McpTasks:
    """All tasks of this crib. Without a store, tasks are not offered."""

    def __init__(self, store: Store | None, crib: str, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """While `is_stopping` returns true, the tasks of servers are left running for the next crib."""
        self._store = store
        self._crib = crib
        self._is_stopping = is_stopping
        self._tasks: dict[str, McpTask] = {}
        self._ended = 0

    async def open(self, resume: "Callable[[UpstreamTask, McpTask], Awaitable[JsonObject]]", group: TaskGroup) -> None:
        """Pick up the tasks of an earlier run, and delete expired ones.

        `resume` waits for the task of a server and returns the result of its call. Tasks without one have failed.
        """
        if self._store is None:
            return
        await remove_expired_mcp_tasks(self._store, datetime.now(UTC).isoformat(timespec="seconds"))
        group.start_soon(self._clean, self._store)
        for row in await open_mcp_tasks(self._store, self._crib):
            body: JsonObject = loads(row.body)
            if is_object(left := body.get(RESUMED)):
                self._resume(row, body, UpstreamTask.of_json(left), resume, group)
                continue
            kept = {key: value for key, value in body.items() if key not in ("inputRequests", META)}
            error: JsonObject = {"code": INTERNAL_ERROR, "message": _INTERRUPTED}
            failed = {**kept, "status": "failed", "statusMessage": _INTERRUPTED, "error": error}
            await change_mcp_task(self._store, row._replace(status="failed", body=dumps(failed)))

    async def _clean(self, store: Store) -> None:
        """Cancel unfinished tasks that have expired, and delete expired ones, from time to time."""
        while True:
            await anyio.sleep(CLEAN_SECONDS)
            for task in [task for task in self._tasks.values() if task.is_expired]:
                task.cancel()
            with suppress(ToolcribError):  # a database that is away is asked again later
                await remove_expired_mcp_tasks(store, datetime.now(UTC).isoformat(timespec="seconds"))

    def _resume(
        self,
        row: McpTaskRow,
        body: JsonObject,
        upstream: UpstreamTask,
        resume: "Callable[[UpstreamTask, McpTask], Awaitable[JsonObject]]",
        group: TaskGroup,
    ) -> None:
        """Wait for the task of a server that an earlier run left behind."""
        scope = anyio.CancelScope()
        task = McpTask(row.owner, upstream.capabilities, self._save, scope.cancel)
        task.id, task.upstream, task.created_at = row.id, upstream, datetime.fromisoformat(body["createdAt"])
        self._tasks[task.id] = task

        async def run() -> None:
            outcome: Outcome = None
            with scope:
                try:
                    outcome = {"resultType": "complete", **await resume(upstream, task)}
                except ProtocolError as error:
                    outcome = RpcError(error.code, f"{_INTERRUPTED} {error.message}", error.data)
                except ToolcribError as error:
                    outcome = RpcError(INTERNAL_ERROR, f"{_INTERRUPTED} {error.message}")
            await self._end(task, outcome)

        group.start_soon(run)

    async def keep(self, task: McpTask, principal: Principal, server: str, task_id: str) -> Callable[[], bool]:
        """Store the server's task behind a task, so that the next crib can wait for it.

        Return a function that decides whether the server's task goes on if the call is cancelled.
        """
        task.upstream = UpstreamTask(server, task_id, principal, task.capabilities)
        try:
            await self._save(task)
        except ToolcribError:
            return lambda: False
        return partial(self.leaves, task)

    def leaves(self, task: McpTask) -> bool:
        """Return whether a cancelled call leaves its server's task to the next crib."""
        return self._is_stopping() and not task.is_cancelled

    def candidate(self, request: McpRequest) -> TaskCandidate | None:
        """Return a candidate if this request may become a task. Raises `RpcError` if the principal has too many."""
        if self._store is None or request.era != "modern" or request.message.method != "tools/call":
            return None
        if not declares_tasks(request.message.meta) or request.principal.kind == "session":
            return None
        if self._has_too_many(_owner(request.principal)):
            advice = "Cancel one with tasks/cancel, or wait until one has ended."
            raise RpcError(INTERNAL_ERROR, f"This client has {TASKS_OF_ONE} unfinished tasks. {advice}")
        return TaskCandidate(request, self._promote, self.keep)

    def _has_too_many(self, owner: str) -> bool:
        unfinished = (task.status not in TERMINAL for task in self._tasks.values() if task.owner == owner)
        return sum(unfinished) >= TASKS_OF_ONE

    async def settle(self, candidate: TaskCandidate, outcome: Outcome) -> bool:
        """Store the outcome of a call that became a task. Return False if it did not."""
        task = await candidate.settle()
        if task is None:
            return False
        await self._end(task, outcome)
        return True

    async def _end(self, task: McpTask, outcome: Outcome) -> None:
        if outcome is None and task.upstream is not None and self.leaves(task):
            return
        task.finish(outcome)
        try:
            await self._save(task)
            del self._tasks[task.id]
            self._ended += 1
            if self._ended % TRIM_EVERY == 0 and self._store is not None:
                await trim_mcp_tasks(self._store, task.owner, STORED_OF_ONE, BYTES_OF_ONE)
        except ToolcribError as error:
            logger.warning("could not store the result of a task: %s", error.message)

    async def get(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/get`."""
        return _stamp(request, await self._detail(request, _task_id(request)))

    async def update(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/update`: pass the client's answers to the call."""
        task_id = _task_id(request)
        responses: Json = request.message.params.get("inputResponses")
        if not is_object(responses):
            raise RpcError(INVALID_PARAMS, "params.inputResponses must be an object.")
        await self._detail(request, task_id)
        if (task := self._tasks.get(task_id)) is not None:
            task.take(responses)
        return _stamp(request, {})

    async def cancel(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/cancel`. A task that has ended stays as it is."""
        task_id = _task_id(request)
        await self._detail(request, task_id)
        if (task := self._tasks.get(task_id)) is not None:
            task.cancel()
        return _stamp(request, {})

    async def listen(self, request: McpRequest) -> JsonObject:
        """Stream the changes of tasks until all of them have ended."""
        wanted: Json = request.message.params["notifications"].get("taskIds")
        _require_tasks(request)
        subscription: JsonObject = {_SUBSCRIPTION_KEY: request.message.id}
        known: list[JsonObject] = []
        for task_id in tuple[Json, ...](wanted if is_array(wanted) else ()):
            with suppress(RpcError):  # of an unknown task nothing is sent
                known.append(await self._detail(request, task_id))
        ids = [detail["taskId"] for detail in known]
        acknowledged: JsonObject = {"notifications": {"taskIds": ids}, META: subscription}
        await request.response.notify("notifications/subscriptions/acknowledged", acknowledged)
        async with asyncio.TaskGroup() as group:
            for detail in known:
                group.create_task(self._follow(request, detail, subscription))
        return _stamp(request, {META: subscription})

    async def _follow(self, request: McpRequest, detail: JsonObject, subscription: JsonObject) -> None:
        task = self._tasks.get(detail["taskId"])
        while True:
            changed = task.changed if task is not None else None
            detail = task.detail if task is not None else detail
            params = {**detail, META: {**detail.get(META, {}), **subscription}}
            await request.response.notify("notifications/tasks", params)
            if changed is None or detail["status"] in TERMINAL:
                return
            await changed.wait()

    async def _promote(self, request: McpRequest) -> None:
        """Answer a call with a task that is stored first."""
        assert self._store is not None
        if request.response.is_over or request.parked_as is not None or self._has_too_many(_owner(request.principal)):
            return
        capabilities: JsonObject = request.message.meta[CAPABILITIES_KEY]
        task = McpTask(_owner(request.principal), capabilities, self._save, request.response.cancel)
        self._tasks[task.id] = task  # counted from now on
        try:
            await add_mcp_task(self._store, task.row(self._crib))
            if request.response.is_over or request.parked_as is not None:  # it asked its client something meanwhile
                await self._end(task, None)
                return
        except BaseException:
            del self._tasks[task.id]
            raise
        request.task = task
        if request.approval is not None:
            task.show_approval(request.approval)
        created = _stamp(request, {**task.base, "resultType": "task"})
        await request.response.finish(dumps({"jsonrpc": "2.0", "id": request.message.id, "result": created}))

    async def _save(self, task: McpTask) -> None:
        assert self._store is not None
        await change_mcp_task(self._store, task.row(self._crib))

    async def _detail(self, request: McpRequest, task_id: Json) -> JsonObject:
        """Return a task of this principal. Raises `RpcError`."""
        _require_tasks(request)
        owner, task = _owner(request.principal), self._tasks.get(task_id) if isinstance(task_id, str) else None
        if task is not None and task.owner == owner and not task.is_expired:
            return task.detail
        row = None
        if task is None and self._store is not None and isinstance(task_id, str):
            row = await load_mcp_task(self._store, task_id)
        if row is not None and row.owner == owner and datetime.fromisoformat(row.expires_at) >= datetime.now(UTC):
            return {key: value for key, value in loads(row.body).items() if key != RESUMED}
        is_own = owner in (task.owner if task is not None else None, row.owner if row is not None else None)
        raise RpcError(INVALID_PARAMS, f"Failed to retrieve task: Task {'has expired' if is_own else 'not found'}")


def _task_id(request: McpRequest) -> str:
    _require_tasks(request)
    task_id: Json = request.message.params.get("taskId")
    if not isinstance(task_id, str):
        raise RpcError(INVALID_PARAMS, "params.taskId must be a string.")
    return task_id


def _require_tasks(request: McpRequest) -> None:
    if not declares_tasks(request.message.meta):
        needed: JsonObject = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        raise RpcError(MISSING_CAPABILITY, "Missing required client capability", needed)


def _owner(principal: Principal) -> str:
    return digest([*principal.identity, principal.agent])


def _stamp(request: McpRequest, result: JsonObject) -> JsonObject:
    info = request.mcp_view.server_info(request.principal)
    return {"resultType": "complete", **result, META: {**result.get(META, {}), SERVER_INFO_KEY: info}}
