"""Handles: approvals without a waiting call. The client comes back for the answer.

A client that cannot keep a call open gets the id of its approval, and later repeats the call with that id. An answer is
delivered once, and only for the call it is bound to: tool, definition, arguments, principal and session. Only approvals
of this run can be fetched: unfetched answers end with the process, or after a timeout.

Must never deliver an answer twice.
"""

import logging
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.gate.approvals.approvals import Approvals, Check, PendingApproval
from toolcrib.gate.approvals.requests import bind, stored_answer
from toolcrib.model.approvals import Approval, ApprovalAnswer, ApprovalRequest
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.principals import Principal

logger = logging.getLogger(__name__)

FETCHED_WITHIN = 600.0
"""Seconds for which an answer can be fetched."""
_ANOTHER = "This approval does not belong to this call."


class _Left:
    """An approval without a waiting call."""

    def __init__(self, asked: PendingApproval) -> None:
        self.asked = asked
        self.fetched = anyio.Event()
        self.scope = anyio.CancelScope()

    def is_about(self, question: ApprovalRequest) -> bool:
        """Return whether this is the call the approval is for, by the hash that binds its answer."""
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
    """The approvals without a waiting call. `tasks` must outlive `approvals`."""

    def __init__(self, approvals: Approvals, tasks: TaskGroup) -> None:
        self._approvals = approvals
        self._tasks = tasks
        self._left: dict[str, _Left] = {}

    async def ask(self, question: ApprovalRequest, check: Check) -> Approval:
        """Open an approval and return it. Reuses a pending one for the same call. Raises like `Approvals.asked`."""
        for left in self._left.values():
            if left.asked.answer is None and _same_call(left.asked.approval, question):
                return left.asked.approval
        asked: PendingApproval = await self._tasks.start(self._mind, question, check)
        return asked.approval

    async def fetch(self, id: str, question: ApprovalRequest) -> ApprovalAnswer | Approval:
        """Return the answer for this call, or the approval while it is pending.

        Raises `Denied`: `approval.mismatch` for any other call or principal, `approval.used` for an answer that was
        fetched before or has expired.
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
            left.fetched.set()  # no await since the check, so a second fetch finds it set
        return answer

    def withdraw(self, asker: Principal) -> None:
        """Withdraw the approvals of this token."""
        for left in self._left.values():
            principal = left.asked.approval.principal
            if principal.identity == asker.identity:
                left.scope.cancel()

    async def _mind(self, question: ApprovalRequest, check: Check, *, task_status: TaskStatus[PendingApproval]) -> None:
        async with self._approvals.open(question, check=check) as asked:
            left = self._left[asked.approval.id] = _Left(asked)
            task_status.started(asked)
            try:
                with left.scope:
                    answer = await self._approvals.wait(asked)
                    if answer.approved:  # a denial needs no fetching: it is in the store
                        with anyio.move_on_after(FETCHED_WITHIN):
                            await left.fetched.wait()
            except Exception:  # boundary: this approval ends unanswered, without affecting others
                logger.exception("Could not wait for the outcome of approval %s.", asked.approval.id)
            finally:
                del self._left[asked.approval.id]

    async def _ended(self, id: str, question: ApprovalRequest) -> ApprovalAnswer:
        """Return how an approval that is no longer held ended. An approved one is void."""
        try:
            kept = await self._approvals.get(id)
        except NotFound:
            raise Denied("approval.mismatch", _ANOTHER) from None
        same = (kept.principal.to_json(), kept.ref) == (question.principal.to_json(), question.ref)
        if not same or kept.status == "pending":
            raise Denied("approval.mismatch", _ANOTHER)
        if kept.status == "approved":
            raise _used(id)
        return stored_answer(kept, kept)


def _same_call(approval: Approval, question: ApprovalRequest) -> bool:
    asked = (approval.ref, approval.definition_hash, approval.arguments, approval.principal)
    return asked == (question.ref, question.definition_hash, question.arguments, question.principal)


def _used(id: str) -> Denied:
    return Denied("approval.used", f"Approval {id} was already used, or has expired.")
