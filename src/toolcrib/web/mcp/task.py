"""One call of a client that became a task (SEP-2663): its state, its open questions, and its stored form.

A call that waits for an approval requires input: the request says where the approval is answered. Keys of questions are
never used twice, so an answer that arrives twice, or too late, is ignored.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from toolcrib.model.approvals import Approval
from toolcrib.model.json import JsonObject, dumps, is_object
from toolcrib.model.jsonrpc import ANSWER_WAIT, RpcError, capability_for
from toolcrib.model.principals import Principal
from toolcrib.model.protocol import APPROVAL_KEY, INTERNAL_ERROR, META, MISSING_CAPABILITY
from toolcrib.model.sources import ProtocolError
from toolcrib.store.mcp_tasks import McpTaskRow

TASK_HOLDS = timedelta(days=1)
"""How long a task is kept after its creation."""
POLL_MS = 1_000
TERMINAL = frozenset({"completed", "failed", "cancelled"})
RESUMED = "toolcrib/resumed"
"""The member of a stored task that clients do not see."""

Outcome = JsonObject | RpcError | None


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

    @property
    def is_expired(self) -> bool:
        """Whether the time for which the task is kept has passed."""
        return datetime.now(UTC) > self.created_at + TASK_HOLDS

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
        resumed: JsonObject = {} if self.upstream is None else {RESUMED: self.upstream.to_json()}
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
