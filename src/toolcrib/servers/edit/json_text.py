"""Sets and removes one member of a JSON or JSONC text; comments, order, indentation and line endings stay.

Positions come from `syntax.jsonc` on the blanked text, which has the same offsets as the original.
"""

import json
import re

from toolcrib.model.json import Json
from toolcrib.servers.edit.unsupported import Unsupported
from toolcrib.servers.syntax.document import KeyPath
from toolcrib.servers.syntax.jsonc import Member, blank, members_at

_BLANKS = re.compile(r"[ \t]*")
_SAME_LINE_COMMENTS = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*")
_LINE_BREAK = re.compile(r"\r?\n")
_INDENT = re.compile(r"\n([ \t]+)\S")


def set_member(text: str, path: KeyPath, value: Json) -> str:
    """Return the text with the member at `path` set, creating missing parent objects."""
    plain, _ = blank(text)
    if not plain.strip():
        text, plain = "{}\n", "{}\n"
    for depth in range(len(path)):
        held = members_at(plain, path[:depth])
        found = [member for member in held if member.key == path[depth]]
        if depth == len(path) - 1 and found:
            indent = _indent_of(text, found[-1].start)
            one_line = "\n" not in text[found[-1].value_start : found[-1].value_end] and _is_inline(text, plain, held)
            rendered = _render(text, value, None if one_line else indent)
            return text[: found[-1].value_start] + rendered + text[found[-1].value_end :]
        if not found:
            nested = value
            for key in reversed(path[depth + 1 :]):
                nested = {key: nested}
            return _insert(text, plain, path[:depth], str(path[depth]), nested)
    return text


def remove_member(text: str, path: KeyPath) -> str:
    """Return the text without the member at `path`; unchanged if there is none."""
    plain, _ = blank(text)
    while True:
        held = members_at(plain, path[:-1])
        index = next((i for i, member in enumerate(held) if member.key == path[-1]), None)
        if index is None:
            return text
        # Remove every occurrence of a duplicate key.
        text = _without(text, plain, held, index)
        plain, _ = blank(text)


def _without(text: str, plain: str, held: tuple[Member, ...], index: int) -> str:
    member = held[index]
    start, end = member.start, member.value_end
    comma = _comma_after(text, plain, end)
    if comma is not None:
        end = comma + 1
    elif index > 0:
        before = plain.index(",", held[index - 1].value_end)
        text = text[:before] + text[before + 1 :]
        start, end = start - 1, end - 1
    line_start = text.rfind("\n", 0, start) + 1
    if not text[line_start:start].strip(" \t"):
        # Remove a comment after the entry too, if nothing else is on the line.
        line_break = _LINE_BREAK.match(text, _blanks(text, _after_comments(text, end)))
        if line_break:
            start, end = line_start, line_break.end()
    elif text[end : end + 1] == " " and text[start - 1 : start] in (" ", "{"):
        end += 1
    return text[:start] + text[end:]


def _insert(text: str, plain: str, holder: KeyPath, key: str, value: Json) -> str:
    opening = _opening(plain, holder)
    held = members_at(plain, holder)
    if not held:
        return _insert_first(text, plain, opening, key, value)
    last = held[-1]
    inline = _is_inline(text, plain, held)
    indent = _indent_of(text, last.start)
    body = f"{json.dumps(key, ensure_ascii=False)}: {_render(text, value, None if inline else indent)}"
    comma = _comma_after(text, plain, last.value_end)
    if inline:
        at = last.value_end if comma is None else comma
        return f"{text[:at]}, {body}{text[at:]}"
    after = last.value_end if comma is None else comma + 1
    at = _after_comments(text, after)
    joined = f"{_line_break(text)}{indent}{body}{',' if comma is not None else ''}"
    separator = "," if comma is None else ""
    return text[: last.value_end] + separator + text[last.value_end : at] + joined + text[at:]


def _insert_first(text: str, plain: str, opening: int, key: str, value: Json) -> str:
    closing = plain.index("}", opening)
    outer = _indent_of(text, opening)
    indent = outer + _unit(text)
    body = f"{json.dumps(key, ensure_ascii=False)}: {_render(text, value, indent)}"
    line_break = _line_break(text)
    inside = text[opening + 1 : closing]
    if "\n" in inside:
        # Existing comments and blank lines stay below the new member, before the closing brace.
        return f"{text[: opening + 1]}{line_break}{indent}{body}{inside}{text[closing:]}"
    return f"{text[: opening + 1]}{inside}{line_break}{indent}{body}{line_break}{outer}{text[closing:]}"


def _opening(plain: str, holder: KeyPath) -> int:
    """Return the offset of the object at a path."""
    offset = len(plain) - len(plain.lstrip())
    if holder:
        offset = [member for member in members_at(plain, holder[:-1]) if member.key == holder[-1]][-1].value_start
    if plain[offset : offset + 1] != "{":
        raise Unsupported("there is no object to put the entry in")
    return offset


def _comma_after(text: str, plain: str, offset: int) -> int | None:
    """Return the offset of the comma that follows a value, including a trailing one."""
    while offset < len(text):
        if text[offset] == ",":
            return offset
        # Comments are blank in `plain`: where the two differ and the character is no comma, it is a comment.
        if not plain[offset].isspace():
            return None
        offset += 1
        if text[offset - 1] == "/" and text[offset : offset + 1] == "/":
            offset = _end_of_line(text, offset)
        elif text[offset - 1] == "/" and text[offset : offset + 1] == "*":
            offset = text.index("*/", offset) + 2
    return None


def _end_of_line(text: str, offset: int) -> int:
    found = text.find("\n", offset)
    return len(text) if found < 0 else found


def _is_inline(text: str, plain: str, held: tuple[Member, ...]) -> bool:
    """Return whether the members and the opening brace are on one line."""
    if not held:
        return False
    opening = max(plain.rfind("{", 0, held[0].start), 0)
    return "\n" not in text[opening : held[-1].start]


def _indent_of(text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return text[line_start : _blanks(text, line_start)]


def _after_comments(text: str, offset: int) -> int:
    match = _SAME_LINE_COMMENTS.match(text, offset)
    return match.end() if match else offset


def _blanks(text: str, offset: int) -> int:
    match = _BLANKS.match(text, offset)
    return match.end() if match else offset


def _unit(text: str) -> str:
    """Return one step of indentation: the shallowest one in the file."""
    widths = {match[1] for match in _INDENT.finditer(text)}
    return min(widths, key=len) if widths else "  "


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _render(text: str, value: Json, indent: str | None) -> str:
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    rendered = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return rendered.replace("\n", f"{_line_break(text)}{indent}")
