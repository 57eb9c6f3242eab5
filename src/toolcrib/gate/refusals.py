"""The errors and sentences with which the gate refuses a call."""

from toolcrib.gate.pins.lint import ABOUT_OTHERS, FINDINGS
from toolcrib.gate.pins.skill_files import held_back
from toolcrib.gate.view import PrincipalView
from toolcrib.model.errors import Denied, NotFound, ToolcribError
from toolcrib.model.policy import Decision
from toolcrib.model.principals import Principal
from toolcrib.model.sources import HoldingSource
from toolcrib.model.tools import Tool


def error_sentence(error: ToolcribError) -> str:
    """Return the message of an error with its hint."""
    return f"{error.message} {error.hint}" if error.hint else error.message


def absent_error(view: PrincipalView, decision: Decision, principal: Principal) -> ToolcribError:
    """Return the error for a missing tool. A held-back tool is reported as such to principals that could see it."""
    ref = decision.ref
    source = view.snapshot.sources.get(ref.server)
    if decision.verdict == "unknown" and isinstance(source, HoldingSource) and source.holds(ref.tool):
        return held_back(ref) if view.would_see(ref) else invisible_error(decision, principal)
    return invisible_error(decision, principal)


def invisible_error(decision: Decision, principal: Principal) -> ToolcribError:
    """Return the error for a tool that the principal does not see. Only the owner gets the reason."""
    if decision.verdict == "hidden" and principal.is_owner:
        return Denied("policy.denied", f"{decision.ref} is not available here: {decision.decided_by.reason}")
    return NotFound("tool.unknown", f"There is no tool {str(decision.ref)!r}.")


def approval_reason(decision: Decision, tool: Tool) -> str:
    """Return why an approval is needed, with the findings in the tool's definition.

    The text is shown with the approval. Some principals see their own approvals, so tool names they may not know are
    omitted.
    """
    found = [ABOUT_OTHERS.get(each.code, each.message) for each in tool.problems if each.code in FINDINGS]
    return " ".join([decision.decided_by.reason, *(f"Warning: {message}" for message in found)])


def refusal_error(decision: Decision) -> Denied:
    """Return the error for a visible tool that may not be called now."""
    reason = decision.decided_by.reason
    if decision.verdict == "ask":
        return Denied("approval.required", f"{decision.ref} needs a person's approval: {reason}")
    return Denied("policy.denied", f"{decision.ref} was refused: {reason}")
