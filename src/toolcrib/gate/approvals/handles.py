"""Handles: approvals without a waiting call. The client comes back for the answer.

A client that cannot keep a call open gets the id of its approval, and later repeats the call with that id. An answer is
delivered once, and only for the call it is bound to: tool, definition, arguments, principal and session. It can be
fetched for a limited time. Nodes that share a secret share their handles: any of them delivers the answer, also if the
one that asked has ended. Otherwise only approvals of this run can be fetched.

Must never deliver an answer twice.
"""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
from anyio.abc import TaskGroup, TaskStatus

from toolcrib.gate.approvals.approvals import Approvals, PendingApproval
from toolcrib.gate.approvals.requests import Check, bind, stored_answer
from toolcrib.model.approvals import Approval, ApprovalAnswer, ApprovalRequest
from toolcrib.model.errors import Denied
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
        for approval in await self._approvals.detached_elsewhere(question.ref, question.definition_hash):
            if _same_call(approval, question):
                return approval
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
        pending = detached.pending
        if not self._is_about(pending.approval, pending.binding, question):
            raise Denied("approval.mismatch", _MISMATCH)
        if pending.answer is None:
            return pending.approval
        if pending.answer.approved:
            if detached.fetched.is_set():
                raise _used_error(id)
            detached.fetched.set()  # no await since the check, so a second fetch finds it set
            await self._use(id)
        return pending.answer

    def withdraw(self, caller: Principal) -> None:
        """Withdraw the approvals of this token."""
        for detached in self._detached.values():
            principal = detached.pending.approval.principal
            if principal.identity == caller.identity:
                detached.scope.cancel()

    async def _watch(
        self, question: ApprovalRequest, check: Check, *, task_status: TaskStatus[PendingApproval]
    ) -> None:
        async with self._approvals.open(question, check=check, is_detached=True) as pending:
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

    def _is_about(self, approval: Approval, binding: str, question: ApprovalRequest) -> bool:
        """Return whether this is the call the approval is for, by the hash that binds its answer."""
        call = replace(
            approval,
            ref=question.ref,
            definition_hash=question.definition_hash,
            arguments=question.arguments,
            principal=question.principal,
        )
        return bind(call, self._approvals.nonce(approval.id)) == binding

    async def _stored_outcome(self, id: str, question: ApprovalRequest) -> ApprovalAnswer | Approval:
        """Return how an approval that this node does not hold ended, or the approval while it is pending elsewhere."""
        found = await self._approvals.stored(id)
        if found is None:
            raise Denied("approval.mismatch", _MISMATCH)
        stored, binding = found
        if stored.is_detached and self._is_about(stored, binding, question):
            return await self._elsewhere(stored, question)
        same = (stored.principal.to_json(), stored.ref) == (question.principal.to_json(), question.ref)
        if not same or stored.status == "pending":
            raise Denied("approval.mismatch", _MISMATCH)
        if stored.status == "approved":
            raise _used_error(id)
        return stored_answer(stored, stored)

    async def _elsewhere(self, stored: Approval, question: ApprovalRequest) -> ApprovalAnswer | Approval:
        """Return the outcome of an approval for this call that another node opened."""
        if stored.status == "pending":
            return stored
        answer = stored_answer(replace(stored, arguments=question.arguments), stored)
        if answer.approved:
            decided = stored.decided_at or stored.created_at
            if datetime.now(UTC) - decided > timedelta(seconds=FETCHED_WITHIN):
                raise _used_error(stored.id)
            await self._use(stored.id)
            await self._approvals.forget_edit(stored.id, answer)
        return answer

    async def _use(self, id: str) -> None:
        """Mark an answer as delivered. Raises `approval.used` if any node did so before."""
        if not await self._approvals.use(id):
            raise _used_error(id)


def _same_call(approval: Approval, question: ApprovalRequest) -> bool:
    pending = (approval.ref, approval.definition_hash, approval.arguments, approval.principal)
    return pending == (question.ref, question.definition_hash, question.arguments, question.principal)


def _used_error(id: str) -> Denied:
    return Denied("approval.used", f"Approval {id} was already used, or has expired.")
