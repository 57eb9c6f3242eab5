"""Checks calls again whose intent was stored after another node changed permissions.

Must never let a call leave that the changed permissions refuse.
"""

from collections.abc import Callable

from toolcrib.gate.admission import GateCall
from toolcrib.gate.refusals import invisible_error, refusal_error
from toolcrib.gate.view import PrincipalView
from toolcrib.model.errors import Denied, NotFound, ToolcribError
from toolcrib.model.json import loads
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool
from toolcrib.nodes.policy_epoch import PolicyEpoch

ViewOf = Callable[[Principal], PrincipalView]


async def decide_again(policy: PolicyEpoch, view_of: ViewOf, tool: Tool, call: GateCall) -> None:
    """Decide on a call again. Raises, and records the outcome, if it may not be made now."""
    try:
        await policy.refresh()
        _check(policy, view_of(call.context.principal), tool, call)
    except ToolcribError as error:
        await call.record.outcome(is_error=True, duration_ms=0.0, refused=error.code)
        raise
    except BaseException:  # boundary: a call that could not be decided again records its outcome first
        call.record.abandoned(0.0)
        raise


def _check(policy: PolicyEpoch, view: PrincipalView, tool: Tool, call: GateCall) -> None:
    ref = call.ref
    decision = view.decision_on(ref, loads(call.arguments), call.arguments)
    current = view.snapshot.tools.get(ref)
    if (revoked := policy.revoked(call.context.principal)) is not None:
        raise Denied("policy.denied", f"{ref} was refused: {revoked}")
    if current is None or not decision.visible:
        raise invisible_error(decision, call.context.principal)
    if current.definition_hash != tool.definition_hash:
        raise Denied("tool.changed", f"{ref} was redefined while the call was recorded.")
    if decision.verdict == "ask" and not call.is_approved:
        raise Denied("approval.required", f"{ref} needs an approval now: the rules changed. Call it again.")
    if decision.verdict not in ("allow", "ask"):
        raise refusal_error(decision)


async def see_again(policy: PolicyEpoch, view_of: ViewOf, principal: Principal, server: str) -> None:
    """Check again that a principal sees a server. Raises `NotFound`."""
    await policy.refresh()
    if policy.revoked(principal) is not None or server not in view_of(principal).servers:
        raise NotFound("server.unknown", f'Server "{server}" not found.')
