"""`decide`: the one function behind every list and every call, pure, total and explained.

It takes a tool, an asker, what the asker was given and the rules, and returns a decision with every step it took. The
first steps settle whether the tool exists for the asker, the later ones what a call of it does; listing and calling
ask the same question, so what can be called is always among what is listed. Arguments can only change what a call
does, never whether the tool is seen.

Reasons that do not depend on the tool are made once: a listing asks this for thousands of tools. Above: the gate, which
denies should this ever raise. Below: `rules`, `coding`, `model`. It must never read a clock, a file or anything else
that it was not given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Decision, Effect, Step, Verdict
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.policy import coding
from toolcrib.policy.patterns import PatternIndex
from toolcrib.policy.rules import Ranked, Rules, unmet


@dataclass(frozen=True)
class Grants:
    """What an asker was given: the agent's own permissions (None: the default set), and bundles on top.

    Both are globs over `server/tool`. An empty tuple of permissions means none at all. `creator` is who started the
    asker's session, if a tool, job or other session did: the asker never has more than that.
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

    def permit(self, ref: ToolRef) -> bool:
        """Whether the agent's own permissions name the tool."""
        return bool(self._permitted.find(ref))

    def bundle(self, ref: ToolRef) -> bool:
        """Whether a bundle names the tool."""
        return bool(self.bundles) and bool(self._bundled.find(ref))


@dataclass(frozen=True, slots=True)
class Creator:
    """The asker that started another one's session, and what it was given itself."""

    principal: Principal
    grants: Grants


REGISTERED = Step("registered", True, "include", "The tool is registered.")
_UNREGISTERED = Step("registered", True, "exclude", "No tool of this name is registered.")
_WEB = Step("source", True, "include", "The console sees every registered tool.")
_DEFAULT_SET = Step("permissions", True, "include", "The default set has every tool that is not privileged.")
_PRIVILEGED = Step("permissions", True, "exclude", "The tool is privileged and was not granted.")
_GRANTED = Step("permissions", True, "include", "The agent's permissions name the tool.")
_NOT_GRANTED = Step("permissions", True, "exclude", "The agent's permissions do not name the tool.")
_BUNDLED = Step("permissions", True, "include", "A skill or project bundle grants the tool.")
_SCHEDULED = Step("scheduler", True, "exclude", "The tool is blocked for scheduled runs.")
_NOBODY_THERE = Step("scheduler", True, "deny", "A scheduled run has nobody who could be asked.")
_BY_HAND = Step("by_hand", True, "allow", "The owner makes this call by hand, which is its own approval.")
_NO_DENY = Step("deny", False, "none", "No deny rule applies here.")
_BY_MODE: dict[Mode, Step] = {
    "default": Step("mode", True, "ask", "Mode default asks a person before each call."),
    "acceptEdits": Step("mode", True, "allow", "Mode acceptEdits runs tools without asking."),
    "bypassPermissions": Step("mode", True, "allow", "Mode bypassPermissions runs tools without asking."),
    "dontAsk": Step("mode", True, "deny", "Mode dontAsk refuses what no rule allows."),
    "plan": Step("mode", True, "deny", "Mode plan runs read-only tools only."),
}
_PLAN_READS = Step("mode", True, "allow", "Mode plan runs read-only tools.")
_VERDICTS: dict[str, Verdict] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_STRICTNESS: tuple[Verdict, ...] = ("allow", "ask", "deny", "hidden", "unknown")
_EFFECTS: dict[Verdict, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny", "hidden": "exclude"}


class _Ruling(NamedTuple):
    """The rule that decides, if one does, and whether other arguments could make it another one."""

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
    paths: Sequence[str] | None = None,
) -> Decision:
    """Whether this asker sees the tool and, if so, what happens when it calls it.

    Without `arguments` this is the question of a listing: rules with conditions on arguments are passed over, and
    `needs_arguments` says whether one of them could matter. `paths` are the real paths that a call of the coding
    agent's own tools touches (see `coding`); unknown ones count as outside the project.
    """
    own = _decide(ref, tool, principal, grants, rules, arguments, paths)
    if grants.creator is None or tool is None:
        return own
    above = decide(ref, tool, grants.creator.principal, grants.creator.grants, rules, arguments, paths)
    return _limited(own, above, principal)


def sees(tool: Tool, principal: Principal, grants: Grants, rules: Rules) -> bool:
    """Whether `decide` has this asker see the tool, without the reasons: a list asks that of thousands."""
    if sight(tool, principal, grants)[-1].effect == "exclude" or rules.standing(principal).hides(tool):
        return False
    creator = grants.creator
    return creator is None or sees(tool, creator.principal, creator.grants, rules)


