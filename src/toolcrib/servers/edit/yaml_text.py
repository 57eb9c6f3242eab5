"""Sets and removes one entry of a YAML text in block style; comments, order and indentation stay.

Entries are members of a mapping, or items of a list identified by their `name`. Positions come from the composed nodes.
"""

import json
import re
from collections.abc import Iterator

from toolcrib.model.json import Json, JsonObject, as_list, as_object
from toolcrib.servers.edit.unsupported import Unsupported
from toolcrib.servers.syntax.yaml import YamlNode, compose, node_at

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_SPECIAL = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def set_entry(text: str, root: str, name: str, value: JsonObject, listed: bool) -> str:
    """Return the text with the entry `name` under `root` set: in place if it exists, else after its siblings."""
    top = _top(text)
    holder = node_at(top, (root,)) if top is not None else None
    line_break = "\r\n" if "\r\n" in text else "\n"
    if holder is None:
        lead = "" if not text or text.endswith("\n") else line_break
        head = f"{root}:"
        return text + lead + line_break.join([head, *_entry(name, value, 2, listed)]) + line_break
    if not holder.pairs:
        return _set_in_empty(text, root, _entry(name, value, 2, listed), line_break)
    _refuse_flow(holder)
    found = _find(holder, name)
    if found is not None:
        start, end = _lines_of(text, found, holder)
        return text[:start] + line_break.join(_entry(name, value, holder.column, listed)) + line_break + text[end:]
    at = _end_of_line(text, _content_end(holder))
    lead = "" if text[:at].endswith("\n") else line_break
    return text[:at] + lead + line_break.join(_entry(name, value, holder.column, listed)) + line_break + text[at:]


def remove_entry(text: str, root: str, name: str) -> str:
    """Return the text without the entry; unchanged if there is none."""
    holder = node_at(_top(text), (root,))
    found = _find(holder, name) if holder is not None else None
    if holder is None or found is None:
        return text
    _refuse_flow(holder)
    start, end = _lines_of(text, found, holder)
    if len(holder.pairs) > 1:
        return text[:start] + text[end:]
    empty = " []" if holder.kind == "sequence" else " {}"
    colon = text.rindex(":", 0, start) + 1
    return text[:colon] + empty + text[colon:start] + text[end:]


def set_field(text: str, root: str, name: str, key: str, value: Json) -> str:
    """Return the text with one field of an entry set."""
    holder = node_at(_top(text), (root,))
    found = _find(holder, name) if holder is not None else None
    entry = found[1] if found is not None else None
    if entry is None or entry.kind != "mapping" or entry.flow or not entry.pairs:
        raise Unsupported("the entry is not written in block style")
    for field, _, node in entry.children():
        if field == key:
            if node.kind != "scalar":
                raise Unsupported(f"{key} is not a plain value")
            return text[: node.start] + _scalar(value) + text[node.end :]
    line_break = "\r\n" if "\r\n" in text else "\n"
    at = entry.start
    return f"{text[:at]}{_key(key)}: {_scalar(value)}{line_break}{' ' * entry.column}{text[at:]}"


def render(value: Json, column: int) -> Iterator[str]:
    """Yield the lines of a value in block style, indented to `column`."""
    pad = " " * column
    mapping, items = as_object(value), as_list(value)
    for key, item in (mapping or {}).items():
        if as_object(item) or as_list(item):
            yield f"{pad}{_key(key)}:"
            yield from render(item, column + 2)
        else:
            yield f"{pad}{_key(key)}: {_scalar(item)}"
    for item in items or ():
        lines = list(render(item, column + 2)) if as_object(item) or as_list(item) else []
        yield f"{pad}- {lines[0].lstrip()}" if lines else f"{pad}- {_scalar(item)}"
        yield from lines[1:]


def _entry(name: str, value: JsonObject, column: int, listed: bool) -> list[str]:
    return list(render([{"name": name, **value}] if listed else {name: value}, column))


def _top(text: str) -> YamlNode | None:
    top = compose(text)
    if top is not None and (top.kind != "mapping" or top.flow):
        raise Unsupported("the file is not written in block style")
    return top


def _refuse_flow(holder: YamlNode) -> None:
    if holder.flow:
        raise Unsupported("the entries are not written in block style")


def _find(holder: YamlNode, name: str) -> tuple[YamlNode, YamlNode] | None:
    """Return the node at which an entry begins, and its value."""
    if holder.kind == "mapping":
        named = [(at, value) for key, at, value in holder.children() if key == name]
        return named[-1] if named else None
    for _, at, value in holder.children():
        own = node_at(value, ("name",)) if value.kind == "mapping" else None
        if own is not None and own.text == name:
            return at, value
    return None


def _lines_of(text: str, found: tuple[YamlNode, YamlNode], holder: YamlNode) -> tuple[int, int]:
    """Return the offsets of the start of an entry's first line and the end of its last line with content."""
    at, value = found
    start = text.rfind("\n", 0, at.start) + 1
    if not text[start : at.start].strip(" -\t") == "":
        raise Unsupported("the entry shares a line with something else")
    return start, _end_of_line(text, max(_content_end(value), at.end if holder.kind == "mapping" else 0))


def _content_end(node: YamlNode) -> int:
    """Return the end of a node's content: the end of a block node lies after the comments that follow it."""
    if node.kind == "scalar" or node.flow or not node.pairs:
        return node.end
    return max(max(_content_end(value), key.end if key.kind == "scalar" else 0) for key, value in node.pairs)


def _end_of_line(text: str, offset: int) -> int:
    # A block scalar already ends at the start of the next line.
    if offset > 0 and text[offset - 1] == "\n":
        return offset
    found = text.find("\n", offset)
    return len(text) if found < 0 else found + 1


def _set_in_empty(text: str, root: str, lines: list[str], line_break: str) -> str:
    top = _top(text)
    pairs = top.pairs if top is not None else ()
    key, value = next((key, value) for key, value in pairs if key.text == root)
    colon = text.index(":", key.end) + 1
    end = max(colon, value.end if value.kind != "scalar" or value.text else colon)
    rest = text[end:]
    tail = rest if rest.startswith(("\n", "\r\n")) else line_break + rest.lstrip(" ")
    return text[:colon] + line_break + line_break.join(lines) + (tail if rest.strip(" ") else line_break)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else _string(key)


def _scalar(value: Json) -> str:
    if isinstance(value, str):
        return _string(value)
    return "{}" if value == {} else "[]" if value == [] else json.dumps(value)


def _string(value: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
