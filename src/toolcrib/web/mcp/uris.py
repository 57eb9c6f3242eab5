"""Matches URIs against RFC 6570 templates, as far as needed to find the right server.

A variable matches any text within one segment, with `+` or `#` any text at all; `{?…}` and `{&…}` match a query or
nothing. Templates come from servers, so matching time is bounded by the product of both lengths. Pure.
"""

import re
from typing import NamedTuple

LONGEST = 8_192
"""Maximum length of a URI or template; a longer one matches nothing."""

_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
_ENDS: dict[str, str] = {"": "/?#", "+": "", "#": "", ".": "/?#", "/": "?#", ";": "/?#", "?": "#", "&": "#"}
"""By operator: the characters that end an expression's value."""
_BEGINS: dict[str, str] = {".": ".", "/": "/", ";": ";", "?": "?", "&": "&", "#": "#"}
"""By operator: the character that a non-empty value starts with."""


class _Part(NamedTuple):
    literal: str
    operator: str | None


def matches(template: str, uri: str) -> bool:
    """Return whether the template matches this URI."""
    if len(template) > LONGEST or len(uri) > LONGEST:
        return False
    reached = {0}
    for part in _parts(template):
        reached = {place + len(part.literal) for place in reached if uri.startswith(part.literal, place)}
        if part.operator is not None:
            reached = _ends(uri, reached, part.operator)
        if not reached:
            return False
    return len(uri) in reached


def weight(template: str) -> int:
    """Return the length of a template's literal text. Of two matching templates, the more specific one wins."""
    return sum(len(part.literal) for part in _parts(template))


def _parts(template: str) -> list[_Part]:
    parts: list[_Part] = []
    after = 0
    for expression in _EXPRESSION.finditer(template):
        parts.append(_Part(template[after : expression.start()], expression[1]))
        after = expression.end()
    return [*parts, _Part(template[after:], None)]


def _ends(uri: str, places: set[int], operator: str) -> set[int]:
    """Return the positions where an expression that starts at one of these places may end."""
    begin, ends = _BEGINS.get(operator, ""), _ENDS[operator]
    reached: set[int] = set(places) if begin else set()  # an expression with a prefix may be absent
    is_inside = False
    for place in range(len(uri) + 1):
        if is_inside:
            is_inside = uri[place - 1] not in ends
            if is_inside:
                reached.add(place)
        if place in places and uri.startswith(begin, place):
            is_inside = True
    return reached
