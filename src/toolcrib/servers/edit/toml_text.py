"""Sets and removes one table of a TOML text; every other statement, comment and blank line stays.

Entries may be tables with headers, inline tables or dotted keys. Raises `Unsupported` if a change would touch anything
else.
"""

import json
import re
from collections.abc import Iterator

from toolcrib.model.json import Json, JsonObject, as_list, as_object
from toolcrib.servers.edit.unsupported import Unsupported
from toolcrib.servers.syntax.toml import Statement, statements

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def set_entry(text: str, path: tuple[str, ...], value: JsonObject) -> str:
    """Return the text with the table at `path` set: in place if it exists, else after its siblings."""
    listed = list(statements(text))
    _refuse_inline_parent(listed, path)
    spans = _spans(listed, path)
    line_break = "\r\n" if "\r\n" in text else "\n"
    block = line_break.join(_table(path, value)) + line_break
    if spans:
        start = spans[0][0]
        if not _starts_table(listed, path):
            raise Unsupported("the entry is not a table of its own")
        rest = _cut(text, [(max(begin, spans[0][1]), end) for begin, end in spans[1:]])
        return rest[:start] + block + rest[spans[0][1] :]
    at = _insertion(listed, path[:-1], len(text))
    before = text[:at]
    gap = "" if not before.strip() else line_break if before.endswith("\n") else line_break * 2
    return before + gap + block + text[at:]


def remove_entry(text: str, path: tuple[str, ...]) -> str:
    """Return the text without the table at `path`; unchanged if there is none."""
    listed = list(statements(text))
    _refuse_inline_parent(listed, path)
    spans = _spans(listed, path)
    widened = [(_with_blank_line(text, start), end) for start, end in spans]
    return _cut(text, widened)


def set_field(text: str, path: tuple[str, ...], key: str, value: Json) -> str:
    """Return the text with one field of the table at `path` set."""
    listed = list(statements(text))
    _refuse_inline_parent(listed, path)
    for statement in listed:
        if statement.kind == "pair" and statement.path == (*path, key):
            return text[: statement.value_start] + render(value) + text[statement.value_end :]
    for statement in listed:
        if statement.kind == "table" and statement.path == path:
            line_break = "\r\n" if "\r\n" in text else "\n"
            line = f"{_key(key)} = {render(value)}{line_break}"
            head = text[: statement.end]
            return head + ("" if head.endswith("\n") else line_break) + line + text[statement.end :]
    raise Unsupported("the entry is not a table of its own")


def set_top_level(text: str, key: str, value: Json) -> str:
    """Return the text with one top-level key set: in place if it exists, else after the other top-level keys."""
    line_break = "\r\n" if "\r\n" in text else "\n"
    line = f"{_key(key)} = {render(value)}{line_break}"
    at = 0
    for statement in statements(text):
        if statement.kind != "pair":
            break
        if statement.path == (key,):
            return text[: statement.value_start] + render(value) + text[statement.value_end :]
        at = statement.end
    if at == 0:
        return line + (line_break + text if text.strip() else "")
    return text[:at] + ("" if text[:at].endswith("\n") else line_break) + line + text[at:]


def render(value: Json) -> str:
    """Render a value on one line."""
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        return (
            "{ " + ", ".join(f"{_key(key)} = {render(item)}" for key, item in mapping.items()) + " }"
            if mapping
            else "{}"
        )
    if listed is not None:
        return "[" + ", ".join(render(item) for item in listed) + "]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise Unsupported("TOML has no empty value")


def _table(path: tuple[str, ...], value: JsonObject) -> Iterator[str]:
    yield f"[{'.'.join(_key(part) for part in path)}]"
    nested = {key: table for key, item in value.items() if (table := as_object(item)) is not None}
    for key, item in value.items():
        if key not in nested:
            yield f"{_key(key)} = {render(item)}"
    for key, table in nested.items():
        yield ""
        yield from _table((*path, key), table)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(value: str) -> str:
    # TOML shares JSON's escapes; only DEL has to be escaped as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _spans(listed: list[Statement], path: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the spans of the text that belong to an entry; adjacent ones are joined."""
    spans: list[tuple[int, int]] = []
    for statement in listed:
        if statement.path[: len(path)] != path:
            spans.append((-1, -1))
        elif spans and spans[-1][1] >= 0:
            spans[-1] = (spans[-1][0], statement.end)
        else:
            spans.append((statement.start, statement.end))
    return [span for span in spans if span[1] >= 0]


def _starts_table(listed: list[Statement], path: tuple[str, ...]) -> bool:
    first = next(statement for statement in listed if statement.path[: len(path)] == path)
    return first.kind == "table"


def _insertion(listed: list[Statement], root: tuple[str, ...], end: int) -> int:
    """Return the offset after the last statement of the last table under `root`, else the end."""
    mine = [index for index, statement in enumerate(listed) if statement.path[: len(root)] == root]
    if not mine:
        return end
    last = mine[-1]
    while last + 1 < len(listed) and listed[last + 1].kind == "pair":
        last += 1
    return listed[last].end


def _refuse_inline_parent(listed: list[Statement], path: tuple[str, ...]) -> None:
    for statement in listed:
        if (
            statement.kind == "pair"
            and len(statement.path) < len(path)
            and path[: len(statement.path)] == statement.path
        ):
            raise Unsupported("the entries stand inside one inline table")
        if statement.kind == "array" and path[: len(statement.path)] == statement.path:
            raise Unsupported("the entries stand in an array of tables")


def _with_blank_line(text: str, start: int) -> int:
    """Extend the start of a span to the blank line before it."""
    before = text[:start]
    for blank in ("\r\n\r\n", "\n\n"):
        if before.endswith(blank):
            return start - len(blank) // 2
    return start


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text
