"""Validates `Mcp-Param-*`, the modern era's headers that repeat arguments of a call.

A tool's schema marks such arguments with `x-mcp-header`, so that proxies can route by them. A header and its argument
must both be present and equal, or both be absent. A schema with an invalid annotation counts as having none, because
clients leave such a tool out.

Pure. Must never read anything but the schema, the arguments and the headers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.jsonrpc import RpcError, decode_header
from toolcrib.model.protocol import HEADER_MISMATCH

ANNOTATION = "x-mcp-header"
PREFIX = b"mcp-param-"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"(-?[0-9]{1,40})(?:\.(0+))?")
_TYPES = frozenset({"string", "integer", "boolean"})
_ONE_SCHEMA = frozenset(
    {
        "items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties",
        "not", "if", "then", "else", "contentSchema",
    }
)  # fmt: skip
_SCHEMAS_IN_ARRAY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS_IN_OBJECT = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedArgument:
    """An argument that a header repeats. `is_integer` selects numeric comparison."""

    path: Path
    header: bytes
    is_integer: bool


def repeated_arguments(schema: JsonObject) -> tuple[RepeatedArgument, ...]:
    """Return the arguments that this schema repeats in headers, or none if any annotation is invalid."""
    found: dict[bytes, RepeatedArgument] = {}
    for path, position in _positions(schema):
        if ANNOTATION not in position:
            continue
        token: Json = position[ANNOTATION]
        kind: Json = position.get("type")
        if not path or not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return ()
        header = PREFIX + token.lower().encode()
        if not isinstance(kind, str) or kind not in _TYPES or header in found:
            return ()
        found[header] = RepeatedArgument(path, header, kind == "integer")
    return tuple(found.values())


def check_repeated(
    repeated: tuple[RepeatedArgument, ...], arguments: Mapping[str, Json], headers: Mapping[bytes, bytes]
) -> None:
    """Raise `RpcError` unless every repeated header matches its argument."""
    for argument in repeated:
        argument_value = _header_form(_value(arguments, argument.path))
        header = headers.get(argument.header)
        if argument_value is None and header is None:
            continue
        header_value = decode_header(header)
        if argument_value is None or header_value is None or not _equal(argument, argument_value, header_value):
            where = ".".join(argument.path)
            name = argument.header.decode()
            raise RpcError(HEADER_MISMATCH, f"The header {name} does not match the argument {where}.")


def _positions(root: JsonObject) -> Iterator[tuple[Path | None, JsonObject]]:
    """Yield every nested schema, with its path if only `properties` lead to it. References are not followed."""
    stack: list[tuple[Path | None, Json]] = [((), root)]
    while stack:
        path, schema = stack.pop()
        if not is_object(schema):
            continue
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and is_object(value):
                stack.extend((None if path is None else (*path, name), inner) for name, inner in value.items())
            elif keyword in _ONE_SCHEMA:
                stack.append((None, value))
            elif keyword in _SCHEMAS_IN_ARRAY and is_array(value):
                stack.extend((None, inner) for inner in value)
            elif keyword in _SCHEMAS_IN_OBJECT and is_object(value):
                stack.extend((None, inner) for inner in value.values())


def _value(arguments: Mapping[str, Json], path: Path) -> Json:
    value: Json = arguments
    for name in path:
        value = value.get(name) if is_object(value) else None
    return value


def _header_form(value: Json) -> str | None:
    """Return the value in header form, or None if it is missing or has no such form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _equal(argument: RepeatedArgument, argument_value: str, header_value: str) -> bool:
    if argument.is_integer:
        # 42 and 42.0 are the same number, and clients send either.
        left, right = _DECIMAL.fullmatch(argument_value), _DECIMAL.fullmatch(header_value)
        if left is not None and right is not None:
            return int(left[1]) == int(right[1])
    return argument_value == header_value
