"""Checks the conditions that a person edited in the rule of a remembered answer.

A person may change the value of each proposed condition and add conditions. Each proposed argument keeps a condition,
with a test that was proposed for it, so that an edit cannot turn a command or a path into plain text. The requested
call must certainly meet all conditions.

Must never return a condition that repeats a secret.
"""

from collections.abc import Callable, Iterable, Sequence

from toolcrib.gate.approvals.remembering import LONGEST_VALUE
from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.conditions import ConditionContext, holds
from toolcrib.gate.policy.paths import LEXICAL, Files
from toolcrib.gate.policy.rule_parser import read_conditions
from toolcrib.model.approvals import Approval, Prefix, Remembering
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.policy import Condition

_CODE = "approval.prefix"


def edited_conditions(
    approval: Approval,
    base: Sequence[Condition],
    raw: Sequence[JsonObject],
    redact: Callable[[Json, bytes], bytes] = lambda _, encoded: encoded,
    files: Files = LEXICAL,
) -> tuple[Condition, ...]:
    """Return the edited conditions of a rule; `base` are the proposed ones. Raises `InvalidRequest`."""
    edited = read_conditions(list(raw))
    tests = _tests(approval.remembering)
    for condition in edited:
        allowed = tests.get(condition.pointer)
        if allowed is not None and condition.test not in allowed:
            message = f"`{condition.pointer}` cannot be tested with {condition.test}."
            raise InvalidRequest(_CODE, message, f"Use {' or '.join(sorted(allowed))}.")
        if len(dumps(condition.value)) > LONGEST_VALUE:
            raise InvalidRequest(_CODE, f"The value of `{condition.pointer}` is too long for a rule.")
    left_out = [each for each in base if each.pointer not in {one.pointer for one in edited}]
    edited = (*edited, *(each for each in left_out if each.test == "present"))
    missing = [each.pointer for each in left_out if each.test != "present"]
    if missing:
        raise InvalidRequest(_CODE, f"The rule needs a condition on {', '.join(f'`{each}`' for each in missing)}.")
    _check_secrets(edited, redact)
    _check_call(approval, edited, files)
    return edited


def _tests(offered: Remembering) -> dict[str, set[str]]:
    """Return the tests that were proposed for each argument."""
    found: dict[str, set[str]] = {}
    for condition in (*offered.conditions, *_of_prefixes(offered.prefixes)):
        found.setdefault(condition.pointer, {"equals"}).add(condition.test)
    return found


def _of_prefixes(prefixes: Iterable[Prefix]) -> Iterable[Condition]:
    for prefix in prefixes:
        yield from prefix.conditions or (prefix.condition,)


def _check_secrets(conditions: Sequence[Condition], redact: Callable[[Json, bytes], bytes]) -> None:
    repeated = {each.pointer: each.value for each in conditions}
    encoded = dumps(repeated)
    if redact(repeated, encoded) != encoded:
        raise InvalidRequest(_CODE, "A condition appears to contain a secret, which no rule may repeat.")


def _check_call(approval: Approval, conditions: Sequence[Condition], files: Files) -> None:
    given = approval.given
    cwd = approval.principal.cwd if approval.ref.server == coding_tools.SERVER else None
    context = ConditionContext(None, cwd, files)
    for condition in conditions:
        if not is_object(given) or holds(condition, given, context) is not True:
            raise InvalidRequest(_CODE, f"The requested call does not meet the condition on `{condition.pointer}`.")
