"""Which URI a template stands for: RFC 6570 read backwards, as far as finding the right server needs it.

A variable stands for any text within one segment; one written with `+` or `#` for any text at all; `{?…}` and `{&…}`
for a query or nothing. Templates come from servers, so matching takes time in proportion to both lengths and no more.

Pure. Above: the faces of the endpoint.
"""

import re
from typing import NamedTuple

LONGEST = 8_192
"""Characters of a URI or template that are looked at; a longer one matches nothing."""

_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
_ENDS: dict[str, str] = {"": "/?#", "+": "", "#": "", ".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"}
"""By operator: the characters that end what an expression stands for."""
_BEGINS: dict[str, str] = {".": ".", "/": "/", ";": ";", "?": "?", "&": "&", "#": "#"}
"""By operator: the character that what it stands for begins with, if there is anything."""


class _Part(NamedTuple):
    literal: str
    operator: str | None


def matches(template: str, uri: str) -> bool:
    """Whether the template can stand for this URI."""
    if len(template) > LONGEST or len(uri) > LONGEST:
        return False
    reached = {0}
    for part in _parts(template):
        reached = {place + len(part.literal) for place in reached if uri.startswith(part.literal, place)}
        if part.operator is not None:
            reached = _expanded(uri, reached, part.operator)
        if not reached:
            return False
    return len(uri) in reached


def weight(template: str) -> int:
    """How much of a template is fixed: of two that match, the one that says more is meant."""
    return sum(len(part.literal) for part in _parts(template))


def _parts(template: str) -> list[_Part]:
    parts: list[_Part] = []
    after = 0
    for expression in _EXPRESSION.finditer(template):
        parts.append(_Part(template[after : expression.start()], expression[1]))
        after = expression.end()
    return [*parts, _Part(template[after:], None)]


def _expanded(uri: str, places: set[int], operator: str) -> set[int]:
    """Where an expression may end that begins at one of these places."""
    begin, ends = _BEGINS.get(operator, ""), _ENDS[operator]
    reached: set[int] = set(places) if begin else set()  # what has a beginning of its own may be missing altogether
    is_inside = False
    for place in range(len(uri) + 1):
        if is_inside:
            is_inside = uri[place - 1] not in ends
            if is_inside:
                reached.add(place)
        if place in places and uri.startswith(begin, place):
            is_inside = True
    return reached
