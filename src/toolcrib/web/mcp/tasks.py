"""Tasks (SEP-2663): long calls of modern clients that declare the extension `io.modelcontextprotocol/tasks`.

A call that is not done after `TASK_AFTER` seconds is answered with a task, and continues in its own task. The client
polls `tasks/get` or subscribes, answers questions with `tasks/update`, and cancels with `tasks/cancel`. A call that
waits for an approval requires input: the request says where the approval is answered. Tasks are stored, so results can
be fetched after a restart. A call whose server had answered with a task of its own goes on there: the next crib waits
for that task. Any other call that a restart interrupted has failed.

Must never show a task to another principal, or create one before it is durable.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
from anyio.abc import TaskGroup

from toolcrib.model.approvals import Approval
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject, digest, dumps, is_array, is_object, loads
from toolcrib.model.jsonrpc import ANSWER_WAIT, RpcError, capability_for
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import (
    APPROVAL_KEY,
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
)
from toolcrib.web.mcp.request import McpRequest

logger = logging.getLogger(__name__)

TASK_AFTER = 0.5
"""Seconds after which a call becomes a task."""
TASK_HOLDS = timedelta(days=1)
"""How long a task is kept after its creation."""
POLL_MS = 1_000
TASKS_OF_ONE = 100
"""Unfinished tasks per principal. Further calls are answered without a task."""
TERMINAL = frozenset({"completed", "failed", "cancelled"})
_SUBSCRIPTION_KEY = KEY + "subscriptionId"
_RESUMED = "toolcrib/resumed"
"""The member of a stored task that clients do not see."""
_INTERRUPTED = "The crib was restarted before the call ended. It may have run."

Outcome = JsonObject | RpcError | None


def declares_tasks(meta: JsonObject) -> bool:
    """Return whether the client of a request supports tasks."""
    capabilities: Json = meta.get(CAPABILITIES_KEY)
    extensions: Json = capabilities.get("extensions") if is_object(capabilities) else None
    return is_object(extensions) and TASKS_EXTENSION in extensions


@dataclass(frozen=True, slots=True)
class UpstreamTask:
    """The task of a server behind a task: what the next crib needs to wait for it."""

    server: str
    task_id: str
    principal: Principal
    capabilities: JsonObject

    def to_json(self) -> JsonObject:
        """Return the stored shape."""
        known: JsonObject = {"server": self.server, "taskId": self.task_id, "principal": self.principal.to_json()}
        return {**known, "capabilities": self.capabilities}

    @classmethod
    def of_json(cls, shape: JsonObject) -> "UpstreamTask":
        """Return the value of a stored shape."""
        principal = Principal.of_json(shape["principal"])
        return cls(shape["server"], shape["taskId"], principal, shape["capabilities"])


class McpTask:
    """One call that became a task."""

    def __init__(
        self,
        owner: str,
        capabilities: JsonObject,
        save: "Callable[[McpTask], Awaitable[None]]",
        cancel: Callable[[], None],
    ) -> None:
        """`capabilities` are those of the client, `cancel` cancels the call."""
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.created_at = self.updated_at = datetime.now(UTC)
        self.status = "working"
        self.end: JsonObject = {}
        self.changed = asyncio.Event()
        self.upstream: UpstreamTask | None = None
        self.is_cancelled = False
        self._message: str | None = None
        self.capabilities = capabilities
        self._cancel = cancel
        self._save = save
        self._numbers = 0
        self._questions: dict[str, tuple[JsonObject, asyncio.Future[JsonObject]]] = {}
        self._approval: Approval | None = None

    @property
    def base(self) -> JsonObject:
        """The members of every form of the task."""
        task: JsonObject = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
            "lastUpdatedAt": self.updated_at.isoformat(timespec="milliseconds"),
            "ttlMs": int(TASK_HOLDS.total_seconds() * 1000),
            "pollIntervalMs": POLL_MS,
        }
        return task if self._message is None else {**task, "statusMessage": self._message}

    @property
    def detail(self) -> JsonObject:
        """The whole task: with its open questions, its result or its error."""
        detail = {**self.base, **self.end}
        if self.status == "input_required":
            detail["inputRequests"] = {key: question for key, (question, _) in self._questions.items()}
        if self._approval is not None:
            expires_at = self._approval.expires_at.isoformat(timespec="seconds")
            waiting: JsonObject = {"id": self._approval.id, "status": "waiting", "expiresAt": expires_at}
            detail[META] = {APPROVAL_KEY: waiting}
        return detail

    def report(self, message: str | None) -> None:
        """Show a progress message with the task."""
        if message and self.status not in TERMINAL:
            self._message = message
            self._touch()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the client a server's question and wait for the answer. Raises `ProtocolError`."""
        need = capability_for(method)
        if need not in self.capabilities:
            data: JsonObject = {"requiredCapabilities": {need: {}} if need else {}}
            raise ProtocolError(MISSING_CAPABILITY, f"The client does not support {method}.", data)
        key, answer = self._add(method, params)
        try:
            await self._save(self)
            async with asyncio.timeout(ANSWER_WAIT):
                return await answer
        except TimeoutError:
            raise ProtocolError(INTERNAL_ERROR, f"The client did not answer within {ANSWER_WAIT:g} s.") from None
        finally:
            self._questions.pop(key, None)
            self._settle_status()

    def take(self, responses: JsonObject) -> None:
        """Take a client's answers. Those to unknown or answered questions are ignored."""
        for key, response in responses.items():
            _, answer = self._questions.get(key, (None, None))
            if answer is not None and is_object(response):
                del self._questions[key]
                if not answer.done():
                    answer.set_result(response)
        self._settle_status()

    def show_approval(self, approval: Approval | None) -> None:
        """Show that the call waits for this approval, or that it no longer does."""
        self._approval = approval
        self._questions = {key: kept for key, kept in self._questions.items() if not key.startswith("approval-")}
        if approval is None:
            self._message = None
        else:
            self._message = f"Waiting for approval: toolcrib approvals approve {approval.id}"
            if "elicitation" in self.capabilities:
                text = f"{approval.ref} waits for a person's approval, in the console or with `{self._message[22:]}`."
                empty: JsonObject = {"type": "object", "properties": {}}
                self._add("elicitation/create", {"mode": "form", "message": text, "requestedSchema": empty}, "approval")
        self._settle_status()

    def finish(self, outcome: Outcome) -> None:
        """End the task with the outcome of its call; None means that it was cancelled."""
        self._questions.clear()
        self._approval = self._message = None
        if outcome is None:
            self.status, self.end = "cancelled", {}
        elif isinstance(outcome, RpcError):
            error: JsonObject = {"code": outcome.code, "message": outcome.message}
            self.status, self._message = "failed", outcome.message
            self.end = {"error": error if outcome.data is None else {**error, "data": outcome.data}}
        else:
            self.status, self.end = "completed", {"result": outcome}
        self._touch()

    def cancel(self) -> None:
        """Cancel the call."""
        self.is_cancelled = True
        self._cancel()

    def row(self, crib: str) -> McpTaskRow:
        """Return the stored form."""
        expires_at = (self.created_at + TASK_HOLDS).isoformat(timespec="seconds")
        resumed: JsonObject = {} if self.upstream is None else {_RESUMED: self.upstream.to_json()}
        body = self.detail if self.status in TERMINAL else {**self.detail, **resumed}
        return McpTaskRow(self.id, self.owner, crib, self.status, expires_at, dumps(body))

    def _add(self, method: str, params: JsonObject, kind: str = "question") -> tuple[str, "asyncio.Future[JsonObject]"]:
        self._numbers += 1
        key = f"{kind}-{self._numbers}"
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._questions[key] = {"method": method, "params": params}, answer
        self._settle_status()
        return key, answer

    def _settle_status(self) -> None:
        if self.status not in TERMINAL:
            self.status = "input_required" if self._questions else "working"
            self._touch()

    def _touch(self) -> None:
        self.updated_at = datetime.now(UTC)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


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

    async def open(self, resume: "Callable[[UpstreamTask, McpTask], Awaitable[JsonObject]]", group: TaskGroup) -> None:
        """Pick up the tasks of an earlier run, and delete expired ones.

        `resume` waits for the task of a server and returns the result of its call. Tasks without one have failed.
        """
        if self._store is None:
            return
        await remove_expired_mcp_tasks(self._store, datetime.now(UTC).isoformat(timespec="seconds"))
        for row in await open_mcp_tasks(self._store, self._crib):
            body: JsonObject = loads(row.body)
            if is_object(left := body.get(_RESUMED)):
                self._resume(row, body, UpstreamTask.of_json(left), resume, group)
                continue
            kept = {key: value for key, value in body.items() if key not in ("inputRequests", META)}
            error: JsonObject = {"code": INTERNAL_ERROR, "message": _INTERRUPTED}
            failed = {**kept, "status": "failed", "statusMessage": _INTERRUPTED, "error": error}
            await change_mcp_task(self._store, row._replace(status="failed", body=dumps(failed)))

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
        """Return a candidate if this request may become a task."""
        if self._store is None or request.era != "modern" or request.message.method != "tools/call":
            return None
        if not declares_tasks(request.message.meta) or request.principal.kind == "session":
            return None
        owner = _owner(request.principal)
        if sum(task.owner == owner for task in self._tasks.values()) >= TASKS_OF_ONE:
            return None
        return TaskCandidate(request, self._promote, self.keep)

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
        except ToolcribError as error:
            logger.warning("could not store the result of a task: %s", error.message)

    async def get(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/get`."""
        return _stamped(request, await self._detail(request, _task_id(request)))

    async def update(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/update`: pass the client's answers to the call."""
        task_id = _task_id(request)
        responses: Json = request.message.params.get("inputResponses")
        if not is_object(responses):
            raise RpcError(INVALID_PARAMS, "params.inputResponses must be an object.")
        await self._detail(request, task_id)
        if (task := self._tasks.get(task_id)) is not None:
            task.take(responses)
        return _stamped(request, {})

    async def cancel(self, request: McpRequest) -> JsonObject:
        """Answer `tasks/cancel`. A task that has ended stays as it is."""
        task_id = _task_id(request)
        await self._detail(request, task_id)
        if (task := self._tasks.get(task_id)) is not None:
            task.cancel()
        return _stamped(request, {})

    async def listen(self, request: McpRequest) -> JsonObject:
        """Stream the changes of tasks until all of them have ended."""
        wanted: Json = request.message.params["notifications"].get("taskIds")
        _require_tasks(request)
        subscription: JsonObject = {_SUBSCRIPTION_KEY: request.message.id}
        details = [await self._find(request, task_id) for task_id in wanted] if is_array(wanted) else []
        known = [detail for detail in details if detail is not None]
        ids = [detail["taskId"] for detail in known]
        acknowledged: JsonObject = {"notifications": {"taskIds": ids}, META: subscription}
        await request.response.notify("notifications/subscriptions/acknowledged", acknowledged)
        async with asyncio.TaskGroup() as group:
            for detail in known:
                group.create_task(self._follow(request, detail, subscription))
        return _stamped(request, {META: subscription})

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
        if request.response.is_over or request.parked_as is not None:
            return
        capabilities: JsonObject = request.message.meta[CAPABILITIES_KEY]
        task = McpTask(_owner(request.principal), capabilities, self._save, request.response.cancel)
        await add_mcp_task(self._store, task.row(self._crib))
        if request.response.is_over or request.parked_as is not None:  # it asked its client something meanwhile
            task.finish(None)
            await self._save(task)
            return
        request.task = self._tasks[task.id] = task
        if request.approval is not None:
            task.show_approval(request.approval)
        created = _stamped(request, {**task.base, "resultType": "task"})
        await request.response.finish(dumps({"jsonrpc": "2.0", "id": request.message.id, "result": created}))

    async def _save(self, task: McpTask) -> None:
        assert self._store is not None
        await change_mcp_task(self._store, task.row(self._crib))

    async def _detail(self, request: McpRequest, task_id: str) -> JsonObject:
        _require_tasks(request)
        detail = await self._find(request, task_id)
        if detail is None:
            raise RpcError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return detail

    async def _find(self, request: McpRequest, task_id: Json) -> JsonObject | None:
        """Return a task of this principal, or None."""
        if not isinstance(task_id, str) or self._store is None:
            return None
        owner, task = _owner(request.principal), self._tasks.get(task_id)
        if task is not None:
            return task.detail if task.owner == owner else None
        row = await load_mcp_task(self._store, task_id)
        if row is None or row.owner != owner or datetime.fromisoformat(row.expires_at) < datetime.now(UTC):
            return None
        return {key: value for key, value in loads(row.body).items() if key != _RESUMED}


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


def _stamped(request: McpRequest, result: JsonObject) -> JsonObject:
    info = request.mcp_view.server_info(request.principal)
    return {"resultType": "complete", **result, META: {**result.get(META, {}), SERVER_INFO_KEY: info}}
