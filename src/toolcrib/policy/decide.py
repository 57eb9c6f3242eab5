"""`decide`: the one function behind every list and every call, pure, total and explained.

It takes a tool, an asker, what the asker was given and the rules, and returns a decision with every step it took. The
first steps settle whether the tool exists for the asker, the later ones what a call of it does; listing and calling
ask the same question, so what can be called is always among what is listed.

Reasons that do not depend on the tool are made once: a listing asks this for thousands of tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from toolcrib.model.policy import Decision, Rule, RuleEffect, Step, Verdict
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Tool, ToolRef


@dataclass(frozen=True, slots=True)
class Grants:
    """What an asker was given: the agent's own permissions (None: the default set), and bundles on top.

    Both are globs over `server/tool`. An empty tuple of permissions means none at all.
    """

    permissions: tuple[str, ...] | None = None
    bundles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules in force, numbered by version so that decisions can be kept until they change."""

    version: int = 0
    rules: tuple[Rule, ...] = ()


_REGISTERED = Step("registered", True, "include", "The tool is registered.")
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
_NO_DENY = Step("deny", False, "none", "No deny rule names the tool.")
_BY_MODE: dict[Mode, Step] = {
    "default": Step("mode", True, "ask", "Mode default asks a person before each call."),
    "acceptEdits": Step("mode", True, "allow", "Mode acceptEdits runs tools without asking."),
    "bypassPermissions": Step("mode", True, "allow", "Mode bypassPermissions runs tools without asking."),
    "dontAsk": Step("mode", True, "deny", "Mode dontAsk refuses what no rule allows."),
    "plan": Step("mode", True, "deny", "Mode plan runs read-only tools only."),
}
_PLAN_READS = Step("mode", True, "allow", "Mode plan runs read-only tools.")
_VERDICTS: dict[str, Verdict] = {"allow": "allow", "ask": "ask", "deny": "deny"}


def decide(ref: ToolRef, tool: Tool | None, principal: Principal, grants: Grants, rules: Rules) -> Decision:
    """Whether this asker sees the tool and, if so, what happens when it calls it."""
    if tool is None:
        return Decision("unknown", ref, (_UNREGISTERED,))
    steps = [_REGISTERED, *_sight(tool, principal, grants)]
    if steps[-1].effect == "exclude":
        return Decision("hidden", ref, tuple(steps))
    if denied := _first(rules.rules, "deny", ref):
        steps.append(_applied(denied))
        return Decision("hidden", ref, tuple(steps), (denied.id,))
    steps.append(_NO_DENY)
    rule = _first(rules.rules, "ask", ref) or _first(rules.rules, "allow", ref)
    last = _applied(rule) if rule else _by_mode(tool, principal.mode)
    steps.append(last)
    if last.effect == "ask":
        steps.extend(_instead_of_asking(principal))
    return Decision(_VERDICTS[steps[-1].effect], ref, tuple(steps), (rule.id,) if rule else ())


def _sight(tool: Tool, principal: Principal, grants: Grants) -> tuple[Step, ...]:
    """The steps that settle whether the tool exists for this asker; the last one says so."""
    if principal.source == "web":
        return (_WEB,)
    granted = _permitted(tool, grants)
    if granted.effect == "exclude" and _named(tool.ref, grants.bundles):
        granted = _BUNDLED
    if granted.effect == "include" and principal.source == "scheduler" and tool.marks.scheduler_blocked:
        return (granted, _SCHEDULED)
    return (granted,)


def _permitted(tool: Tool, grants: Grants) -> Step:
    if grants.permissions is None:
        return _PRIVILEGED if tool.marks.privileged else _DEFAULT_SET
    return _GRANTED if _named(tool.ref, grants.permissions) else _NOT_GRANTED


def _by_mode(tool: Tool, mode: Mode) -> Step:
    # A hint of an upstream server is no promise: only marks, which the owner of a tool sets, count as read-only.
    return _PLAN_READS if mode == "plan" and tool.marks.read_only else _BY_MODE[mode]


def _instead_of_asking(principal: Principal) -> tuple[Step, ...]:
    if principal.source == "scheduler":
        return (_NOBODY_THERE,)
    return (_BY_HAND,) if principal.by_hand else ()


def _first(rules: Sequence[Rule], effect: RuleEffect, ref: ToolRef) -> Rule | None:
    return next((rule for rule in rules if rule.effect == effect and _named(ref, (rule.pattern,))), None)


def _named(ref: ToolRef, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(str(ref), pattern) for pattern in patterns)


def _applied(rule: Rule) -> Step:
    reason = rule.reason or f"Rule {rule.effect} {rule.pattern} names the tool."
    return Step(rule.effect, True, rule.effect, reason, rule.id, rule.origin)