def _decide(
    ref: ToolRef,
    tool: Tool | None,
    principal: Principal,
    grants: Grants,
    rules: Rules,
    arguments: JsonObject | None,
    paths: Sequence[str] | None,
) -> Decision:
    if tool is None:
        return Decision("unknown", ref, (_UNREGISTERED,))
    seen = sight(tool, principal, grants)
    if seen[-1].effect == "exclude":
        return Decision("hidden", ref, (REGISTERED, *seen))
    standing = rules.standing(principal).on(tool)
    ruling = _ruling(standing, arguments) if standing else _NO_RULING
    if ruling.rule is not None:
        return _ruled(ref, ruling.rule, ruling, seen, principal)
    step, by_paths = _by_mode(tool, principal, paths)
    after = _instead_of_asking(principal) if step.effect == "ask" else ()
    steps = (REGISTERED, *seen, _NO_DENY, step, *after)
    return Decision(_VERDICTS[steps[-1].effect], ref, steps, (), ruling.needs_arguments or by_paths)


def _ruled(ref: ToolRef, ranked: Ranked, ruling: _Ruling, seen: tuple[Step, ...], principal: Principal) -> Decision:
    """The decision that a rule makes."""
    step = ranked.step
    ids = (ranked.rule.id,)
    if ranked.hides:
        return Decision("hidden", ref, (REGISTERED, *seen, step), ids)
    no_deny = () if step.step == "deny" else (_NO_DENY,)
    after = _instead_of_asking(principal) if step.effect == "ask" else ()
    steps = (REGISTERED, *seen, *no_deny, step, *after)
    return Decision(_VERDICTS[steps[-1].effect], ref, steps, ids, ruling.needs_arguments)


def sight(tool: Tool, principal: Principal, grants: Grants) -> tuple[Step, ...]:
    """The steps that settle whether the tool exists for this asker before any rule; the last one says so."""
    if principal.source == "web":
        return (_WEB,)
    granted = _permitted(tool, grants)
    if granted.effect == "exclude" and grants.bundle(tool.ref):
        granted = _BUNDLED
    if granted.effect == "include" and principal.source == "scheduler" and tool.marks.scheduler_blocked:
        return (granted, _SCHEDULED)
    return (granted,)


def _permitted(tool: Tool, grants: Grants) -> Step:
    if grants.permissions is None:
        return _PRIVILEGED if tool.marks.privileged else _DEFAULT_SET
    return _GRANTED if grants.permit(tool.ref) else _NOT_GRANTED


def _ruling(standing: Sequence[Ranked], arguments: JsonObject | None) -> _Ruling:
    """The first rule in order that holds; a listing has no arguments, so no condition on them does."""
    needs_arguments = False
    for ranked in standing:
        rule = ranked.rule
        if rule.conditions:
            needs_arguments = True
            if arguments is None or unmet(rule, arguments) is not None:
                continue
        return _Ruling(ranked, needs_arguments)
    return _Ruling(None, needs_arguments)


def _by_mode(tool: Tool, principal: Principal, paths: Sequence[str] | None) -> tuple[Step, bool]:
    """What the mode says, and whether it depends on the paths of the call."""
    mode = principal.mode
    if tool.ref.server == coding.SERVER:
        step = coding.mode_step(tool.ref.tool, mode, coding.all_inside(paths, principal.cwd))
        if step is not None:
            return step, coding.depends_on_paths(tool.ref.tool, mode)
    # A hint of an upstream server is no promise: only marks, which the owner of a tool sets, count as read-only.
    return (_PLAN_READS if mode == "plan" and tool.marks.read_only else _BY_MODE[mode]), False


def _instead_of_asking(principal: Principal) -> tuple[Step, ...]:
    if principal.source == "scheduler":
        return (_NOBODY_THERE,)
    return (_BY_HAND,) if principal.by_hand else ()


def _limited(own: Decision, above: Decision, principal: Principal) -> Decision:
    """The stricter of two decisions: what a session may do, and what the one that started it may.

    Where only the latter would be asked, it is the session that nobody may be there for.
    """
    needs_arguments = own.visible and above.visible and (own.needs_arguments or above.needs_arguments)
    if _STRICTNESS.index(above.verdict) <= _STRICTNESS.index(own.verdict):
        return Decision(own.verdict, own.ref, own.steps, own.rules, needs_arguments)
    cause = above.decided_by
    reason = f"Who started this session may not do more either: {cause.reason}"
    step = Step("creator", True, _EFFECTS[above.verdict], reason, cause.rule, cause.origin)
    if above.verdict == "ask" and principal.source == "scheduler":
        return Decision("deny", own.ref, (*own.steps, step, _NOBODY_THERE), above.rules, needs_arguments)
    return Decision(above.verdict, own.ref, (*own.steps, step), above.rules, needs_arguments)
