"""Calls that a program wants to make, and the one approval that a person gives for a set of them.

Must never omit an argument from the binding of an approval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.gate.refusals import absent_error, approval_reason, refusal_error
from toolcrib.gate.view import PrincipalView, encode_arguments, fill_defaults
from toolcrib.model.approvals import ApprovalRequest
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, canonical, digest
from toolcrib.model.principals import Principal
from toolcrib.model.sources import CallContext
from toolcrib.model.tools import Tool, ToolRef

PROGRAM: Final = ToolRef("toolcrib", "run_code")
"""The name under which sets of calls are approved."""


CallKey = tuple[ToolRef, str, bytes, tuple[TouchedPath, ...]]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call as decided, with defaults filled in. `paths` are the paths that it touches."""

    tool: Tool
    arguments: JsonObject
    encoded: bytes
    needs_approval: bool
    reason: str
    paths: tuple[TouchedPath, ...]

    @property
    def reads(self) -> bool:
        """Whether the call runs without approval and changes nothing."""
        return self.tool.marks.read_only and not self.needs_approval

    @property
    def key(self) -> "CallKey":
        """What an approval is bound to: the tool, its definition, the exact arguments, and the paths they lead to."""
        return self.tool.ref, self.tool.definition_hash, self.encoded, self.paths

    def is_same(self, tool: Tool, encoded: bytes, paths: tuple[TouchedPath, ...]) -> bool:
        """Return whether a call is still the one that was planned."""
        return (tool.ref, tool.definition_hash, encoded, paths) == self.key

    def to_json(self) -> JsonObject:
        """Return the call as shown to a person."""
        shape: JsonObject = {"tool": str(self.tool.ref), "arguments": self.arguments}
        return shape | ({"needsApproval": self.reason} if self.needs_approval else {})


def plan(view: PrincipalView, principal: Principal, ref: ToolRef, arguments: JsonObject) -> PlannedCall:
    """Return a call with its decision, without making it. Raises as `Gate.call` would for one that is not allowed."""
    ref = view.canonical(ref)
    tool = view.snapshot.tools.get(ref)
    arguments, encoded = fill_defaults(tool, arguments, encode_arguments(arguments))
    decision = view.decision_on(ref, arguments, encoded)
    if tool is None or not decision.visible:
        raise absent_error(view, decision, principal)
    if decision.verdict not in ("allow", "ask"):
        raise refusal_error(decision)
    view.snapshot.sources[ref.server].prepare(ref.tool, arguments, encoded)
    reason = approval_reason(decision, tool)
    return PlannedCall(tool, arguments, encoded, decision.verdict == "ask", reason, view.paths(ref, arguments))


class ProgramCall(NamedTuple):
    """The program that makes a call, the call as planned, and the approval of the set it belongs to."""

    id: str
    planned: PlannedCall
    approval: str | None = None


def set_of(calls: Sequence[PlannedCall], code: str, context: CallContext, door: str) -> ApprovalRequest:
    """Return the request to approve exactly these calls, in this order, together with the program."""
    asked = sum(call.needs_approval for call in calls)
    return ApprovalRequest(
        PROGRAM,
        digest([call.tool.definition_hash for call in calls]),
        canonical({"calls": [call.to_json() for call in calls], "code": code}),
        context.principal,
        door,
        f"A program wants to make {len(calls)} calls; {asked} of them need approval. They run only together.",
        context.call_id,
        once=True,
    )


def refuse_edit(arguments: JsonObject, encoded: bytes) -> NoReturn:
    """Refuse edited arguments: an edited set would no longer be what the program does."""
    raise InvalidRequest("approval.scope", "A set of calls is approved or denied as it is.")
