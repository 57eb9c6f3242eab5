"""Validation of the tools a server lists: invalid parts are replaced or dropped, with a problem for each.

Clients reject a whole list because of one `inputSchema` that is not an object schema, so such a schema is replaced.
Everything else passes unchanged. References to other documents are never resolved; only their names are compared.

Pure, with bounded work for any input. Must never raise for anything a server sends.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.problems import Problem
from toolcrib.model.protocol import encode_header
from toolcrib.model.servers import ServerNames
from toolcrib.model.text import visible
from toolcrib.model.tools import Marks, Tool

DESCRIPTION_LIMIT: Final = 64 * 1024
TITLE_LIMIT: Final = 1024
SCHEMA_LIMIT: Final = 1024 * 1024
DEPTH_LIMIT: Final = 200
NAME_LENGTH: Final = 128
"""The maximum that the protocol recommends. Longer names still work here."""
LONGEST_NAME: Final = 1024

HEADER_KEY: Final = "x-mcp-header"
HEADER_PREFIX: Final = "Mcp-Param-"

_OWN_MEMBERS = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REFERENCES = ("$ref", "$dynamicRef")
_SUBSCHEMAS = frozenset(
    {
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
        *("not", "if", "then", "else", "contentSchema"),
    }
)
_SUBSCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SUBSCHEMA_MAPS = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """A validated tool of a server: its parts as they are passed on, and the problems found.

    `headers` maps arguments to the headers in which a modern HTTP server expects them repeated.
    """

    name: str
    description: str
    input_schema: JsonObject
    title: str | None = None
    output_schema: JsonObject | None = None
    annotations: JsonObject | None = None
    extra: Mapping[str, Json] = field(default_factory=dict[str, Json])
    headers: tuple[tuple[_Path, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    made: dict[tuple[str, float | None, ServerNames], Tool] = field(
        default_factory=dict[tuple[str, float | None, ServerNames], Tool], repr=False, compare=False
    )
    """Cache of the tools built from this definition, by server name, timeout and the server's other names."""

    @property
    def marks(self) -> Marks:
        """The server's hints that call for more care. `readOnlyHint` is ignored because it would call for less."""
        hints = self.annotations or {}
        return Marks(destructive=hints.get("destructiveHint") is True, open_world=hints.get("openWorldHint") is True)


def check_tool(raw: JsonObject, *, strict_headers: bool) -> UpstreamTool | Problem:
    """Return the validated tool, or a problem if it cannot be offered at all.

    `strict_headers` applies to the modern era, which forbids tools with invalid header annotations.
    """
    name: Json = raw.get("name")
    assert isinstance(name, str)  # guaranteed by the reader of the list
    if len(name) > LONGEST_NAME:
        return _problem(name, f"has a name of {len(name)} characters and is not offered")
    checker = _ToolChecker(name, _Sizes.of(raw))
    schema = checker.input_schema(raw.get("inputSchema"))
    found = _header_annotations(schema) if checker.sizes.may_have_headers else ()
    if isinstance(found, str):
        if strict_headers:
            return _problem(name, f"is not offered, as the protocol requires: {found}")
        found = ()
    definition = UpstreamTool(
        name=name,
        description=checker.description(raw.get("description")),
        input_schema=schema,
        title=checker.title(raw.get("title")),
        output_schema=checker.output_schema(raw.get("outputSchema")),
        annotations=checker.annotations(raw.get("annotations")),
        extra=checker.rest(raw),
        headers=found,
        problems=tuple(checker.problems),
    )
    return definition


class _Sizes(NamedTuple):
    """Cheap checks on a tool's serialized text, which spare nearly every tool a full traversal."""

    are_modest: bool = False
    """Whether no part can be too large or nested too deep."""
    may_refer: bool = True
    may_have_headers: bool = True

    @classmethod
    def of(cls, raw: JsonObject) -> "_Sizes":
        """Scan the serialized text. A key found in it may also be a value; a key not found is certainly absent."""
        try:
            text = dumps(raw)
        except TypeError:  # nested too deep to serialize
            return cls()
        return cls(
            are_modest=len(text) <= SCHEMA_LIMIT and text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT,
            may_refer=any(b'"%s"' % key.encode() in text for key in _REFERENCES),
            may_have_headers=b'"%s"' % HEADER_KEY.encode() in text,
        )


