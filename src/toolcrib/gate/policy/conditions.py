"""Evaluates conditions on the arguments of a call.

A condition holds, does not hold, or is undetermined. It is undetermined for an argument that is absent or of another
type than the test reads, for a value that a tool may read in several ways (`"3"` for 3, composed letters, a path with
links), and for values beyond the limits. An undetermined condition counts in rules that restrict, and not in rules that
allow. A caller therefore gains nothing by omitting an argument or spelling it differently.

The arguments must be those the tool runs with, defaults filled in (see `gate.arguments`). Must never raise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.commands import begins_with
from toolcrib.gate.policy.flows import Acts, acts_of
from toolcrib.gate.policy.paths import LEXICAL, Files, names_path
from toolcrib.gate.policy.patterns import glob
from toolcrib.gate.policy.regular import LONGEST_TEXT, NotRegular, regular
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.marks import NO_MARKS, HeldMarks
from toolcrib.model.policy import Condition, ConditionTest
from toolcrib.model.principals import Principal
from toolcrib.model.text import normalized
from toolcrib.model.tools import Tool

ABSENT: Final = object()
"""The result of a pointer without a value."""
MOST_ITEMS = 1_000
"""Maximum items of a list that are tested. A longer list is undetermined."""


class ConditionContext(NamedTuple):
    """Inputs of conditions besides the arguments: the tool, its directory if known, the file system, the marks
    of the conversation, and what a call does."""

    tool: Tool | None = None
    cwd: str | None = None
    files: Files = LEXICAL
    marks: HeldMarks = NO_MARKS
    acts: Acts = acts_of

    @classmethod
    def of(
        cls, tool: Tool | None, principal: Principal, files: Files, marks: HeldMarks = NO_MARKS, acts: Acts = acts_of
    ) -> "ConditionContext":
        """Return the context of a call. Only the coding agent uses the caller's directory; servers have their own."""
        is_coding = tool is not None and tool.ref.server == coding_tools.SERVER
        return cls(tool, principal.cwd if is_coding else None, files, marks, acts)


NOWHERE: Final = ConditionContext()


def holds(condition: Condition, arguments: JsonObject, context: ConditionContext = NOWHERE) -> bool | None:
    """Return whether the condition holds, or None if that is undetermined."""
    found = value_at(condition.pointer, arguments)
    if condition.test == "present":
        return (found is not ABSENT) is condition.value
    if found is ABSENT:
        return None if takes(context.tool, condition.pointer) else False
    if is_array(found) and condition.test not in _WHOLE_TESTS and _is_too_much(found):
        return None
    if is_array(found) and condition.test in _SEPARATE_TESTS:
        return _agreement(_TESTS[condition.test](item, condition.value, context) for item in found)
    return _TESTS[condition.test](found, condition.value, context)


def _is_too_much(items: Sequence[Json]) -> bool:
    """Return whether a list exceeds the limits. All texts of a list together have the limit of one text."""
    return len(items) > MOST_ITEMS or sum(len(each) for each in items if isinstance(each, str)) > LONGEST_TEXT


def _agreement(verdicts: Iterable[bool | None]) -> bool | None:
    """Return the result for a list: that of its items if they agree, otherwise None, also for an empty list."""
    seen = set(verdicts)
    return seen.pop() if len(seen) == 1 else None


def takes(tool: Tool | None, pointer: str) -> bool:
    """Return whether a tool may take an argument at this pointer, according to its definition.

    A tool that declares no arguments may take any.
    """
    if tool is None:
        return True
    name = pointer[1:].split("/", 1)[0].replace("~1", "/").replace("~0", "~")
    if tool.ref.server == coding_tools.SERVER:
        return name in coding_tools.ARGUMENTS.get(tool.ref.tool, frozenset({name}))
    declared = tool.argument_names
    return not declared or name in declared


