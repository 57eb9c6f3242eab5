"""Obtains a person's approval of a call, wherever it can be answered, and reports progress meanwhile.

The approval is open in the console, on the command line and over the API. An MCP client whose token may approve also
gets an elicitation; the first answer decides. Until then the client receives progress reports that name the pending
approval. A client that does not want to wait gets a handle instead.

Must never accept an answer that `approvals` did not accept.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.gate.approvals.approvals import WAIT, Approvals, PendingApproval
from toolcrib.gate.approvals.handles import Handles
from toolcrib.gate.approvals.requests import Check
from toolcrib.gate.audit.actor import acting
from toolcrib.model.approvals import Approval, ApprovalAnswer, ApprovalRequest
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, Client, ReportProgress
from toolcrib.model.tools import CallResult

if TYPE_CHECKING:
    from toolcrib.gate.approvals import display
else:
    display = lazy_module("toolcrib.gate.approvals.display")

logger = logging.getLogger(__name__)

HANDLE = "handle"
"""Sent by a client that will fetch the answer later. It then sends the id of the approval instead."""
SIGN_OF_LIFE = 10.0
"""Seconds between two progress reports to a waiting client."""
_A_LITTLE = 1e-6
"""Progress per report: it must grow, and the tool's own reports come after these."""

_FORM: JsonObject = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
        "reason": {"type": "string", "title": "Reason, shown to the model"},
    },
    "required": ["decision"],
}


class Consent:
    """Requests approvals on behalf of the gate."""

    def __init__(
        self,
        approvals: Approvals,
        handles: Handles,
        may_answer: Callable[[Principal, Principal], bool],
        changes: ChangeRecorder,
    ) -> None:
        """`changes` records the answers of clients."""
        self._approvals = approvals
        self._changes = changes
        self._handles = handles
        self._may_answer = may_answer

    async def obtain(
        self, question: ApprovalRequest, context: CallContext, check: Check, approval_timeout: float | None = None
    ) -> ApprovalAnswer:
        """Request an approval and wait up to `approval_timeout` seconds. Raises `Denied` if too many are pending."""
        client = context.client
        async with self._approvals.open(question, seconds=approval_timeout or WAIT, check=check) as pending:
            async with anyio.create_task_group() as beside:
                if context.report_progress is not None:
                    beside.start_soon(self._report, pending, context.report_progress)
                if client is not None and client.on_approval is not None:
                    client.on_approval(pending.approval)
                if client is not None and self._can_ask(client, question.principal):
                    beside.start_soon(self._elicit, pending, question, client)
                await self._approvals.wait(pending)
                beside.cancel_scope.cancel()
            if client is not None and client.on_approval is not None:
                client.on_approval(None)
            return await self._approvals.wait(pending)

    async def fetch(self, question: ApprovalRequest, check: Check, handle: str) -> ApprovalAnswer | Approval:
        """Open an approval without waiting if `handle` is `HANDLE`, otherwise return the answer of the approval with
        this id.

        Returns the approval itself while it is pending. Raises like `obtain` and `Handles.fetch`.
        """
        if handle == HANDLE:
            return await self._handles.ask(question, check)
        return await self._handles.fetch(handle, question)

    def _can_ask(self, client: Client, principal: Principal) -> bool:
        return (
            client.ask is not None and "elicitation" in client.capabilities and self._may_answer(principal, principal)
        )

    async def _report(self, pending: PendingApproval, report: ReportProgress) -> None:
        reports = 0
        while True:
            reports += 1
            text = f"Waiting for approval: toolcrib approvals approve {pending.approval.id}"
            try:
                await report(reports * _A_LITTLE, None, text)
            except Exception as error:  # noqa: BLE001 boundary: a client that cannot get progress still waits
                logger.info("Could not notify the client of approval %s: %s", pending.approval.id, error)
            await anyio.sleep(SIGN_OF_LIFE)

    async def _elicit(self, pending: PendingApproval, question: ApprovalRequest, client: Client) -> None:
        """Ask the person behind the client. Cancelling the dialog leaves the approval open elsewhere."""
        assert client.ask is not None
        masked = self._approvals.shown(pending.approval)
        shown = display.show(masked.given, is_masked=masked.arguments != pending.approval.arguments)
        message = f"Allow a call of {question.ref}? {question.why}\n\n{shown.text}"
        if shown.hidden:
            message += f"\n\n{shown.hidden} hidden characters are written out above."
        try:
            reply = await client.ask("elicitation/create", {"message": message, "requestedSchema": _FORM})
            decision, reason = _read(reply)
            if decision == "approve":
                await self._answer(pending.approval.id, decision, question)
            elif decision == "deny":
                await self._answer(pending.approval.id, decision, question, reason=reason)
        except Exception as error:  # noqa: BLE001 boundary: if the client cannot be asked, others still can
            logger.info("The client could not answer approval %s: %s", pending.approval.id, error)

    async def _answer(
        self, id: str, decision: Literal["approve", "deny"], question: ApprovalRequest, reason: str | None = None
    ) -> None:
        """Answer for the person behind the client. Shielded, so that the end of the wait cannot cut off the record."""
        details: JsonObject = {"id": id, "decision": decision, "scope": "once"}
        details |= {"reason": reason} if reason is not None else {}
        answer = partial(self._approvals.answer, id, decision, by=question.principal, reason=reason)
        with acting(question.principal, question.door), anyio.CancelScope(shield=True):
            await self._changes.record("approvals.answer", details, answer)


def _read(reply: JsonObject) -> tuple[str | None, str | None]:
    """Return the decision and reason of an elicitation: declining denies, cancelling decides nothing."""
    if reply.get("action") == "decline":
        return "deny", None
    content: Json = reply.get("content")
    if reply.get("action") != "accept" or not is_object(content):
        return None, None
    decision, reason = content.get("decision"), content.get("reason")
    return (decision if isinstance(decision, str) else None), (reason if isinstance(reason, str) and reason else None)


def waiting_result(approval: Approval) -> CallResult:
    """Return the result for a client that will fetch the answer later."""
    until = approval.expires_at.isoformat(timespec="seconds")
    text = (
        f"This call waits for approval until {until}. A person runs `toolcrib approvals approve {approval.id}` or "
        f'`deny`. Then repeat the same call with `_meta: {{"toolcrib/approval": "{approval.id}"}}`.'
    )
    shape: JsonObject = {"approvalId": approval.id, "status": "waiting", "expiresAt": until}
    return CallResult(({"type": "text", "text": text},), is_error=True, structured_content=shape, has_structured=True)
