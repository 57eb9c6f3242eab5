"""Proposes a rule for calls that a person keeps approving, as narrow as those calls.

After several approvals of the same tool for the same principal, the next approval offers a rule for calls like them.
Arguments that were always the same stay fixed. An argument that varied is limited to what the approved calls have in
common: the first words of a command, a directory, a site, the beginning of a text, a range of numbers. Arguments that
were never given must stay absent. If an argument has nothing in common, no rule is proposed.

Pure. Invariant: every call that the proposal is based on meets all its conditions.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from toolcrib.gate.approvals.remembering import LONGEST_VALUE
from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.conditions import ConditionContext, holds, is_number, same
from toolcrib.gate.policy.paths import LEXICAL, Files, looks_like_path
from toolcrib.model.approvals import ApprovalRequest, Prefix, Remembering
from toolcrib.model.json import Json, JsonObject, dumps, is_object, loads
from toolcrib.model.policy import Condition

NEEDED = 3
"""Number of approvals in a row after which a rule is proposed."""
SHORTEST_PREFIX = 3
"""Minimum number of characters that varying texts must have in common."""
_SPECIAL = re.compile(r"[*?\[]")
_LABELS = frozenset({("Bash", "description")})
"""Arguments of the coding agent's tools that only describe a call."""


def propose_similar(
    question: ApprovalRequest,
    offered: Remembering,
    earlier: Sequence[Json],
    redact: Callable[[Json, bytes], bytes] = lambda _, encoded: encoded,
    files: Files = LEXICAL,
) -> Prefix | None:
    """Return the proposal for calls like this one and `earlier`, the arguments approved last, or None."""
    calls = [loads(question.arguments), *earlier[:NEEDED]]
    names = _declared_arguments(question)
    if len(calls) <= NEEDED or offered.refusal is not None or not names:
        return None
    given = [call for call in calls if is_object(call)]
    if len(given) < len(calls) or any(call.keys() != given[0].keys() for call in given):
        return None
    conditions = list(_conditions(question, offered, given, names, files))
    if not conditions or None in conditions:
        return None
    found = tuple(each for each in conditions if each is not None)
    repeated = {each.pointer: each.value for each in found}
    encoded = dumps(repeated)
    is_short = all(len(dumps(each.value)) <= LONGEST_VALUE for each in found)
    if not is_short or redact(repeated, encoded) != encoded or not _fits(question, found, given, files):
        return None
    return Prefix(f"like the last {NEEDED} approvals", found[0], found)


def _declared_arguments(question: ApprovalRequest) -> frozenset[str]:
    """Return the arguments that the tool takes, empty if it does not declare them."""
    if question.ref.server == coding_tools.SERVER:
        return coding_tools.ARGUMENTS.get(question.ref.tool, frozenset())
    return question.argument_names


def _conditions(
    question: ApprovalRequest, offered: Remembering, calls: Sequence[JsonObject], names: frozenset[str], files: Files
) -> Iterator[Condition | None]:
    """Yield one condition for each argument, None for one that varied without anything in common."""
    exact = {each.pointer: each for each in offered.conditions}
    for name in calls[0]:
        pointer = _pointer(name)
        values: list[Json] = [call[name] for call in calls]
        if question.ref.server == coding_tools.SERVER and (question.ref.tool, name) in _LABELS:
            continue
        if all(same(values[0], value) for value in values):
            yield exact.get(pointer) or Condition(pointer, "equals", values[0])
        elif pointer in exact:
            yield _narrowest(question, offered, pointer, calls, files)
        else:
            yield _common(pointer, values)
    for name in sorted(names - calls[0].keys()):
        yield Condition(_pointer(name), "present", False)


def _pointer(name: str) -> str:
    return f"/{name.replace('~', '~0').replace('/', '~1')}"


def _narrowest(
    question: ApprovalRequest, offered: Remembering, pointer: str, calls: Sequence[JsonObject], files: Files
) -> Condition | None:
    """Return the narrowest of the proposed prefixes of an argument that all calls have."""
    for prefix in offered.prefixes:  # the longest is first
        if prefix.condition.pointer == pointer and _fits(question, (prefix.condition,), calls, files):
            return prefix.condition
    return None


def _common(pointer: str, values: Sequence[Json]) -> Condition | None:
    if all(is_number(value) for value in values):
        return Condition(pointer, "range", {"min": min(values), "max": max(values)})
    if not all(isinstance(value, str) and not _has_spellings(value) for value in values):
        return None
    first, last = min(values), max(values)
    common = "".join(
        one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    )
    if len(common) < SHORTEST_PREFIX:
        return None
    return Condition(pointer, "glob", _SPECIAL.sub(lambda special: f"[{special[0]}]", common) + "*")


def _has_spellings(text: str) -> bool:
    """Return whether a text may be a path or an address, whose beginning says little about where it leads."""
    return looks_like_path(text) or "://" in text or "../" in text


def _fits(
    question: ApprovalRequest, conditions: Sequence[Condition], calls: Sequence[Mapping[str, Json]], files: Files
) -> bool:
    """Return whether all calls certainly meet the conditions."""
    cwd = question.principal.cwd if question.ref.server == coding_tools.SERVER else None
    context = ConditionContext(None, cwd, files)
    return all(holds(condition, dict(call), context) is True for call in calls for condition in conditions)
