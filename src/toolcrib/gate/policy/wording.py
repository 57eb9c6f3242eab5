"""Describes rules in sentences that a person reads before accepting one. Pure."""

import json
from collections.abc import Iterator
from datetime import UTC

from toolcrib.model.marks import MARK_WORDS
from toolcrib.model.policy import Condition, Rule

_ACTS = {"sends": "send data out", "destroys": "destroy things"}
_TESTS = {
    "equals": "is exactly {0}",
    "glob": "matches {0}",
    "regex": "matches {0}",
    "range": "is in {0}",
    "path": "is {0} or inside it",
    "command": "begins with the words {0}",
}


def describe(rule: Rule) -> str:
    """Return a sentence with the rule's effect, calls, scope and duration."""
    effect = {"allow": "Allow", "ask": "Ask before", "deny": "Deny"}[rule.effect]
    if rule.conditions:
        calls = f"calls of {rule.pattern} where {' and '.join(map(describe_condition, rule.conditions))}"
    else:
        calls = f"every call of {rule.pattern}, with any arguments"
    return ", ".join([f"{effect} {calls}", *_scope(rule), *_duration(rule)]) + "."


def _scope(rule: Rule) -> Iterator[str]:
    """Yield to what a rule is limited besides its conditions."""
    where = rule.where
    if where.excepted:
        yield f"except {' and '.join(where.excepted)}"
    if where.flows:
        yield f"that {' or '.join(_ACTS[act] for act in where.flows)}"
    if where.marks:
        yield f"after the conversation has read {' and '.join(MARK_WORDS[mark] for mark in where.marks)}"
    if rule.principal is not None:
        yield f"for {rule.principal.describe()}"
    for word, values in (("for agent", where.agents), ("in", where.projects), ("in mode", where.modes)):
        if values:
            yield f"{word} {' or '.join(values)}"
    if rule.definition_hash is not None:
        yield "for the current definition of the tool"
    if rule.session is not None:
        yield "in this session only"


def _duration(rule: Rule) -> Iterator[str]:
    """Yield when a rule ends."""
    if rule.uses is not None:
        yield "for the next call" if rule.uses == 1 else f"for the next {rule.uses} calls"
    if rule.expires_at is not None:
        yield f"until {rule.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    elif rule.session is None and rule.uses is None:
        yield "until the rule is removed"


def describe_condition(condition: Condition) -> str:
    """Return a condition in words."""
    if condition.test == "present":
        return f"`{condition.pointer}` is {'given' if condition.value else 'not given'}"
    if condition.test == "path" and (bare := str(condition.value).rstrip("*")) != condition.value:
        return f"`{condition.pointer}` is inside {bare}"
    written = condition.value if condition.test == "path" else json.dumps(condition.value, ensure_ascii=False)
    return f"`{condition.pointer}` {_TESTS[condition.test].format(written)}"
