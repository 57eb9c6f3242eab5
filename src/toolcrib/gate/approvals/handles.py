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
_MISMATCH = "This approval does not belong to this call."


class _DetachedApproval:
    """An approval without a waiting call."""

    def __init__(self, pending: PendingApproval) -> None:
        self.pending = pending
        self.fetched = anyio.Event()
        self.scope = anyio.CancelScope()

    def is_about(self, question: ApprovalRequest) -> bool:
        """Return whether this is the call the approval is for, by the hash that binds its answer."""
        approval = self.pending.approval
        call = replace(
            approval,
            ref=question.ref,
            definition_hash=question.definition_hash,
            arguments=question.arguments,
            principal=question.principal,
        )
        return bind(call, self.pending.nonce) == self.pending.binding


class Handles:
    """The approvals without a waiting call. `tasks` must outlive `approvals`."""

    def __init__(self, approvals: Approvals, tasks: TaskGroup) -> None:
        self._approvals = approvals
        self._tasks = tasks
        self._detached: dict[str, _DetachedApproval] = {}

    async def ask(self, question: ApprovalRequest, check: Check) -> Approval:
        """Open an approval and return it. Reuses a pending one for the same call. Raises like `Approvals.asked`."""
        for detached in self._detached.values():
            if detached.pending.answer is None and _same_call(detached.pending.approval, question):
                return detached.pending.approval
        pending: PendingApproval = await self._tasks.start(self._watch, question, check)
        return pending.approval

    async def fetch(self, id: str, question: ApprovalRequest) -> ApprovalAnswer | Approval:
        """Return the answer for this call, or the approval while it is pending.

        Raises `Denied`: `approval.mismatch` for any other call or principal, `approval.used` for an answer that was
        fetched before or has expired.
        """
        detached = self._detached.get(id)
        if detached is None:
            return await self._stored_outcome(id, question)
        if not detached.is_about(question):
            raise Denied("approval.mismatch", _MISMATCH)
        answer = detached.pending.answer
        if answer is None:
            return detached.pending.approval
        if answer.approved:
            if detached.fetched.is_set():
                raise _used_error(id)
            detached.fetched.set()  # no await since the check, so a second fetch finds it set
        return answer

    def withdraw(self, caller: Principal) -> None:
        """Withdraw the approvals of this token."""
        for detached in self._detached.values():
            principal = detached.pending.approval.principal
            if principal.identity == caller.identity:
                detached.scope.cancel()

    async def _watch(
        self, question: ApprovalRequest, check: Check, *, task_status: TaskStatus[PendingApproval]
    ) -> None:
        async with self._approvals.open(question, check=check) as pending:
            detached = self._detached[pending.approval.id] = _DetachedApproval(pending)
            task_status.started(pending)
            try:
                with detached.scope:
                    answer = await self._approvals.wait(pending)
                    if answer.approved:  # a denial needs no fetching: it is in the store
                        with anyio.move_on_after(FETCHED_WITHIN):
                            await detached.fetched.wait()
            except Exception:  # boundary: this approval ends unanswered, without affecting others
                logger.exception("Could not wait for the outcome of approval %s.", pending.approval.id)
            finally:
                del self._detached[pending.approval.id]

    async def _stored_outcome(self, id: str, question: ApprovalRequest) -> ApprovalAnswer:
        """Return how an approval that is no longer held ended. An approved one is void."""
        try:
            stored = await self._approvals.get(id)
        except NotFound:
            raise Denied("approval.mismatch", _MISMATCH) from None
        same = (stored.principal.to_json(), stored.ref) == (question.principal.to_json(), question.ref)
        if not same or stored.status == "pending":
            raise Denied("approval.mismatch", _MISMATCH)
        if stored.status == "approved":
            raise _used_error(id)
        return stored_answer(stored, stored)


def _same_call(approval: Approval, question: ApprovalRequest) -> bool:
    pending = (approval.ref, approval.definition_hash, approval.arguments, approval.principal)
    return pending == (question.ref, question.definition_hash, question.arguments, question.principal)


def _used_error(id: str) -> Denied:
    return Denied("approval.used", f"Approval {id} was already used, or has expired.")
