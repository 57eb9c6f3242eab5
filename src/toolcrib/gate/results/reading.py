"""`read_result`: reads on in a kept result by lines, by pages, by a pattern or by a path into its JSON."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from toolcrib.gate.policy.regular import NotRegular, regular
from toolcrib.gate.results.fitting import shape
from toolcrib.gate.results.kept import KeptResult, KeptResults
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Marks, Tool, ToolRef

READ: Final = "read_result"
_PAGE: Final = 8_000
"""Characters of a page."""
_MOST_CHARACTERS: Final = 40_000
"""Characters of one answer."""
_GREP_SECONDS: Final = 0.2
_LONGEST_LINE: Final = 2_000
_PIECE: Final = 1_500
"""Characters of the parts in which a longer line is searched."""
_ANY_CASE: Final = "(?i)"
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")
_PLAIN: Final = re.compile(r"[\w\s/:@,;=\"'<>%&#~`-]+")

DEFINITION: Final[JsonObject] = {
    "name": READ,
    "description": "Read on in a result that was shortened: its handle, and one of `lines`, `grep`, `path` or `page`.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle in the shortened result."},
            "lines": {"type": "string", "description": "Lines to read, from 1: `20-60`, `100-` or `7`."},
            "grep": {"type": "string", "description": "A regular expression: the lines that contain a match."},
            "path": {"type": "string", "description": "A path into a JSON result: `items[0].name` or `items[*].id`."},
            "page": {"type": "integer", "minimum": 1, "description": f"A page of {_PAGE:,} characters."},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


TOOL: Final = Tool(
    ToolRef("toolcrib", READ),
    DEFINITION["description"],
    DEFINITION["inputSchema"],
    "builtin",
    marks=Marks(read_only=True, always_load=True),
)
"""The tool as sessions offer it."""


async def read_on(results: KeptResults, principal: Principal, arguments: JsonObject) -> CallResult:
    """Return a part of a result that was shortened for this principal."""
    handle: Json = arguments.get("handle")
    await results.fetch(principal, handle)
    kept = results.get(principal, handle) if isinstance(handle, str) else None
    if kept is None:
        return CallResult.error(
            "There is no such result: it expired or belongs to another caller. Call the tool again."
        )
    return read_kept(kept, arguments)


def read_kept(kept: KeptResult, arguments: JsonObject) -> CallResult:
    """Return a part of a kept result, or an error result if it is not described well."""
    if (undeclared := CallResult.for_undeclared(DEFINITION, arguments)) is not None:
        return undeclared
    asked = [key for key in ("lines", "grep", "path", "page") if key in arguments]
    if len(asked) > 1:
        return CallResult.error(f"Use one of lines, grep, path and page, not {' and '.join(asked)}.")
    key = asked[0] if asked else "page"
    value: Json = arguments.get(key, 1)
    if key == "page":
        return _page(kept.text, value)
    if not isinstance(value, str):
        return CallResult.error(f"{key}: a text is needed.")
    readers = {"lines": _lines, "grep": _grep}
    return readers[key](kept.text, value) if key in readers else _path(kept, value)


def _page(text: str, page: Json) -> CallResult:
    pages = max(1, -(-len(text) // _PAGE))
    if not isinstance(page, int) or isinstance(page, bool) or not 1 <= page <= pages:
        return CallResult.error(f"page: a number from 1 to {pages} is needed.")
    return CallResult.text(f"[Page {page} of {pages}]\n{text[(page - 1) * _PAGE : page * _PAGE]}")


def _lines(text: str, asked: str) -> CallResult:
    match = re.fullmatch(r"\s*(\d{1,9})\s*(-\s*(\d{1,9})?)?\s*", asked)
    lines = text.splitlines()
    if match is None or not 1 <= int(match[1]) <= max(1, len(lines)):
        return CallResult.error(f"lines: a range such as 20-60 is needed; there are {len(lines):,} lines.")
    first = int(match[1])
    last = int(match[3]) if match[3] else len(lines) if match[2] else first
    if last < first:
        return CallResult.error(f"lines: {first}-{last} ends before it begins.")
    return _number_lines(list(enumerate(lines, start=1))[first - 1 : last])


def _grep(text: str, pattern: str) -> CallResult:
    """Return the lines that contain a match. Matching takes linear time, and stops after a fraction of a second."""
    try:
        matches = _matcher(pattern)
    except NotRegular as error:
        return CallResult.error(f"grep: {error}")
    found: list[tuple[int, str]] = []
    shown = (0, 0)
    end = time.perf_counter() + _GREP_SECONDS
    for piece in _pieces(text):
        if matches(piece):
            found.append((piece.number, piece.shown(shown[1] if shown[0] == piece.number else 0)))
            shown = (piece.number, piece.end)
        if time.perf_counter() > end:
            found.append((piece.number, "[the search stopped here: it took too long]"))
            break
    return _number_lines(found) if found else CallResult.text(f"[No line contains {pattern!r}.]")


class _Piece(NamedTuple):
    """A line, or a part of a long line, such as JSON without line breaks."""

    number: int
    line: str
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.line[self.start : self.end]

    def shown(self, after: int) -> str:
        """Return what to show: nothing that was shown before, and where a part of a line begins."""
        if len(self.line) <= _LONGEST_LINE:
            return self.line
        first = max(self.start, after)
        return f"[characters {first + 1:,} to {self.end:,}] {self.line[first : self.end]}"


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield all lines, long ones in parts that overlap by half, so that a match at a border is found."""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) <= _LONGEST_LINE:
            yield _Piece(number, line, 0, len(line))
            continue
        for start in range(0, len(line) - _PIECE // 2, _PIECE // 2):
            yield _Piece(number, line, start, min(start + _PIECE, len(line)))


def _matcher(pattern: str) -> Callable[[_Piece], bool]:
    """Return a test for a match, of words without case. Raises `NotRegular`."""
    if _PLAIN.fullmatch(pattern):
        words = pattern.casefold()
        return lambda piece: words in piece.text.casefold()
    regular(pattern)  # its message has the position in what the caller wrote
    expression = regular(_anywhere(pattern))
    starts, ends = _anchors(pattern.removeprefix(_ANY_CASE))

    def matches(piece: _Piece) -> bool:
        if (starts and piece.start > 0) or (ends and piece.end < len(piece.line)):
            return False
        return expression.matches(piece.text) is True

    return matches


def _anchors(pattern: str) -> tuple[bool, bool]:
    return pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")


def _anywhere(pattern: str) -> str:
    """Return an expression for whole lines that contain a match. Anchors are only supported at both ends."""
    if pattern.startswith(_ANY_CASE):
        return _ANY_CASE + _anywhere(pattern.removeprefix(_ANY_CASE))
    starts, ends = _anchors(pattern)
    inner = pattern[1 if starts else 0 : -1 if ends else None]
    return f"{'' if starts else '.*'}(?:{inner}){'' if ends else '.*'}"


def _number_lines(lines: Sequence[tuple[int, str]]) -> CallResult:
    """Return lines with their numbers, as many as fit into one answer."""
    shown: list[str] = []
    size = 0
    for number, line in lines:
        text = f"{number}: {line if len(line) <= _LONGEST_LINE else f'{line[:_LONGEST_LINE]}…'}"
        size += len(text) + 1
        if size > _MOST_CHARACTERS and shown:
            shown.append(f"[{len(lines) - len(shown):,} more lines, from {number}]")
            break
        shown.append(text)
    return CallResult.text("\n".join(shown))


def _path(kept: KeptResult, path: str) -> CallResult:
    if kept.value is None:
        return CallResult.error("path: this result is not JSON; use lines, grep or page.")
    steps = list(_STEP.finditer(path.strip().removeprefix("$")))
    if "".join(step[0] for step in steps) != path.strip().removeprefix("$"):
        return CallResult.error("path: names and indexes are needed, such as `items[0].name` or `items[*].id`.")
    try:
        value = _follow(kept.value, [step[1] if step[1] is not None else step[2] for step in steps], [])
    except KeyError as error:
        return CallResult.error(f"path: {error.args[0]}")
    text = dumps(value).decode()
    if len(text) <= _MOST_CHARACTERS:
        return CallResult.text(text)
    return CallResult.text(f"[Too large: {len(text):,} characters. Shape: {shape(value)}]\n{text[:_PAGE]}")


def _follow(value: Json, steps: Sequence[str], walked: list[str]) -> Json:
    if not steps:
        return value
    step, *rest = steps
    if step == "*" and is_array(value):
        return [_follow(each, rest, [*walked, "*"]) for each in value]
    if is_object(value) and step in value:
        return _follow(value[step], rest, [*walked, step])
    if is_array(value) and step.isascii() and step.isdigit() and int(step) < len(value):
        return _follow(value[int(step)], rest, [*walked, step])
    raise KeyError(f"there is no {step!r} at {'.'.join(walked) or 'the top'}: {shape(value)}")
