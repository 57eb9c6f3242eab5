"""`decide`: the one function behind every listing and every call, pure, total and explained.

It takes a tool, a principal, the principal's grants and the rules, and returns a decision with every step. The first
steps determine whether the tool exists for the principal, the later ones what a call does. Listings and calls ask the
same question, so a tool that can be called is always listed. Arguments can only change what a call does, never whether
the tool is visible.

Reasons that do not depend on the tool are constants, since a listing decides on thousands of tools. The gate denies the
call if this raises. Must never read a clock, a file or any other input that is not passed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.conditions import ConditionContext
from toolcrib.gate.policy.paths import LEXICAL, Files
from toolcrib.gate.policy.patterns import PatternIndex
from toolcrib.gate.policy.rules import Ranked, Rules, unmet
from toolcrib.gate.policy.zones import Closed, TouchedPath, closed_paths, touches_decisive, zone_of
from toolcrib.model.json import JsonObject
from toolcrib.model.marks import NO_MARKS, HeldMarks
from toolcrib.model.policy import Decision, DecisionStep, Effect, Rule, Verdict
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Tool, ToolRef


@dataclass(frozen=True)
class Grants:
    """The grants of a principal: the agent's own permissions (None: the default set), and bundles on top.

    Both are globs over `server/tool`. An empty tuple of permissions grants nothing. `creator` is the principal that
    started this session, if a tool, job or other session did: the session never has more rights than its creator.
    """

    permissions: tuple[str, ...] | None = None
    bundles: tuple[str, ...] = ()
    creator: "Creator | None" = None

    @cached_property
    def _permitted(self) -> PatternIndex:
        return PatternIndex(self.permissions or ())

    @cached_property
    def _bundled(self) -> PatternIndex:
        return PatternIndex(self.bundles)

    def permit(self, tool: Tool) -> bool:
        """Return whether the agent's own permissions name the tool."""
        return _names(self._permitted, tool)

    def bundle(self, tool: Tool) -> bool:
        """Return whether a bundle names the tool."""
        return bool(self.bundles) and _names(self._bundled, tool)


def _names(index: PatternIndex, tool: Tool) -> bool:
    """Return whether a pattern names a tool, by its own or a trusted name of its server."""
    name = tool.ref.tool
    return bool(index.find(tool.ref)) or any(index.find(ToolRef(other.name, name)) for other in tool.names.trusted)


@dataclass(frozen=True, slots=True)
class Creator:
    """The principal that started a session, and its grants, both in their current state."""

    principal: Principal
    grants: Grants
    is_revoked: bool = False