def value_at(pointer: str, value: Json) -> Json:
    """Return the value at a JSON pointer (RFC 6901), or `ABSENT`."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        return ABSENT
    for step in pointer[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(key, ABSENT)
        elif is_array(value):
            value = _item(value, key)
        else:
            return ABSENT
        if value is ABSENT:
            break
    return value


def _item(values: Sequence[Json], key: str) -> Json:
    if not (key.isascii() and key.isdigit() and len(key) < 10) or (key != "0" and key.startswith("0")):
        return ABSENT
    return values[int(key)] if int(key) < len(values) else ABSENT


def same(one: Json, other: Json) -> bool:
    """Return whether two values are the same JSON: `1` equals `1.0`, but not `true`."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def is_number(value: Json) -> bool:
    """Return whether this is a JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equals(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    if same(found, wanted):
        return True
    if is_array(found) and not is_array(wanted):
        is_unsure = _is_too_much(found) or any(same(item, wanted) or _may_equal(item, wanted) for item in found)
        return None if is_unsure else False
    return None if _may_equal(found, wanted) else False


def _may_equal(found: Json, wanted: Json) -> bool:
    """Return whether a tool may take one value for the other: null as absent, a number or boolean as text."""
    if found is None:
        return True
    texts = [_comparable_text(each) for each in (found, wanted)]
    if None in texts:
        return False
    if texts[0] == texts[1]:
        return True
    numbers = [_number(each) for each in (found, wanted)]
    return None not in numbers and numbers[0] == numbers[1]


def _comparable_text(value: Json) -> str | None:
    """Return a scalar as the text that lenient tools compare."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return normalized("NFKC", str(value)[:LONGEST_TEXT]).strip().casefold()
    return None


def _number(value: Json) -> float | None:
    if is_number(value):
        return value
    try:
        return float(value) if isinstance(value, str) and len(value) <= 100 else None
    except ValueError:
        return None


def _in_range(found: Json, bounds: Json, context: ConditionContext) -> bool | None:
    if not is_object(bounds):
        return None
    number = _number(found)
    low, high = bounds.get("min", number), bounds.get("max", number)
    if number is None or number != number or not (is_number(low) and is_number(high)):  # not a number, NaN included
        return None
    inside = low <= number <= high
    return inside if is_number(found) or not inside else None


def _is_present(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    return wanted is True


def _fits_path(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    if not isinstance(found, str) or not isinstance(wanted, str):
        return None
    return names_path(found, wanted, context.cwd, context.files)


def _fits_command(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    return begins_with(found, wanted) if isinstance(wanted, str) else None


def _fits_glob(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    if not isinstance(wanted, str):
        return None
    fits = glob(wanted)
    return _agreement(bool(fits(text)) for text in _texts(found))


def _fits_regex(found: Json, wanted: Json, context: ConditionContext) -> bool | None:
    try:
        expression = regular(wanted) if isinstance(wanted, str) else None
    except NotRegular:
        return None
    if expression is None:
        return None
    texts = _texts(found)
    lengths = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
    return _agreement(
        expression.matches(text, other_length=sum(lengths) - length)
        for text, length in zip(texts, lengths, strict=True)
    )


def _texts(found: Json) -> list[str]:
    """Return a text, or those of a list, in the Unicode forms that tools and file systems treat as equal.

    Empty if one of them is not a text, or if they are too long together.
    """
    texts: list[str] = []
    for text in found if is_array(found) else (found,):
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            return []
        texts += dict.fromkeys((text, normalized("NFC", text), normalized("NFKC", text)))
    return texts if sum(map(len, texts)) <= _LONGEST_FORMS else []


_LONGEST_FORMS: Final = 3 * LONGEST_TEXT
_WHOLE_TESTS: Final = frozenset({"equals", "command"})
"""Tests that take a list as one value."""
_SEPARATE_TESTS: Final = frozenset({"range", "path"})
"""Tests of one value, applied to each item of a list."""
_Test: TypeAlias = Callable[[Json, Json, ConditionContext], bool | None]
_TESTS: Final[Mapping[ConditionTest, _Test]] = {
    "equals": _equals,
    "glob": _fits_glob,
    "regex": _fits_regex,
    "range": _in_range,
    "path": _fits_path,
    "command": _fits_command,
    "present": _is_present,
}