class _ToolChecker:
    """Collects the problems of one tool during validation."""

    def __init__(self, name: str, sizes: _Sizes) -> None:
        self.problems: list[Problem] = []
        self.sizes = sizes
        self._name = name
        if len(name) > NAME_LENGTH:
            self._note(f"has a name of {len(name)} characters, more than the {NAME_LENGTH} that clients must support")

    def description(self, value: Json) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            self._note("has a description that is not text")
            return ""
        if len(value) <= DESCRIPTION_LIMIT // 4 or len(encoded := value.encode()) <= DESCRIPTION_LIMIT:
            return value
        self._note(f"has a description of {len(encoded)} bytes, which is truncated to {DESCRIPTION_LIMIT}")
        return encoded[:DESCRIPTION_LIMIT].decode("utf-8", "ignore") + "…"

    def title(self, value: Json) -> str | None:
        if value is None or (isinstance(value, str) and len(value) <= TITLE_LIMIT):
            return value
        if not isinstance(value, str):
            self._note("has a title that is not text")
            return None
        self._note(f"has a title of {len(value)} characters, which is truncated to {TITLE_LIMIT}")
        return value[:TITLE_LIMIT] + "…"

    def annotations(self, value: Json) -> JsonObject | None:
        if value is None or (is_object(value) and self._fits("annotations", value)):
            return value
        if not is_object(value):
            self._note("has `annotations` that are not an object")
        return None

    def rest(self, raw: JsonObject) -> dict[str, Json]:
        kept = {key: value for key, value in raw.items() if key not in _OWN_MEMBERS and self._fits(key, value)}
        for key, fits in (("_meta", is_object), ("icons", is_array), ("execution", is_object)):
            if key in kept and not fits(kept[key]):
                del kept[key]
                self._note(f"has `{key}` of the wrong type")
        return kept

    def input_schema(self, value: Json) -> JsonObject:
        schema = self._check_schema("inputSchema", value)
        if schema is None:
            if value is None:
                self._note("has no inputSchema, so it is offered without arguments")
            return {"type": "object", "properties": {}}
        kind: Json = schema.get("type")
        if kind != "object":
            self._note("has an inputSchema whose type is not `object`")
            schema = {**schema, "type": "object"}
        return schema if is_object(schema.get("properties")) else {**schema, "properties": {}}

    def output_schema(self, value: Json) -> JsonObject | None:
        return self._check_schema("outputSchema", value)

    def _check_schema(self, member: str, value: Json) -> JsonObject | None:
        """Return the schema if it can be handled, else None."""
        if value is None:
            return None
        if not is_object(value):
            self._note(f"has an {member} that is not an object")
            return None
        if not self._fits(member, value):
            return None
        foreign = _foreign_reference(value) if self.sizes.may_refer else None
        if foreign is not None:
            self._note(f"has an {member} that refers to {visible(foreign[:200])}, which is not fetched")
        return value

    def _fits(self, member: str, value: Json) -> bool:
        """Return whether a member is small enough to be stored, compared and passed on."""
        if self.sizes.are_modest:
            return True
        shown = visible(member[:NAME_LENGTH])
        if _depth(value) > DEPTH_LIMIT:
            self._note(f"has `{shown}` nested deeper than {DEPTH_LIMIT} levels, which is dropped")
            return False
        size = len(dumps(value))
        if size > SCHEMA_LIMIT:
            self._note(f"has `{shown}` of {size} bytes, more than {SCHEMA_LIMIT}, which is dropped")
            return False
        return True

    def _note(self, what: str) -> None:
        self.problems.append(_problem(self._name, what))


def _problem(name: str, what: str) -> Problem:
    return Problem("tool.upstream", f"Tool {visible(name[:NAME_LENGTH])!r} {what}.")


def _depth(value: Json) -> int:
    """Return the nesting depth of a value. Stops counting just beyond the limit."""
    level: list[JsonObject | Sequence[Json]] = [value] if is_object(value) or is_array(value) else []
    depth = 0
    while level and depth <= DEPTH_LIMIT:
        below: list[Json] = []
        for each in level:
            below.extend(each.values() if is_object(each) else each)
        level, depth = [each for each in below if is_object(each) or is_array(each)], depth + 1
    return depth


def _foreign_reference(schema: JsonObject) -> str | None:
    """Return the first reference to another document."""
    for _, node in _positions(schema):
        for key in _REFERENCES:
            target: Json = node.get(key)
            if isinstance(target, str) and target and not target.startswith("#"):
                return target
    return None


def _positions(root: Json) -> Iterator[tuple[_Path | None, JsonObject]]:
    """Yield every subschema, with its path while that leads only through `properties`, else None."""
    stack: list[tuple[_Path | None, Json]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if not is_object(node):
            continue
        yield path, node
        for key, value in node.items():
            if key == "properties" and is_object(value):
                stack.extend(((*path, name) if path is not None else None, below) for name, below in value.items())
            elif key in _SUBSCHEMAS:
                stack.append((None, value))
            elif key in _SUBSCHEMA_LISTS and is_array(value):
                stack.extend((None, below) for below in value)
            elif key in _SUBSCHEMA_MAPS and is_object(value):
                stack.extend((None, below) for below in value.values())


def _header_annotations(schema: JsonObject) -> tuple[tuple[_Path, str], ...] | str:
    """Return the arguments to repeat in headers, or a description of what is invalid."""
    found: dict[str, tuple[_Path, str]] = {}
    for path, node in _positions(schema):
        if HEADER_KEY not in node:
            continue
        if not path:
            return f"`{HEADER_KEY}` is not on an argument"
        token: Json = node[HEADER_KEY]
        where = visible(".".join(path)[:NAME_LENGTH])
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return f"`{HEADER_KEY}` of {where!r} is not a valid header name"
        if node.get("type") not in ("string", "integer", "boolean"):
            return f"`{HEADER_KEY}` of {where!r} is on an argument that is neither string, integer nor boolean"
        if token.lower() in found:
            return f"`{HEADER_KEY}` {token!r} is used twice"
        found[token.lower()] = path, token
    return tuple(found.values())


def mcp_param_headers(headers: tuple[tuple[_Path, str], ...], arguments: JsonObject) -> dict[str, str]:
    """Return the headers that repeat arguments. Missing arguments are skipped."""
    given: dict[str, str] = {}
    for path, token in headers:
        value: Json = arguments
        for key in path:
            value = value.get(key) if is_object(value) else None
        if isinstance(value, bool):
            given[HEADER_PREFIX + token] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            given[HEADER_PREFIX + token] = encode_header(str(value))
    return given
