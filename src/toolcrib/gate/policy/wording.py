"""Describes rules in sentences that a person reads before accepting one. Pure."""

import json
from datetime import UTC

from toolcrib.model.policy import Condition, Rule

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
    parts = [f"{effect} {calls}"]
    if rule.principal is not None:
        parts.append(f"for {rule.principal.describe()}")
    if rule.where.agents:
        parts.append(f"for agent {' or '.join(rule.where.agents)}")
    if rule.where.projects:
        parts.append(f"in {' or '.join(rule.where.projects)}")
    if rule.where.modes:
        parts.append(f"in mode {' or '.join(rule.where.modes)}")
    if rule.definition_hash is not None:
        parts.append("for the current definition of the tool")
    if rule.session is not None:
        parts.append("in this session only")
    if rule.expires_at is not None:
        parts.append(f"until {rule.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC")
    elif rule.session is None:
        parts.append("until the rule is removed")
    return ", ".join(parts) + "."


def describe_condition(condition: Condition) -> str:
    """Return a condition in words."""
    if condition.test == "present":
        return f"`{condition.pointer}` is {'given' if condition.value else 'not given'}"
    if condition.test == "path" and (bare := str(condition.value).rstrip("*")) != condition.value:
        return f"`{condition.pointer}` is inside {bare}"
    written = condition.value if condition.test == "path" else json.dumps(condition.value, ensure_ascii=False)
    return f"`{condition.pointer}` {_TESTS[condition.test].format(written)}"