REGISTERED = DecisionStep("registered", True, "include", "The tool is registered.")
_UNREGISTERED = DecisionStep("registered", True, "exclude", "No tool of this name is registered.")
_WEB = DecisionStep("source", True, "include", "The console sees every registered tool.")
_DEFAULT_SET = DecisionStep("permissions", True, "include", "The default set has every tool that is not privileged.")
_PRIVILEGED = DecisionStep("permissions", True, "exclude", "The tool is privileged and was not granted.")
_GRANTED = DecisionStep("permissions", True, "include", "The agent's permissions name the tool.")
_NOT_GRANTED = DecisionStep("permissions", True, "exclude", "The agent's permissions do not name the tool.")
_BUNDLED = DecisionStep("permissions", True, "include", "A skill or project bundle grants the tool.")
_SCHEDULED = DecisionStep("scheduler", True, "exclude", "The tool is blocked for scheduled runs.")
_NO_PERSON = DecisionStep("scheduler", True, "deny", "A scheduled run has no person who could approve the call.")
_BY_HAND = DecisionStep("by_hand", True, "allow", "The owner makes this call by hand, which counts as approval.")
_CREATOR_REVOKED = DecisionStep("creator", True, "exclude", "The token that started this session was revoked.")
_NO_DENY = DecisionStep("deny", False, "none", "No deny rule applies here.")
_BY_MODE: dict[Mode, DecisionStep] = {
    "default": DecisionStep("mode", True, "ask", "Mode default asks a person before each call."),
    "acceptEdits": DecisionStep("mode", True, "allow", "Mode acceptEdits runs tools without asking."),
    "bypassPermissions": DecisionStep("mode", True, "allow", "Mode bypassPermissions runs tools without asking."),
    "dontAsk": DecisionStep("mode", True, "deny", "Mode dontAsk refuses what no rule allows."),
    "plan": DecisionStep("mode", True, "deny", "Mode plan runs read-only tools only."),
}
_CLOSED: dict[Closed, DecisionStep] = {
    "inside": DecisionStep("home", True, "deny", "The crib's home is closed to agents, in every mode."),
    "around": DecisionStep(
        "home",
        True,
        "deny",
        "This would search the crib's home, which is closed to agents. Search a narrower directory.",
    ),
    "indirect": DecisionStep(
        "home",
        True,
        "deny",
        "The path leads through links of a process and may end in the crib's home. Name it directly.",
    ),
}
_PLAN_READS = DecisionStep("mode", True, "allow", "Mode plan runs read-only tools.")
_PLAN_OPEN_WORLD = DecisionStep(
    "mode", True, "ask", "Mode plan asks a person before a tool reaches beyond this machine."
)
_VERDICTS: dict[str, Verdict] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_STRICTNESS: tuple[Verdict, ...] = ("allow", "ask", "deny", "hidden", "unknown")
_EFFECTS: dict[Verdict, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny", "hidden": "exclude"}


class _Ruling(NamedTuple):
    """The deciding rule, if any, and whether other arguments could select another one."""

    rule: Ranked | None
    needs_arguments: bool


_NO_RULING = _Ruling(None, False)


def decide(
    ref: ToolRef,
    tool: Tool | None,
    principal: Principal,
    grants: Grants,
    rules: Rules,
    arguments: JsonObject | None = None,
    paths: Sequence[TouchedPath] | None = None,
    files: Files = LEXICAL,
    assume: Callable[[Rule], bool] | None = None,
    marks: HeldMarks = NO_MARKS,
) -> Decision:
    """Decide whether this principal sees the tool and, if so, what a call of it does.

    Without `arguments`, as in a listing, rules with conditions on arguments are skipped, and `needs_arguments` is set
    if one of them could matter. `paths` are the paths the call touches (see `zones`); unknown ones count as outside the
    project. `files` resolves the paths that conditions test. `assume` replaces the test of a rule's conditions, so that
    proofs can try every outcome of them. `marks` are those of the conversation that the call belongs to.
    """
    own = _decide(ref, tool, principal, grants, rules, arguments, paths, files, assume, marks)
    if grants.creator is None or tool is None:
        return own
    if grants.creator.is_revoked:
        return Decision("hidden", ref, (*own.steps, _CREATOR_REVOKED))
    creator = grants.creator
    above = decide(ref, tool, creator.principal, creator.grants, rules, arguments, paths, files, assume, marks)
    return _stricter(own, above, principal)


def sees(tool: Tool, principal: Principal, grants: Grants, rules: Rules) -> bool:
    """Return whether `decide` makes the tool visible, without reasons. Fast, for listings of thousands of tools."""
    if sight(tool, principal, grants)[-1].effect == "exclude" or rules.applicable_to(principal).hides(tool):
        return False
    creator = grants.creator
    if creator is None or creator.is_revoked:
        return creator is None
    return sees(tool, creator.principal, creator.grants, rules)


def _decide(
    ref: ToolRef,
    tool: Tool | None,
    principal: Principal,
    grants: Grants,
    rules: Rules,
    arguments: JsonObject | None,
    paths: Sequence[TouchedPath] | None,
    files: Files,
    assume: Callable[[Rule], bool] | None,
    marks: HeldMarks,
) -> Decision:
    if tool is None:
        return Decision("unknown", ref, (_UNREGISTERED,))
    sight_steps = sight(tool, principal, grants)
    if sight_steps[-1].effect == "exclude":
        return Decision("hidden", ref, (REGISTERED, *sight_steps))
    applicable = rules.applicable_to(principal).on(tool)
    if is_decisive_edit(tool, paths):
        applicable = [ranked for ranked in applicable if ranked.step.step != "remembered"]
    ruling = _NO_RULING
    if applicable:
        context = ConditionContext.of(tool, principal, files, marks, rules.acts)
        ruling = _deciding_rule(applicable, arguments, context, assume)
    by_paths = ref.server == coding_tools.SERVER and coding_tools.depends_on_paths(ref.tool)
    ruling = _Ruling(ruling.rule, ruling.needs_arguments or by_paths)
    closed = () if principal.by_hand else closed_paths(paths, principal.projects)
    if closed and not (ruling.rule is not None and ruling.rule.hides):
        return Decision("deny", ref, (REGISTERED, *sight_steps, _CLOSED[closed[0].closed or "inside"]), (), True)
    if ruling.rule is not None:
        return _decide_by_rule(ref, ruling.rule, ruling, sight_steps, principal, marks)
    step = _by_mode(tool, principal, paths)
    after = _replace_asking(principal) if step.effect == "ask" else ()
    steps = (REGISTERED, *sight_steps, _NO_DENY, step, *after)
    return Decision(_VERDICTS[steps[-1].effect], ref, steps, (), ruling.needs_arguments)


def is_decisive_edit(tool: Tool, paths: Sequence[TouchedPath] | None) -> bool:
    """Return whether a call edits a file that decides what runs. No remembered answer covers that."""
    edits = tool.ref.server == coding_tools.SERVER and tool.ref.tool in coding_tools.EDITORS
    return edits and any(touches_decisive(each) for each in paths or ())


def _decide_by_rule(
    ref: ToolRef,
    ranked: Ranked,
    ruling: _Ruling,
    sight_steps: tuple[DecisionStep, ...],
    principal: Principal,
    marks: HeldMarks,
) -> Decision:
    """Return the decision of a rule. The reason names the calls that set the marks it tests."""
    step, rule = ranked.step, ranked.rule
    ids = (rule.id,)
    if ranked.hides:
        return Decision("hidden", ref, (REGISTERED, *sight_steps, step), ids)
    held = marks if rule.where.marks else NO_MARKS
    if read := held.sentence(rule.where.marks):
        step = replace(step, reason=f"{step.reason} {read}")
    no_deny = () if step.step == "deny" else (_NO_DENY,)
    after = _replace_asking(principal) if step.effect == "ask" else ()
    steps = (REGISTERED, *sight_steps, *no_deny, step, *after)
    spends = rule.id if rule.uses is not None else None
    return Decision(_VERDICTS[steps[-1].effect], ref, steps, ids, ruling.needs_arguments, held, spends)


def sight(tool: Tool, principal: Principal, grants: Grants) -> tuple[DecisionStep, ...]:
    """Return the steps that decide visibility before any rule. The last one is decisive."""
    if principal.source == "web":
        return (_WEB,)
    granted = _grant_step(tool, grants)
    if granted.effect == "exclude" and grants.bundle(tool):
        granted = _BUNDLED
    if granted.effect == "include" and principal.source == "scheduler" and tool.marks.scheduler_blocked:
        return (granted, _SCHEDULED)
    return (granted,)


def _grant_step(tool: Tool, grants: Grants) -> DecisionStep:
    if grants.permissions is None:
        return _PRIVILEGED if tool.marks.privileged else _DEFAULT_SET
    return _GRANTED if grants.permit(tool) else _NOT_GRANTED


def _deciding_rule(
    applicable: Sequence[Ranked],
    arguments: JsonObject | None,
    context: ConditionContext,
    assume: Callable[[Rule], bool] | None,
) -> _Ruling:
    """Return the first rule that holds. Without arguments, as in a listing, rules with conditions are skipped."""
    needs_arguments = False
    for ranked in applicable:
        rule = ranked.rule
        if rule.is_conditional:
            if not needs_arguments and arguments is not None and context.tool is not None:
                arguments = context.tool.filled(arguments)
            needs_arguments = True
            applies = assume(rule) if assume is not None else unmet(rule, arguments, context) is None
            if not applies:
                continue
        return _Ruling(ranked, needs_arguments)
    return _Ruling(None, needs_arguments)


def _by_mode(tool: Tool, principal: Principal, paths: Sequence[TouchedPath] | None) -> DecisionStep:
    """Return the step of the mode."""
    mode = principal.mode
    if tool.ref.server == coding_tools.SERVER:
        step = coding_tools.mode_step(tool.ref.tool, mode, zone_of(paths, principal.projects))
        if step is not None:
            return step
    # The hints of an upstream server are not trusted: only marks, which the owner of a tool sets, count as read-only.
    if mode == "plan" and tool.marks.read_only:
        return _PLAN_OPEN_WORLD if tool.marks.open_world else _PLAN_READS
    return _BY_MODE[mode]


def _replace_asking(principal: Principal) -> tuple[DecisionStep, ...]:
    if principal.source == "scheduler":
        return (_NO_PERSON,)
    return (_BY_HAND,) if principal.by_hand else ()


def _stricter(own: Decision, above: Decision, principal: Principal) -> Decision:
    """Return the stricter of two decisions: the session's own, and that of its creator.

    If only the creator's decision asks, a scheduled session is denied, since no person is there to answer.
    """
    needs_arguments = own.visible and above.visible and (own.needs_arguments or above.needs_arguments)
    if _STRICTNESS.index(above.verdict) <= _STRICTNESS.index(own.verdict):
        return replace(own, needs_arguments=needs_arguments)
    cause = above.decided_by
    reason = f"The creator of this session is limited too: {cause.reason}"
    step = DecisionStep("creator", True, _EFFECTS[above.verdict], reason, cause.rule, cause.origin)
    limited = replace(above, ref=own.ref, steps=(*own.steps, step), needs_arguments=needs_arguments)
    if above.verdict == "ask" and principal.source == "scheduler":
        return replace(limited, verdict="deny", steps=(*own.steps, step, _NO_PERSON))
    return limited
