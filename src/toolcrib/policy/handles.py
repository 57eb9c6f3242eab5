"""Handles: questions to a person that nobody waits for; whoever asked comes back for the answer.

A client that cannot keep a call open asks, gets the number of its question, and later makes the same call again with
that number. An answer is given out once, and only for the very call that it is bound to: tool, definition, arguments,
asker and session. Only what was asked in this run can be fetched: the answers that nobody fetched end with the process,
and those that nobody fetches in time end by themselves.

Above: the gate, through `consent`. Below: `approvals`, which keeps the questions and judges who may answer. It must
never give out an answer twice.
"""

import logging
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.errors import Denied, NotFound
from toolcrib.model.approvals import Answer, Approval, Question
from toolcrib.model.principals import Principal
from toolcrib.policy.approvals import Approvals, Asked, Check
from toolcrib.policy.questions import answered, bind

logger = logging.getLogger(__name__)

FETCHED_WITHIN = 600.0
"""Seconds for which an answer lies ready."""
_ANOTHER = "This approval was not given for this call."


class _Left:
    """A question that nobody waits for."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.fetched = anyio.Event()
        self.scope = anyio.CancelScope()

    def is_about(self, question: Question) -> bool:
        """Whether this is the very call that was asked about: by the hash that binds its answer."""
        approval = self.asked.approval
        call = replace(
            approval,
            ref=question.ref,
            definition_hash=question.definition_hash,
            arguments=question.arguments,
            principal=question.principal,
        )
        return bind(call, self.asked.nonce) == self.asked.binding


class Handles:
    """The questions that were left here. `tasks` has to outlive `approvals`."""

    def __init__(self, approvals: Approvals, tasks: TaskGroup) -> None:
        self._approvals = approvals
        self._tasks = tasks
        self._left: dict[str, _Left] = {}

    async def ask(self, question: Question, check: Check) -> Approval:
        """Put a question and go; one that is open about the same call is not put again. Raises as `Approvals.asked`."""
        for left in self._left.values():
            if left.asked.answer is None and _same_call(left.asked.approval, question):
                return left.asked.approval
        asked: Asked = await self._tasks.start(self._mind, question, check)
        return asked.approval

    async def fetch(self, id: str, question: Question) -> Answer | Approval:
        """The answer to a question that was left here, for the call it is about; the question while it is open.

        Raises `Denied`: `approval.mismatch` for any other call or asker, `approval.used` for an answer that was fetched
        before or is no longer there.
        """
        left = self._left.get(id)
        if left is None:
            return await self._ended(id, question)
        if not left.is_about(question):
            raise Denied("approval.mismatch", _ANOTHER)
        answer = left.asked.answer
        if answer is None:
            return left.asked.approval
        if answer.approved:
            if left.fetched.is_set():
                raise _used(id)
            left.fetched.set()  # nothing is awaited since it was looked at: whoever comes second finds it set
        return answer

    def withdraw(self, asker: Principal) -> None:
        """Nobody will come back for what this token asked."""
        for left in self._left.values():
            principal = left.asked.approval.principal
            if (principal.kind, principal.name) == (asker.kind, asker.name):
                left.scope.cancel()

    async def _mind(self, question: Question, check: Check, *, task_status: TaskStatus[Asked]) -> None:
        async with self._approvals.asked(question, check=check) as asked:
            left = self._left[asked.approval.id] = _Left(asked)
            task_status.started(asked)
            try:
                with left.scope:
                    await self._approvals.wait(asked)
                    with anyio.move_on_after(FETCHED_WITHIN):
                        await left.fetched.wait()
            except Exception:  # boundary: this question ends unanswered, and nobody else's does
                logger.exception("The question %s cannot be minded any longer.", asked.approval.id)
            finally:
                del self._left[asked.approval.id]

    async def _ended(self, id: str, question: Question) -> Answer:
        """How a question ended that is no longer here; what was approved is void."""
        try:
            kept = await self._approvals.get(id)
        except NotFound:
            raise Denied("approval.mismatch", _ANOTHER) from None
        same = (kept.principal.to_json(), kept.ref) == (question.principal.to_json(), question.ref)
        if not same or kept.status == "pending":
            raise Denied("approval.mismatch", _ANOTHER)
        if kept.status == "approved":
            raise _used(id)
        return answered(kept, kept)


def _same_call(approval: Approval, question: Question) -> bool:
    asked = (approval.ref, approval.definition_hash, approval.arguments, approval.principal)
    return asked == (question.ref, question.definition_hash, question.arguments, question.principal)


def _used(id: str) -> Denied:
    return Denied("approval.used", f"The approval {id} was used before, or not in time.")
