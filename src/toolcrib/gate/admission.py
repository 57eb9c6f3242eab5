"""Consent to calls that a person must approve, and the state of a call on its way through the gate.

The state of the crib may change while an approval is pending, so everything is checked again after it.

Must never return the run of a call that differs from the approved one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from toolcrib.gate.approvals.consent import Consent
from toolcrib.gate.audit.call_records import CallRecord, CallRecords
from toolcrib.gate.principals import Door
from toolcrib.gate.programs.planned_call import ProgramCall
from toolcrib.gate.refusals import approval_reason, invisible_error, refusal_error
from toolcrib.gate.results.fitting import ResultBudget
from toolcrib.gate.view import PrincipalView, fill_defaults
from toolcrib.model.approvals import Approval, ApprovalRequest
from toolcrib.model.errors import Denied
from toolcrib.model.json import JsonObject, loads
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext, RunCall
from toolcrib.model.tools import Tool, ToolRef

PrepareCall: TypeAlias = Callable[[str, JsonObject, bytes], RunCall]


@dataclass(frozen=True, slots=True)
class InSession:
    """Details of a call that an agent makes in a session.

    `tool_call` is its id in the session, `approval_timeout` the seconds to wait for an approval. `beyond_budget` counts
    the call and returns a reason if the agent's budget is used up. If the agent's runtime runs the tool itself,
    `prepare` replaces the tool's source: the function it returns waits for that run to end.
    """

    tool_call: str
    approval_timeout: float
    beyond_budget: Callable[[], Awaitable[str | None]] | None = None
    prepare: PrepareCall | None = None


class ApprovalPending(Exception):
    """Raised when the approval is still pending and the client will fetch the answer later."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(approval.id)
        self.approval = approval


@dataclass(slots=True)
class GateCall:
    """A call in progress. `record` describes the call as requested and, after an approval, as approved.

    `prepare` replaces the `prepare` of the tool's source. `epoch` is that of the permissions it was decided by.
    """

    ref: ToolRef
    door: Door
    context: CallContext
    record: CallRecord
    session: InSession | None = None
    prepare: PrepareCall | None = None
    handle: str | None = None
    edited: bytes | None = None
    budget: ResultBudget | None = None
    program: ProgramCall | None = None
    arguments: bytes = b"{}"
    is_approved: bool = False
    epoch: int = 0


class Admission:
    """Admits calls that need an approval."""

    def __init__(self, view: Callable[[Principal], PrincipalView], records: CallRecords, consent: Consent) -> None:
        self._view = view
        self._records = records
        self._consent = consent

    async def obtain(
        self, call: GateCall, tool: Tool, run: RunCall, decision: Decision, encoded: bytes
    ) -> tuple[Tool, RunCall]:
        """Return the tool and its run after approval. Raises `Denied` if the call is not allowed."""
        program = call.program
        if decision.verdict == "ask" and program is not None and program.approval is not None:
            view = self._view(call.context.principal)
            arguments = loads(encoded)
            if program.planned.is_same(tool, encoded, view.paths(call.ref, arguments)):
                call.is_approved = True
                call.record = self._records.create(
                    call.context.call_id, call.door, call.context.principal, call.ref, tool, arguments, encoded,
                    decision, rules=view.rules_version, approval=program.approval, program=program.id,
                )  # fmt: skip
                return tool, run
        if decision.verdict not in ("ask", "allow"):
            raise refusal_error(decision)
        return await self._wait_for_approval(call, tool, decision, encoded)

    async def _wait_for_approval(
        self, call: GateCall, requested: Tool, decision: Decision, encoded: bytes
    ) -> tuple[Tool, RunCall]:
        """Return the call as approved. The state may have changed during the wait, so everything is checked again."""
        ref, principal = call.ref, call.context.principal
        reason = approval_reason(decision, requested)
        session = call.session
        number = session.tool_call if session is not None else call.context.call_id
        question = ApprovalRequest(
            ref, requested.definition_hash, encoded, principal, call.door, reason, number,
            argument_names=requested.argument_names,
        )  # fmt: skip

        def check(arguments: JsonObject, encoded: bytes) -> None:
            prepare = call.prepare or self._view(principal).snapshot.sources[ref.server].prepare
            prepare(ref.tool, arguments, encoded)

        requested_paths = self._view(principal).paths(ref, loads(encoded))
        approval_timeout = session.approval_timeout if session is not None else None
        if call.handle is None:
            answer = await self._consent.obtain(question, call.context, check, approval_timeout)
        else:
            answer = await self._consent.fetch(question, check, call.handle)
        if isinstance(answer, Approval):
            call.record = self._records.create(
                call.context.call_id, call.door, principal, ref, requested, loads(encoded), encoded, decision,
                rules=self._view(principal).rules_version, approval=answer.id,
            )  # fmt: skip
            raise ApprovalPending(answer)
        view = self._view(principal)
        tool = view.snapshot.tools.get(ref)
        unedited = answer.arguments == encoded
        arguments, encoded = fill_defaults(tool, loads(answer.arguments), answer.arguments)
        decision = view.decision_on(ref, arguments, encoded)
        call.record = self._records.create(
            call.context.call_id, call.door, principal, ref, tool, arguments, encoded, decision,
            rules=view.rules_version, approval=answer.approval,
        )  # fmt: skip
        if not answer.approved:
            raise Denied("approval.denied", answer.refusal)
        call.edited = encoded if answer.edited else None
        call.arguments, call.is_approved = encoded, True
        if tool is None or tool.definition_hash != requested.definition_hash:
            raise Denied("tool.changed", f"{ref} was redefined while its approval was pending.")
        if unedited and view.paths(ref, arguments) != requested_paths:
            message = f"{ref} was refused: a path of the call leads elsewhere than when the approval was requested."
            raise Denied("policy.denied", message)
        if decision.verdict not in ("allow", "ask"):
            raise refusal_error(decision) if decision.visible else invisible_error(decision, principal)
        prepare = call.prepare or view.snapshot.sources[ref.server].prepare
        return tool, prepare(ref.tool, arguments, encoded)
